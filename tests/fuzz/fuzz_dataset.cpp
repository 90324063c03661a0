// Everything of a data set that comes from outside: an index, a shard file under it, values of
// every encoding, and CSV files. The first byte says which.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hyperframes/apps/dataset/csv.hpp>
#include <hyperframes/apps/dataset/encoding.hpp>
#include <hyperframes/apps/dataset/index.hpp>
#include <hyperframes/apps/dataset/reader.hpp>
#include <hyperframes/runtime/error.hpp>

namespace {

namespace dataset = hyperframes::dataset;

// Files are needed where readers read files; they are written over for each input.
struct Folder {
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "hyperframes-fuzz-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
};

const std::filesystem::path& folder() {
  static const Folder folder;
  return folder.path;
}

void write(const std::string& name, std::string_view text) {
  std::ofstream(folder() / name, std::ios::binary) << text;
}

void try_value(std::size_t choice, std::string_view text) {
  static const std::vector<dataset::Encoding> encodings = [] {
    std::vector<dataset::Encoding> all;
    for (const char* name :
         {"int", "float16", "str", "str_int", "str_float", "json", "pil", "jpeg_array", "ndarray",
          "ndarray:float32", "ndarray:int16:2,3", "bytes"})
      all.push_back(dataset::Encoding::parse(name));
    return all;
  }();
  const dataset::Encoding& encoding = encodings[choice % encodings.size()];
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  dataset::check_value(encoding, bytes);
  if (encoding.kind == dataset::Encoding::Kind::array) {
    const dataset::ArrayView array = dataset::decode_array(encoding, bytes);
    for (std::uint64_t i = 0; i < array.size(); ++i) static_cast<void>(array.real(i));
  } else if (encoding.kind == dataset::Encoding::Kind::decimal) {
    static_cast<void>(dataset::decode_real(encoding, bytes));
  }
}

void try_index(std::string_view text) {
  const dataset::Index index = dataset::Index::parse(text, "the input");
  // What was read can be written, and reads the same.
  const std::string written = index.to_json();
  if (dataset::Index::parse(written, "what was written").to_json() != written) std::abort();
}

void try_shard(std::size_t samples, std::string_view text) {
  write("shard", text);
  write(
      "index.json",
      R"({"version": 2, "shards": [{"version": 2, "format": "mds", "column_names": ["a", "b", "c"],
        "column_encodings": ["ndarray", "int", "str"], "column_sizes": [null, 8, 0], "samples": )" +
          std::to_string(samples) +
          R"(, "raw_data": {"basename": "shard", "hashes": {}, "bytes": )" +
          std::to_string(text.size()) + "}}]}");
  const dataset::Reader reader(folder());
  dataset::Sample sample;
  for (std::uint64_t i = 0; i < reader.size(); ++i) {
    reader.read(i, sample);
    for (std::size_t c = 0; c < reader.columns().size(); ++c)
      static_cast<void>(sample.bytes(c).size());
  }
}

void try_csv(std::string_view text) {
  write("t.csv", text);
  dataset::CsvReader csv(folder() / "t.csv", {.max_record_bytes = 1 << 16});
  while (csv.next())
    if (csv.fields().size() != csv.header().size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 4) {
      case 0: try_value(data[0] / 4, text); break;
      case 1: try_index(text); break;
      case 2: try_shard(data[0] / 4, text); break;
      case 3: try_csv(text); break;
    }
  } catch (const hyperframes::Error&) {
    // A clear refusal is what hostile input is to get.
  }
  return 0;
}
