#include <hyperframes/apps/tools/perf/result.hpp>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <fstream>
#include <hyperframes/runtime/error.hpp>
#include <nlohmann/json.hpp>
#include <thread>

namespace hyperframes::tools::perf {
namespace {

using Json = nlohmann::ordered_json;

constexpr int format = 1;

Error corrupt(const std::string& where, std::string found) {
  return Error(Errc::corrupt, "read " + where, std::move(found),
               "repair or remove it: each run is one JSON object that this tool has written");
}

template <class Half, class Value>
Json known(const std::optional<Half>& half, Value Half::* member) {
  return half ? Json((*half).*member) : Json(nullptr);
}

Json row_object(const Row& row) {
  return {{"transport", row.transport},
          {"size", row.size},
          {"rtt_p50_us", known(row.round_trips, &RoundTrips::p50_us)},
          {"rtt_p99_us", known(row.round_trips, &RoundTrips::p99_us)},
          {"msgs_per_s", known(row.stream, &Stream::messages_per_s)},
          {"gb_per_s", known(row.stream, &Stream::gb_per_s)},
          {"cpu_s_per_gb", known(row.stream, &Stream::cpu_s_per_gb)},
          {"cpu_s_per_mmsg", known(row.stream, &Stream::cpu_s_per_mmsg)},
          {"verified", row.verified},
          {"wrong", row.wrong}};
}

Json detail_object(const Row& row) {
  return {{"self_loop", row.self_loop},
          {"round_trips", known(row.round_trips, &RoundTrips::count)},
          {"rtt_p999_us", known(row.round_trips, &RoundTrips::p999_us)},
          {"rtt_max_us", known(row.round_trips, &RoundTrips::max_us)},
          {"messages", known(row.stream, &Stream::count)},
          {"check_s_per_gb", known(row.stream, &Stream::check_s_per_gb)}};
}

Json to_object(const Run& run) {
  Json rows = Json::array(), details = Json::array();
  for (const Row& row : run.rows) {
    rows.push_back(row_object(row));
    details.push_back(detail_object(row));
  }
  return {{"format", format},           {"time", run.time},
          {"version", run.version},     {"uri", run.uri},
          {"host", run.host},           {"peer_host", run.peer_host},
          {"processor", run.processor}, {"cores", run.cores},
          {"kernel", run.kernel},       {"seconds", run.seconds},
          {"polling", run.polling},     {"partial", run.partial()},
          {"error", run.error},         {"problem", run.problem},
          {"rows", std::move(rows)},    {"details", std::move(details)}};
}

std::optional<RoundTrips> round_trips_of(const Json& object, const Json& detail) {
  if (object.at("rtt_p50_us").is_null()) return std::nullopt;
  return RoundTrips{object.at("rtt_p50_us"), object.at("rtt_p99_us"), detail.at("rtt_p999_us"),
                    detail.at("rtt_max_us"), detail.at("round_trips")};
}

std::optional<Stream> stream_of(const Json& object, const Json& detail) {
  if (object.at("msgs_per_s").is_null()) return std::nullopt;
  return Stream{object.at("msgs_per_s"),     object.at("gb_per_s"),       object.at("cpu_s_per_gb"),
                object.at("cpu_s_per_mmsg"), detail.at("check_s_per_gb"), detail.at("messages")};
}

Row row_of(const Json& object, const Json& detail) {
  Row row;
  object.at("transport").get_to(row.transport);
  detail.at("self_loop").get_to(row.self_loop);
  object.at("size").get_to(row.size);
  object.at("verified").get_to(row.verified);
  object.at("wrong").get_to(row.wrong);
  row.round_trips = round_trips_of(object, detail);
  row.stream = stream_of(object, detail);
  return row;
}

Run run_of(const Json& object) {
  Run run;
  object.at("time").get_to(run.time);
  object.at("version").get_to(run.version);
  object.at("uri").get_to(run.uri);
  object.at("host").get_to(run.host);
  object.at("peer_host").get_to(run.peer_host);
  object.at("processor").get_to(run.processor);
  object.at("cores").get_to(run.cores);
  object.at("kernel").get_to(run.kernel);
  object.at("seconds").get_to(run.seconds);
  object.at("polling").get_to(run.polling);
  object.at("error").get_to(run.error);
  object.at("problem").get_to(run.problem);
  const Json& rows = object.at("rows");
  for (std::size_t i = 0; i < rows.size(); ++i)
    run.rows.push_back(row_of(rows.at(i), object.at("details").at(i)));
  return run;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

/// Throws for a stream that is not good.
void require(const std::ios& file, const std::string& tried) {
  if (!file)
    throw Error::system(errno, tried, {}, "check the folder, its permissions and the disk");
}

bool ends_in_newline(int file) {
  struct stat status{};
  if (::fstat(file, &status) != 0 || status.st_size == 0) return true;
  char last = 0;
  return ::pread(file, &last, 1, status.st_size - 1) == 1 && last == '\n';
}

}  // namespace

std::uint64_t Run::wrong() const noexcept {
  std::uint64_t sum = 0;
  for (const Row& row : rows) sum += row.wrong;
  return sum;
}

std::uint64_t Run::verified() const noexcept {
  std::uint64_t sum = 0;
  for (const Row& row : rows) sum += row.verified;
  return sum;
}

Run describe_this_host() {
  utsname system{};
  ::uname(&system);
  Run run;
  run.time = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  run.version = HYPERFRAMES_VERSION;
  run.host = system.nodename;
  run.kernel = system.release;
  run.processor = processor();
  run.cores = std::thread::hardware_concurrency();
  return run;
}

std::string to_json(const Run& run, bool indented) {
  // A peer's host name may hold bytes that are no UTF-8.
  return to_object(run).dump(indented ? 2 : -1, ' ', false, Json::error_handler_t::replace);
}

Run read_run(std::string_view json, const std::string& where) {
  try {
    const Json object = Json::parse(json);
    if (const int found = object.at("format"); found != format)
      throw Error(Errc::version_mismatch, "read " + where,
                  fmt::format("its format is {}, and this is a tool for {}", found, format),
                  "use the release that wrote it, or another file");
    return run_of(object);
  } catch (const nlohmann::json::exception& error) {
    throw corrupt(where, std::string("it is no run: ") + error.what());
  }
}

void write_json(const std::string& path, const Run& run) {
  std::ofstream file(path, std::ios::trunc);
  require(file, "write " + path);
  file << to_json(run, true) << '\n';
  file.close();
  require(file, "write " + path);
}

std::vector<Run> read_history(const std::string& path) {
  if (struct stat status{}; ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error(Errc::invalid_argument, "read the history " + path, "it is no regular file",
                "name a file, or one that is not there yet");
  std::ifstream file(path);
  if (!file && errno == ENOENT) return {};
  require(file, "read the history " + path);
  std::vector<Run> runs;
  std::string line;
  for (std::size_t number = 1; std::getline(file, line); ++number)
    if (!line.empty())
      runs.push_back(read_run(line, fmt::format("line {} of the history {}", number, path)));
  if (file.bad()) throw Error::system(errno, "read the history " + path);
  return runs;
}

void append_history(const std::string& path, const Run& run) {
  const std::string tried = "append to the history " + path;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) throw Error::system(errno, tried, {}, "check the folder and its permissions");
  // One write, so that two who append at the same time do not mix their lines.
  const std::string line = (ends_in_newline(file) ? "" : "\n") + to_json(run) + "\n";
  const ssize_t written = ::write(file, line.data(), line.size());
  const int failure = written < 0                                   ? errno
                      : written < static_cast<ssize_t>(line.size()) ? ENOSPC
                                                                    : 0;
  ::close(file);
  if (failure != 0) throw Error::system(failure, tried, {}, "check the disk, and the last line");
}

}  // namespace hyperframes::tools::perf
