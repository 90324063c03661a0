// What is logged while a test looks.
#pragma once

#include <hyperframes/runtime/log.hpp>
#include <mutex>
#include <string>

namespace hyperframes::test {

/// What was logged while this lived, by any thread.
class CapturedLog {
 public:
  CapturedLog() {
    log::set_sink([this](log::Level, std::string_view text) {
      std::scoped_lock lock(mutex_);
      text_ += std::string(text) + "\n";
    });
  }
  CapturedLog(const CapturedLog&) = delete;
  ~CapturedLog() { log::set_sink({}); }
  std::string text() {
    std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

}  // namespace hyperframes::test
