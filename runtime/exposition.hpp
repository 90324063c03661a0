// Metrics as text that Prometheus reads.
//
//   hf::Exposition page;
//   page.add(shard.metrics(), {{"shard", "0"}});
//   page.gauge("queue_messages", "Messages that wait", {{"queue", name}}, queue.size());
//   std::string text = page.text();                       // Content-Type: hf::Exposition::type
//
// Samples of one name are printed together, under one HELP and one TYPE line, whatever order they
// come in. Names and labels may be any text: what the format does not allow is replaced or escaped.
#pragma once

#include <cstdint>
#include <deque>
#include <hyperframes/runtime/metrics.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hyperframes {

/// On one thread at a time; nothing of it belongs to a shard.
class Exposition {
 public:
  static constexpr const char* type = "text/plain; version=0.0.4; charset=utf-8";
  using Labels = std::vector<std::pair<std::string, std::string>>;

  /// For what only grows: its name ends in "_total".
  void counter(std::string_view name, std::string_view help, const Labels& labels, double value);
  void gauge(std::string_view name, std::string_view help, const Labels& labels, double value);
  /// Buckets up to the largest value that was seen.
  void histogram(std::string_view name, std::string_view help, const Labels& labels,
                 const Histogram& values);
  /// All that a shard counts. Times come out in seconds: "_ns" becomes "_seconds".
  void add(const Metrics& metrics, const Labels& labels);

  std::string text() const;

 private:
  struct Family {
    std::string name, help, type, samples;
  };
  Family& family(std::string_view name, std::string_view help, const char* type);
  void sample(Family& family, std::string_view suffix, const Labels& labels, double value);
  void fill(Family& family, const Labels& labels, const Histogram& values, double unit);

  std::deque<Family> families_;
};

/// `text` with each byte that belongs to no UTF-8 character replaced by U+FFFD.
std::string valid_utf8(std::string_view text);

}  // namespace hyperframes
