// How a schema's types look in generated code.
#pragma once

#include <hyperframes/actors/protocol/schema.hpp>
#include <set>
#include <string>

namespace hyperframes::protocol {

/// Gives the C++ spellings of a field's type, as it is read, built, and known to flatc.
class CppTypes {
 public:
  explicit CppTypes(const Schema& schema) : schema_(schema) {}

  const Object& object(int index) const { return schema_.objects[static_cast<std::size_t>(index)]; }
  const Enum& enumeration(int index) const {
    return schema_.enums[static_cast<std::size_t>(index)];
  }
  bool is_enum(Base base, int index) const { return base < Base::string && index >= 0; }
  bool is_struct(const Type& type) const {
    return type.base == Base::object && object(type.index).is_struct;
  }

  /// std::int32_t, or the enum's name.
  std::string scalar(Base base, int index) const;
  /// What a vector or array of it holds in a Fields aggregate.
  std::string element(const Type& type) const;
  /// The member of the Fields aggregate: type, and initializer with the schema's default.
  std::string field_type(const Field& field) const;
  std::string field_default(const Field& field) const;
  /// Its Fields aggregate has been written: others may hold vectors of it from now on.
  void set_complete(const Object& object) { complete_.insert(&object); }
  /// "::demo::AddFields".
  std::string fields_name(int index) const;

 private:
  std::string variant(const Enum& value) const;
  const Schema& schema_;
  std::set<const Object*> complete_;
};

}  // namespace hyperframes::protocol
