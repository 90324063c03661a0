// The second of the generator's two steps: what is written for a schema.
//
//   write("counter_fb.fbs", emit_flatc_schema(schema, "counter.fbs"));   // then flatc --cpp
//   write("counter.fbs.hpp", emit_header(schema));
//   write("counter.fbs.cpp", emit_source(schema));
#pragma once

#include <hyperframes/actors/protocol/schema.hpp>
#include <string>

namespace hyperframes::protocol {

/// The types of one of the schema's files, moved into the namespaces of flatc's own code.
std::string emit_flatc_schema(const Schema& schema, const std::string& file);
/// Views, fields, services: what users include.
std::string emit_header(const Schema& schema);
/// What builds and verifies tables, compiled once.
std::string emit_source(const Schema& schema);

/// Indexes of the schema's own structs, or tables, each after those whose fields it holds by value.
std::vector<int> in_dependency_order(const Schema& schema, bool structs, const std::string& file);

}  // namespace hyperframes::protocol
