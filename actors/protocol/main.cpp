// Turns a FlatBuffers schema with services into C++. cmake/HyperframesProtocol.cmake, and whoever
// builds without CMake, runs
//
//   hyperframes_protocol_generator generate counter.fbs --out build/protocol
//
// and compiles build/protocol/counter.fbs.cpp. In between it runs flatc, which needs a copy of the
// schema without what it does not know, and with names of its own.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <hyperframes/actors/protocol/emit.hpp>
#include <hyperframes/actors/protocol/flatc.hpp>
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

struct Options {
  fs::path schema, out, dependency_file;
  std::vector<fs::path> include_folders;
  std::string flatc = "flatc";
};

void write_dependencies(const fs::path& to, const fs::path& target,
                        const std::vector<protocol::Copy>& read) {
  std::string text = escaped(target) + ":";
  for (const auto& copy : read) text += " \\\n  " + escaped(copy.original);
  write(to, text + "\n");
}

void emit(const std::string& file, const fs::path& folder) {
  const auto read = protocol::read_schema(folder / (protocol::stem(file) + ".bfbs"), file);
  write(folder / (protocol::stem(file) + "_fb.fbs"), protocol::emit_flatc_schema(read, file));
  for (const auto& [name, includes] : read.includes)
    if (name != file)
      write(folder / (protocol::stem(name) + "_fb.fbs"), protocol::emit_flatc_schema(read, name));
  write(folder / (file + ".hpp"), protocol::emit_header(read));
  write(folder / (file + ".cpp"), protocol::emit_source(read));
}

void generate(const Options& options) {
  const std::string file = options.schema.filename().string(), stem = protocol::stem(file);
  // A folder for each schema: two of them may include the same third one. Its name is none that a
  // program made of the schema might have.
  const fs::path folder = options.out / (file + ".d");
  fs::create_directories(folder);
  const std::string place = folder.string();
  const protocol::Flatc flatc(options.flatc);

  const auto read = protocol::prepare(options.schema, options.include_folders, folder);
  const auto translated = [&read](std::string said) {
    return protocol::in_originals(std::move(said), read);
  };
  flatc.run({"--binary", "--schema", "--bfbs-comments", "--bfbs-builtins", "--bfbs-filenames",
             place, "-I", place, "-o", place, (folder / file).string()},
            translated);
  emit(file, folder);
  flatc.run(
      {"--cpp", "--scoped-enums", "-I", place, "-o", place, (folder / (stem + "_fb.fbs")).string()},
      translated);
  for (const std::string& made : {file + ".hpp", file + ".cpp", stem + "_fb_generated.h"})
    fs::copy_file(folder / made, options.out / made, fs::copy_options::overwrite_existing);
  if (!options.dependency_file.empty())
    write_dependencies(options.dependency_file, options.out / (file + ".hpp"), read);
}

}  // namespace

int main(int argument_count, char** arguments) {
  CLI::App app("Makes C++ of FlatBuffers schemas with services.");
  app.require_subcommand(1);
  Options options;
  auto* command = app.add_subcommand(
      "generate", "Write SCHEMA.hpp, SCHEMA.cpp and what they include into a folder");
  command->add_option("schema", options.schema, "The schema, a .fbs file")->required();
  command->add_option("--out", options.out, "Folder for what is made")->required();
  command->add_option("-I,--include", options.include_folders,
                      "Folders to look in for included schemas");
  command->add_option("--flatc", options.flatc, "FlatBuffers' compiler")->capture_default_str();
  command->add_option("--dependency-file", options.dependency_file,
                      "Write what was read, in make's syntax");
  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const bool without = app.get_subcommands().empty() && app.remaining().empty();
    std::cerr << "hyperframes_protocol_generator: "
              << (without ? "a command is missing; there is: generate" : error.what())
              << "; `hyperframes_protocol_generator --help` explains\n";
    return 2;
  }

  try {
    generate(options);
  } catch (const std::exception& error) {
    std::cerr << options.schema.string() << ": error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
