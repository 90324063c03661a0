// Runs FlatBuffers' compiler.
//
//   Flatc flatc("flatc");                       // looked for in PATH; throws if it is another
//                                               // version
//   flatc.run({"--cpp", "-o", "out", "x.fbs"}, translate);  // throws if it fails; what it says
//                                                           // goes to standard error
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace hyperframes::protocol {

class Flatc {
 public:
  /// Throws SchemaError if there is no such program, or if its version is not the one of the
  /// FlatBuffers headers that this program was built with: their code would not fit together.
  explicit Flatc(std::string program);
  /// `in_words_of_ours` turns what it says into what is passed on.
  void run(const std::vector<std::string>& arguments,
           const std::function<std::string(std::string)>& in_words_of_ours) const;

 private:
  std::string program_;
};

}  // namespace hyperframes::protocol
