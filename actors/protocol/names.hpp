// Names in generated code.
#pragma once

#include <hyperframes/actors/protocol/schema.hpp>
#include <string>
#include <string_view>

namespace hyperframes::protocol {

/// "PullRows" becomes "pull_rows".
std::string snake_case(std::string_view name);
/// The name itself, with an underscore behind it where it is a keyword of C++.
std::string identifier(std::string_view name);
/// The same for accessors of views and for methods, which must not hide members of their bases.
std::string member(std::string_view name);
std::string method_name(std::string_view name);
/// The type that stands for a method: "PullRowsMethod".
std::string method_tag(std::string_view name);

/// "a.b" as "a::b".
std::string scoped(std::string_view dotted);
/// The namespace of generated code in which flatc's types for this one live: "a::b::fb".
std::string flatc_namespace(const Declared& declared);
/// "::a::b::Add" and "::a::b::fb::Add".
std::string cpp_name(const Declared& declared);
std::string flatc_name(const Declared& declared);

/// "counter" of "counter.fbs".
std::string stem(std::string_view file);

}  // namespace hyperframes::protocol
