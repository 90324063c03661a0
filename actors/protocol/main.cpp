// Turns a FlatBuffers schema with services into C++: see cmake/HyperframesProtocol.cmake, which
// runs
//
//   hyperframes_protocol_generator prepare counter.fbs --out build/protocol
//   flatc --binary --schema … build/protocol/counter.fbs
//   hyperframes_protocol_generator emit counter.fbs --out build/protocol
//   flatc --cpp --scoped-enums … build/protocol/counter_fb.fbs

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/actors/protocol/emit.hpp>
#include <hyperframes/actors/protocol/names.hpp>
#include <hyperframes/actors/protocol/prepare.hpp>
#include <hyperframes/actors/protocol/schema.hpp>
#include <iostream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace protocol = hyperframes::protocol;

void write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw protocol::SchemaError("can't write " + path.string());
}

// In make's syntax, in which a space and a dollar in a path need care.
std::string escaped(const fs::path& path) {
  std::string result;
  for (const char c : path.string()) {
    if (c == ' ' || c == '#' || c == '\\') result += '\\';
    if (c == '$') result += '$';
    result += c;
  }
  return result;
}

void prepare(const fs::path& schema, const std::vector<fs::path>& include_folders,
             const fs::path& out, const fs::path& dependency_file, const std::string& target) {
  const auto read = protocol::prepare(schema, include_folders, out);
  if (dependency_file.empty()) return;
  std::string text = escaped(target) + ":";
  for (const auto& path : read) text += " \\\n  " + escaped(path);
  write(dependency_file, text + "\n");
}

void emit(const fs::path& schema, const fs::path& out) {
  const std::string file = schema.filename().string(), stem = protocol::stem(file);
  const auto read = protocol::read_schema(out / (stem + ".bfbs"), file);
  write(out / (stem + "_fb.fbs"), protocol::emit_flatc_schema(read, file));
  for (const auto& [name, includes] : read.includes)
    if (name != file)
      write(out / (protocol::stem(name) + "_fb.fbs"), protocol::emit_flatc_schema(read, name));
  write(out / (file + ".hpp"), protocol::emit_header(read));
  write(out / (file + ".cpp"), protocol::emit_source(read));
}

}  // namespace

int main(int argument_count, char** arguments) {
  CLI::App app("Makes C++ of FlatBuffers schemas with services, in two steps around flatc.");
  app.require_subcommand(1);
  fs::path schema, out, dependency_file;
  std::string target;
  std::vector<fs::path> include_folders;

  auto* first = app.add_subcommand("prepare", "Write a copy of the schema that flatc accepts");
  first->add_option("schema", schema, "The schema")->required();
  first->add_option("--out", out, "Folder for what is made")->required();
  first->add_option("-I,--include", include_folders, "Folders to look in for included schemas");
  first->add_option("--dependency-file", dependency_file, "Write what was read, in make's syntax");
  first->add_option("--target", target, "The file that depends on it");
  auto* second = app.add_subcommand("emit", "Write C++ for a prepared schema");
  second->add_option("schema", schema, "The schema")->required();
  second->add_option("--out", out, "Folder that holds flatc's output")->required();
  CLI11_PARSE(app, argument_count, arguments);

  try {
    if (*first) prepare(schema, include_folders, out, dependency_file, target);
    if (*second) emit(schema, out);
  } catch (const std::exception& error) {
    std::cerr << schema.string() << ": error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
