// The other end of a measurement: this program again, in a process of its own.
//
//   OtherEnd other({"zmq", "tcp"});             // runs the role of that name
//   std::string address = other.hear();         // the first that it says
//   double used = other.cpu_seconds();          // of its processor, so far
//
// It ends when the object does, however this process ends.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace hyperframes::bench {

class OtherEnd {
 public:
  explicit OtherEnd(const std::vector<std::string>& role);
  ~OtherEnd();
  OtherEnd(const OtherEnd&) = delete;
  OtherEnd& operator=(const OtherEnd&) = delete;

  /// A line. Throws std::runtime_error if it has ended instead.
  std::string hear();
  void say(const std::string& line);
  double cpu_seconds();

 private:
  pid_t process_ = -1;
  std::FILE *to_ = nullptr, *from_ = nullptr;
};

/// What a role has of the process that started it.
class Starter {
 public:
  std::string hear();
  void say(const std::string& line);
  /// From now on its questions are answered on a thread of their own, and this process ends when it
  /// does.
  void attend();
};

/// If this program was started as an other end: runs that role, and returns the status to end with.
std::optional<int> run_other_end(int argc, char** argv);

}  // namespace hyperframes::bench
