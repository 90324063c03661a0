#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "layout_rules.hpp"

namespace fs = std::filesystem;
using hyperframes::layout::check_layout;
using hyperframes::layout::describe;
using hyperframes::layout::Violation;

namespace {

const std::string opening = "// What it is for.\n#pragma once\n";

// Written from pieces, for the rules read this file too.
std::string include(const std::string& name) { return "#include <" + name + ">\n"; }

// A tree of planted files, removed at the end of the test.
class PlantedTree {
 public:
  PlantedTree() {
    std::string name = (fs::temp_directory_path() / "hyperframes-layout-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
  }
  ~PlantedTree() { fs::remove_all(root_); }
  PlantedTree(const PlantedTree&) = delete;
  PlantedTree& operator=(const PlantedTree&) = delete;

  PlantedTree& plant(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }

  std::vector<Violation> check() const { return check_layout(root_); }

 private:
  fs::path root_;
};

// Exactly one violation, in that file and line, whose text contains `what`.
void require_one(const std::vector<Violation>& found, const std::string& file, std::size_t line,
                 const std::string& what) {
  for (const Violation& violation : found) UNSCOPED_INFO(describe(violation));
  REQUIRE(found.size() == 1);
  CHECK(found[0].file == file);
  CHECK(found[0].line == line);
  CHECK(found[0].what.find(what) != std::string::npos);
}

std::string read_file(const fs::path& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

// Those that are installed: outside detail/, and declaring something outside a namespace detail.
// The generator's are nobody's to include, and what takes CLI11's types is for this tree's
// programs.
std::set<std::string> public_headers(const fs::path& root) {
  static const std::regex opened("(^|\n)namespace (hyperframes[a-z:]*) \\{");
  std::set<std::string> found;
  for (const char* layer : {"runtime", "net", "gpu", "actors", "apps/dataset", "apps/ps"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / layer)) {
      const std::string path = entry.path().lexically_relative(root).generic_string();
      if (!path.ends_with(".hpp") || path.find("/detail/") != std::string::npos) continue;
      if (path.starts_with("actors/protocol/") || path == "apps/ps/command_line.hpp") continue;
      const std::string text = read_file(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), opened), end; it != end; ++it)
        if (!(*it)[2].str().ends_with("detail")) found.insert(path);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("the tree keeps its layout rules") {
  const std::vector<Violation> found = check_layout(HYPERFRAMES_SOURCE_DIR);
  for (const Violation& violation : found) UNSCOPED_INFO(describe(violation));
  CHECK(found.empty());
}

TEST_CASE("a tree that keeps every rule has no violation") {
  PlantedTree tree;
  tree.plant("runtime/task.hpp", opening + include("vector"))
      .plant("runtime/reactor/uring.cpp", include("liburing.h"))
      .plant("runtime/reactor/asio.cpp", include("asio.hpp"))
      .plant("runtime/asio.hpp", opening + include("asio/io_context.hpp"))
      .plant("actors/asio.hpp", opening + include("hyperframes/runtime/asio.hpp"))
      .plant("examples/asio_http/main.cpp",
             include("asio.hpp") + include("hyperframes/actors/asio.hpp"))
      .plant("net/rdma/device.cpp", include("infiniband/verbs.h"))
      .plant("gpu/stream.cpp", include("cuda_runtime.h"))
      .plant("net/session.cpp", include("hyperframes/runtime/task.hpp") + include("fmt/format.h"))
      .plant("tests/net/session_test.cpp", include("hyperframes/runtime/task.hpp"))
      .plant(".git",
             "gitdir: /ho"
             "me/someone/hyperframes\n");
  const std::vector<Violation> found = tree.check();
  for (const Violation& violation : found) UNSCOPED_INFO(describe(violation));
  CHECK(found.empty());
}

TEST_CASE("a layer that includes one above it is found") {
  PlantedTree tree;
  tree.plant("actors/node.hpp", opening);
  SECTION("runtime") {
    tree.plant("runtime/task.cpp", "\n" + include("hyperframes/actors/node.hpp"));
    require_one(tree.check(), "runtime/task.cpp", 2, "'runtime' may not include actors/node.hpp");
  }
  SECTION("net") {
    tree.plant("net/session.cpp", include("hyperframes/actors/node.hpp"));
    require_one(tree.check(), "net/session.cpp", 1, "'net' may not include actors/node.hpp");
  }
  SECTION("gpu sees the runtime only") {
    tree.plant("gpu/stream.cpp", include("hyperframes/actors/node.hpp"));
    require_one(tree.check(), "gpu/stream.cpp", 1, "'gpu' may not include actors/node.hpp");
  }
  SECTION("a layer's tests see what it sees") {
    tree.plant("tests/net/session_test.cpp", include("hyperframes/actors/node.hpp"));
    require_one(tree.check(), "tests/net/session_test.cpp", 1, "may not include");
  }
}

TEST_CASE("a fenced library outside its folder is found") {
  PlantedTree tree;
  SECTION("liburing") {
    tree.plant("runtime/file.cpp", include("liburing.h"));
    require_one(tree.check(), "runtime/file.cpp", 1, "liburing");
  }
  SECTION("asio") {
    tree.plant("net/tcp/link.cpp", include("asio/ip/tcp.hpp"));
    require_one(tree.check(), "net/tcp/link.cpp", 1, "asio");
  }
  SECTION("verbs") {
    tree.plant("net/session.cpp", include("rdma/rdma_cma.h"));
    require_one(tree.check(), "net/session.cpp", 1, "verbs");
  }
  SECTION("CUDA") {
    tree.plant("net/session.cpp", include("cuda.h"));
    require_one(tree.check(), "net/session.cpp", 1, "CUDA");
  }
  SECTION("through a private header of its folder") {
    tree.plant("runtime/reactor/uring_ring.hpp", opening + include("liburing.h"))
        .plant("runtime/detail/ring.hpp",
               opening + include("hyperframes/runtime/reactor/uring_ring.hpp"))
        .plant("runtime/detail/other.hpp", opening + include("vector"))
        .plant("net/session.cpp", include("hyperframes/runtime/detail/other.hpp") +
                                      include("hyperframes/runtime/detail/ring.hpp"));
    const std::vector<Violation> found = tree.check();
    REQUIRE(found.size() == 2);
    CHECK(found[0].file == "net/session.cpp");
    CHECK(found[0].line == 2);
    CHECK(found[0].what.ends_with(
        "through runtime/detail/ring.hpp through runtime/reactor/uring_ring.hpp"));
    CHECK(found[1].file == "runtime/detail/ring.hpp");
  }
}

TEST_CASE("a third-party type in a public header is found") {
  PlantedTree tree;
  SECTION("directly") {
    tree.plant("runtime/log.hpp", opening + include("string") + include("spdlog/spdlog.h"));
    require_one(tree.check(), "runtime/log.hpp", 4, "spdlog/spdlog.h");
  }
  SECTION("of asio, outside the adapter") {
    tree.plant("runtime/reactor/asio.hpp", opening + include("asio/io_context.hpp"));
    require_one(tree.check(), "runtime/reactor/asio.hpp", 3, "asio/io_context.hpp");
  }
  SECTION("but a generated protocol is none") {
    tree.plant("apps/ps/client.hpp", opening + include("ps.fbs.hpp"));
    CHECK(tree.check().empty());
  }
  SECTION("through a private header") {
    tree.plant("runtime/detail/log.hpp", opening + include("fmt/format.h"))
        .plant("runtime/log.hpp", opening + include("hyperframes/runtime/detail/log.hpp"));
    require_one(tree.check(), "runtime/log.hpp", 3, "through runtime/detail/log.hpp");
  }
}

TEST_CASE("a header that begins or is included wrongly is found") {
  PlantedTree tree;
  SECTION("without a comment") {
    tree.plant("runtime/task.hpp", "\n#pragma once\n");
    require_one(tree.check(), "runtime/task.hpp", 1, "opens with a comment");
  }
  SECTION("without a guard") {
    tree.plant("runtime/task.hpp", "// What it is for.\n");
    require_one(tree.check(), "runtime/task.hpp", 0, "#pragma once");
  }
  SECTION("by a quoted path") {
    tree.plant("runtime/task.hpp", opening).plant("runtime/scope.cpp", "#include \"task.hpp\"\n");
    require_one(tree.check(), "runtime/scope.cpp", 1, "<hyperframes/runtime/task.hpp>");
  }
  SECTION("by a path that is not there") {
    tree.plant("runtime/scope.cpp", include("hyperframes/runtime/tasks.hpp"));
    require_one(tree.check(), "runtime/scope.cpp", 1, "there is no runtime/tasks.hpp");
  }
  SECTION("in a circle") {
    tree.plant("runtime/a.hpp", opening + include("hyperframes/runtime/b.hpp"))
        .plant("runtime/b.hpp", opening + include("hyperframes/runtime/a.hpp"));
    require_one(tree.check(), "runtime/b.hpp", 3, "include cycle through runtime/a.hpp");
  }
  SECTION("under a name in capitals") {
    tree.plant("runtime/Task.hpp", opening);
    require_one(tree.check(), "runtime/Task.hpp", 0, "snake_case");
  }
}

TEST_CASE("text that must stand nowhere in the tree is found") {
  PlantedTree tree;
  SECTION("a path of one machine") {
    tree.plant("docs/tour.md",
               "Run it\nin '/ho"
               "me/someone/hyperframes'.\n");
    require_one(tree.check(), "docs/tour.md", 2, "path of one machine");
  }
  SECTION("a registry's host") {
    tree.plant("dev",
               "mirror=http://deb.debian"
               ".org/debian\n");
    require_one(tree.check(), "dev", 1, "host of a package registry");
  }
  SECTION("a mark of unfinished work") {
    tree.plant("net/session.cpp",
               "int x;  // TO"
               "DO: resume\n");
    require_one(tree.check(), "net/session.cpp", 1, "unfinished work");
  }
}

TEST_CASE("a coroutine that outlives what it captured is found") {
  PlantedTree tree;
  const std::string lambda = "[this, name]() -> hf::Task<void> { co_await save(name); }";
  SECTION("called where it stands") {
    tree.plant("net/session.cpp", "\nTask<void> f() {\n  co_await " + lambda + "();\n}\n");
    require_one(tree.check(), "net/session.cpp", 3, "give it to co_invoke");
  }
  SECTION("given to a function that does not keep it") {
    tree.plant("net/session.cpp", "auto task = with_deadline(" + lambda + "(), 5s);\n");
    require_one(tree.check(), "net/session.cpp", 1, "give it to co_invoke");
  }
  SECTION("but not when co_invoke keeps it, when it has a name, or in a comment") {
    tree.plant("net/session.cpp", "auto a = co_invoke(" + lambda + ");\n" +  //
                                      "auto b = call_on(shard(0), " + lambda + ");\n" +
                                      "auto c = " + lambda + ";\n" +  //
                                      "auto d = node.spawn<Scripted>({}, " + lambda + ");\n" +
                                      "// f(" + lambda + ");\n");
    CHECK(tree.check().empty());
  }
}

TEST_CASE("a structured binding straight from co_await is found") {
  PlantedTree tree;
  tree.plant("net/session.cpp", "Task<void> f() {\n  auto [a, b] = co_await both();\n}\n");
  require_one(tree.check(), "net/session.cpp", 2, "structured binding");
}

TEST_CASE("an include inside a comment or a string is text") {
  PlantedTree tree;
  tree.plant("actors/generator.cpp", "auto text = R\"x(\n" + include("liburing.h") + ")x\";\n/*\n" +
                                         include("asio.hpp") + "*/ char quote = '\"';\n" +
                                         include("cuda.h"));
  require_one(tree.check(), "actors/generator.cpp", 7, "CUDA");
}

TEST_CASE("every ./dev command in the README is one that ./dev explains") {
  const fs::path root = HYPERFRAMES_SOURCE_DIR;
  const std::string readme = read_file(root / "README.md");
  const std::string script = read_file(root / "dev");
  const std::regex command(R"(\./dev ([a-z]+)( --[a-z]+)?)");
  std::size_t count = 0;
  for (std::sregex_iterator it(readme.begin(), readme.end(), command), end; it != end; ++it) {
    ++count;
    INFO(it->str());
    CHECK(std::regex_search(script, std::regex("\n  " + (*it)[1].str() + " ")));
    if ((*it)[2].matched) CHECK(script.find((*it)[2].str().substr(1)) != std::string::npos);
  }
  CHECK(count > 0);
}

TEST_CASE("the page of public headers lists each of them, and no other") {
  const fs::path root = HYPERFRAMES_SOURCE_DIR;
  const std::string page = read_file(root / "docs/reference/headers.md");
  const std::regex row(R"(\n\| `([a-z0-9_/]+\.hpp)`)");
  std::set<std::string> listed;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it) {
    INFO((*it)[1].str() << " is listed twice");
    CHECK(listed.insert((*it)[1].str()).second);
  }
  CHECK(listed == public_headers(root));
}

TEST_CASE("every public header opens with an example") {
  const fs::path root = HYPERFRAMES_SOURCE_DIR;
  for (const std::string& path : public_headers(root)) {
    const std::string text = read_file(root / path);
    INFO(path);
    CHECK(text.substr(0, text.find("#pragma once")).find("\n//   ") != std::string::npos);
  }
}

TEST_CASE("no public header declares what another library has") {
  const fs::path root = HYPERFRAMES_SOURCE_DIR;
  const std::regex foreign(
      "(^|\n)namespace (CLI|YAML|Eigen|asio|boost|fmt|httplib|nlohmann|spdlog)[ :]");
  for (const std::string& path : public_headers(root)) {
    INFO(path);
    CHECK(!std::regex_search(read_file(root / path), foreign));
  }
}

TEST_CASE("CI runs the README's test command") {
  const fs::path root = HYPERFRAMES_SOURCE_DIR;
  CHECK(read_file(root / "README.md").find("./dev test") != std::string::npos);
  CHECK(read_file(root / ".ci" / "run").find("exec ./dev test <") != std::string::npos);
}
