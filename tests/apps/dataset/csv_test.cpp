#include <hyperframes/apps/dataset/csv.hpp>

#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

#include "support.hpp"

using namespace hyperframes::dataset;
using hyperframes::Errc;
using test::require_error;
using test::TemporaryDirectory;
using test::write_file;

namespace {

using Record = std::vector<std::string>;

std::vector<Record> records_of(const std::string& text, CsvOptions options = {}) {
  const TemporaryDirectory directory;
  write_file(directory / "t.csv", text);
  CsvReader csv(directory / "t.csv", options);
  std::vector<Record> records = {csv.header()};
  while (csv.next()) records.push_back(csv.fields());
  CHECK(!csv.next());
  CHECK(csv.bytes_read() == csv.bytes_total());
  return records;
}

void refuse(Errc code, std::string_view part, const std::string& text, CsvOptions options = {}) {
  INFO(text.substr(0, 100));
  require_error(code, part, [&] { records_of(text, options); });
}

}  // namespace

TEST_CASE("CSV records are read in the forms that are found") {
  CHECK(records_of("a,b\n1,2\n3,4\n") == std::vector<Record>{{"a", "b"}, {"1", "2"}, {"3", "4"}});
  CHECK(records_of("a,b\r\n1,2\r\n3,4") == std::vector<Record>{{"a", "b"}, {"1", "2"}, {"3", "4"}});
  CHECK(records_of("\xef\xbb\xbf\"a\",b\n1,2\n") == std::vector<Record>{{"a", "b"}, {"1", "2"}});
  CHECK(records_of("a,b\n,\n\n\r\n\"\",x\n") ==
        std::vector<Record>{{"a", "b"}, {"", ""}, {"", "x"}});
  CHECK(records_of("a\n\nx\n") == std::vector<Record>{{"a"}, {""}, {"x"}});
  CHECK(records_of("a,b") == std::vector<Record>{{"a", "b"}});
  CHECK(records_of("a;b\n1,5;2\n", {.separator = ';'}) ==
        std::vector<Record>{{"a", "b"}, {"1,5", "2"}});
  CHECK(records_of("a\nx\ry\n") == std::vector<Record>{{"a"}, {"x\ry"}});
}

TEST_CASE("quoted CSV fields hold separators, line breaks and quotes") {
  CHECK(records_of("a,b\n\"1,2\",\"line\nbreak\r\n\"\n\"say \"\"hi\"\"\",\"\"\"\"\n") ==
        std::vector<Record>{{"a", "b"}, {"1,2", "line\nbreak\r\n"}, {"say \"hi\"", "\""}});
}

TEST_CASE("a damaged CSV record is refused with its line") {
  refuse(Errc::corrupt, "the file is empty", "");
  refuse(Errc::corrupt, "same name", "a,a\n");
  refuse(Errc::corrupt, "line 3: it has 3 fields and the header 2", "a,b\n1,2\n1,2,3\n");
  refuse(Errc::corrupt, "line 2: it has 1 field and the header 2", "a,b\n1\n");
  refuse(Errc::corrupt, "line 4", "a,b\n\"x\ny\",2\n1\n");
  refuse(Errc::corrupt, "is not closed", "a,b\n1,\"2\n");
  refuse(Errc::corrupt, "follows a closing quote", "a,b\n1,\"2\"3\n");
  refuse(Errc::corrupt, "inside a field without quotes", "a,b\n1,2\"3\"\n");
  refuse(Errc::too_large, "quote that is not closed", "a,b\n1,\"" + std::string(2000, 'x'),
         {.max_record_bytes = 1000});
}

TEST_CASE("a CSV column is found by its name") {
  const TemporaryDirectory directory;
  write_file(directory / "t.csv", "user,movie\n");
  const CsvReader csv(directory / "t.csv");
  CHECK(csv.column("movie") == 1);
  require_error(Errc::not_found, "user, movie", [&] { csv.column("film"); });
  require_error(Errc::not_found, "no such file", [&] { CsvReader(directory / "none.csv"); });
}

TEST_CASE("random CSV records come back as they were, across block boundaries") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  constexpr std::string_view letters = "ab,\"\n\r x";
  std::vector<Record> records = {{"one", "two", "three"}};
  std::string text = "one,two,three\n";
  while (text.size() < 700'000) {
    Record record;
    for (int i = 0; i < 3; ++i) {
      std::string field(random() % 30, ' ');
      for (char& c : field) c = letters[random() % letters.size()];
      text += '"';
      for (const char c : field) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += i == 2 ? "\"\n" : "\",";
      record.push_back(std::move(field));
    }
    records.push_back(std::move(record));
  }
  CHECK((records_of(text) == records));
}
