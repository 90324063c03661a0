// Runs FlatBuffers' compiler.
//
//   Flatc flatc("flatc");                       // looked for in PATH; throws if it is another
//   version flatc.run({"--cpp", "-o", "out", "x.fbs"});  // throws if it fails; what it says goes
//   to ours
#pragma once

#include <string>
#include <vector>

namespace hyperframes::protocol {

class Flatc {
 public:
  /// Throws SchemaError if there is no such program, or if its version is not the one of the
  /// FlatBuffers headers that this program was built with: their code would not fit together.
  explicit Flatc(std::string program);
  void run(const std::vector<std::string>& arguments) const;

 private:
  std::string program_;
};

}  // namespace hyperframes::protocol
