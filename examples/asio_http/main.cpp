// An HTTP server on asio whose handlers ask actors:
//
//   example_asio_http 8080 2    # port, threads of the io_context
//   curl -X POST http://127.0.0.1:8080/visits/home   # one more visit
//   curl http://127.0.0.1:8080/visits/home           # how many there were
//
// Sockets, timers and signals are asio's, as in any asio server; the counts are kept by actors, one
// a shard, so that no handler needs a lock. All of it runs on the threads of one io_context.

#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/read_until.hpp>
#include <asio/redirect_error.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/write.hpp>
#include <charconv>
#include <hyperframes/actors/asio.hpp>
#include <hyperframes/actors/node.hpp>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "visits.fbs.hpp"

namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;

constexpr std::size_t most_header_bytes = 8 << 10, most_body_bytes = 64 << 10;

class PagesActor final : public visits::Pages::Actor {
  hf::Task<void> add(visits::Visit visit, hf::Reply<visits::Count> reply) override {
    reply.send({.value = ++counts_[std::string(visit.page())]});
    co_return;
  }
  hf::Task<void> read(visits::Visit visit, hf::Reply<visits::Count> reply) override {
    const auto found = counts_.find(std::string(visit.page()));
    reply.send({.value = found == counts_.end() ? 0 : found->second});
    co_return;
  }
  std::map<std::string, std::uint64_t> counts_;
};

// ---- A little HTTP

struct Request {
  std::string method, path;
  std::size_t body_bytes = 0;
  bool well_formed = false, keep_open = true;
};

struct Response {
  std::string status = "200 OK", body;
};

std::string lower(std::string_view text) {
  std::string all(text);
  for (char& c : all)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return all;
}

void read_header(std::string_view line, Request& request) {
  const auto colon = line.find(':');
  if (colon == std::string_view::npos) return;
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  const std::string name = lower(line.substr(0, colon));
  if (name == "connection") request.keep_open = lower(value) != "close";
  if (name == "transfer-encoding") request.well_formed = false;  // none is understood here
  if (name != "content-length") return;
  const auto parsed =
      std::from_chars(value.data(), value.data() + value.size(), request.body_bytes);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size())
    request.well_formed = false;
}

/// `head`: the request line and the headers.
Request parse(std::string_view head) {
  Request request;
  const std::string_view first = head.substr(0, head.find("\r\n"));
  const auto space = first.find(' '), last = first.rfind(' ');
  request.well_formed = space != last && first.substr(last + 1).starts_with("HTTP/1.");
  if (!request.well_formed) return request;
  request.method = first.substr(0, space);
  request.path = first.substr(space + 1, last - space - 1);
  request.keep_open = !first.ends_with("HTTP/1.0");
  for (auto at = first.size() + 2; at < head.size();) {
    const auto end = head.find("\r\n", at);
    read_header(head.substr(at, end - at), request);
    at = end == std::string_view::npos ? head.size() : end + 2;
  }
  return request;
}

std::string to_text(const Response& response, bool keep_open) {
  return "HTTP/1.1 " + response.status + "\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(response.body.size()) +
         "\r\nConnection: " + (keep_open ? "keep-alive" : "close") + "\r\n\r\n" + response.body;
}

// ---- The server

/// What a handler needs; lives as long as the server.
struct Service {
  hf::Node& node;
  std::vector<visits::PagesRef> pages;  ///< An actor on each shard.

  const visits::PagesRef& responsible_for(const std::string& page) const {
    return pages[std::hash<std::string>()(page) % pages.size()];
  }
};

bool is_page(std::string_view name) {
  return !name.empty() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == std::string_view::npos;
}

asio::awaitable<Response> answer(const Request& request, const Service& service) {
  constexpr std::string_view prefix = "/visits/";
  if (!request.well_formed) co_return Response{"400 Bad Request", {}};
  if (!request.path.starts_with(prefix) || !is_page(request.path.substr(prefix.size())))
    co_return Response{"404 Not Found", {}};
  if (request.method != "GET" && request.method != "POST")
    co_return Response{"405 Method Not Allowed", {}};
  const std::string page = request.path.substr(prefix.size());
  const visits::PagesRef& actor = service.responsible_for(page);
  const visits::Visit visit({.page = page});
  const auto executor = co_await asio::this_coro::executor;
  try {
    const hf::Within limit = hf::within(2s);
    visits::Count count;
    if (request.method == "POST") {
      count = co_await hf::async_ask(executor, actor.add(visit, limit), asio::use_awaitable);
    } else {
      count = co_await hf::async_ask(executor, actor.read(visit, limit), asio::use_awaitable);
    }
    co_return Response{
        "200 OK", "{\"page\":\"" + page + "\",\"visits\":" + std::to_string(count.value()) + "}\n"};
  } catch (const hf::Error& error) {
    std::cerr << request.path << ": " << error.what() << '\n';
    co_return Response{"503 Service Unavailable", {}};
  }
}

/// One connection, request by request.
asio::awaitable<void> converse(tcp::socket& socket, const Service& service) {
  std::string data;
  for (bool open = true; open;) {
    const std::size_t head = co_await asio::async_read_until(
        socket, asio::dynamic_buffer(data, most_header_bytes), "\r\n\r\n", asio::use_awaitable);
    const Request request = parse(std::string_view(data).substr(0, head));
    data.erase(0, head);
    open = request.well_formed && request.keep_open && request.body_bytes <= most_body_bytes;
    if (open && data.size() < request.body_bytes)
      co_await asio::async_read(socket, asio::dynamic_buffer(data),
                                asio::transfer_exactly(request.body_bytes - data.size()),
                                asio::use_awaitable);
    data.erase(0, std::min(data.size(), request.body_bytes));
    const Response response = co_await answer(request, service);
    co_await asio::async_write(socket, asio::buffer(to_text(response, open)), asio::use_awaitable);
  }
}

asio::awaitable<void> serve(tcp::socket socket, const Service& service) {
  try {
    socket.set_option(tcp::no_delay(true));
    co_await converse(socket, service);
  } catch (const std::system_error&) {
    // The peer has gone, or sent a head without an end: nothing is left to say to it.
  }
}

asio::awaitable<void> accept(tcp::acceptor& acceptor, const Service& service) {
  asio::steady_timer pause(acceptor.get_executor());
  while (acceptor.is_open()) {
    asio::error_code failure;
    // A strand each, since the io_context may have several threads.
    tcp::socket socket =
        co_await acceptor.async_accept(asio::make_strand(acceptor.get_executor()),
                                       asio::redirect_error(asio::use_awaitable, failure));
    if (failure) {  // too many open files, say: trying at once would only spin
      pause.expires_after(100ms);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, failure));
      continue;
    }
    const auto executor = socket.get_executor();
    asio::co_spawn(executor, serve(std::move(socket), service), asio::detached);
  }
}

/// Starts the actors, serves until a signal comes, and stops in order. No thread ever blocks.
asio::awaitable<void> run(asio::io_context& context, hf::AsioRuntime& embedded, Service& service,
                          std::uint16_t port) {
  const auto executor = context.get_executor();
  hf::Node& node = service.node;
  for (unsigned shard = 0; shard < embedded.runtime().shard_count(); ++shard) {
    const auto spawn = [&node, shard] {
      return node.spawn<PagesActor>(
          hf::SpawnOptions{.name = "pages-" + std::to_string(shard), .shard = shard});
    };
    const visits::PagesRef pages =
        co_await hf::async_run(executor, embedded.shard(shard), spawn, asio::use_awaitable);
    service.pages.push_back(pages);
  }
  tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), port});
  std::cout << "listening on http://127.0.0.1:" << acceptor.local_endpoint().port() << std::endl;
  asio::co_spawn(executor, accept(acceptor, service), asio::detached);

  asio::signal_set signals(context, SIGINT, SIGTERM);
  co_await signals.async_wait(asio::use_awaitable);
  acceptor.close();
  const auto close = [&node] { return node.close(2s); };
  co_await hf::async_run(executor, embedded.shard(0), close, asio::use_awaitable);
  co_await embedded.async_stop(5s, asio::use_awaitable);
  context.stop();  // and with it the connections that are still open
}

int usage(bool asked) {
  (asked ? std::cout : std::cerr) << "usage: example_asio_http [PORT [THREADS]]\n";
  return asked ? 0 : 2;
}

bool read_number(std::string_view text, unsigned most, unsigned& into) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), into);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && into <= most;
}

}  // namespace

int main(int argument_count, char** arguments) {
  const std::string first = argument_count > 1 ? arguments[1] : "";
  if (first == "--help" || first == "-h") return usage(true);
  unsigned port = 8080, threads = 1;
  if (argument_count > 3 || (argument_count > 1 && !read_number(first, 65535, port)) ||
      (argument_count > 2 && (!read_number(arguments[2], 256, threads) || threads == 0)))
    return usage(false);

  try {
    asio::io_context context;
    hf::AsioRuntime embedded(context, {.shards = threads});  // a shard for each thread
    hf::Node node(embedded.runtime(), {.name = "visits"});
    Service service{node, {}};
    int status = 0;
    asio::co_spawn(context, run(context, embedded, service, static_cast<std::uint16_t>(port)),
                   [&](std::exception_ptr failure) {
                     if (!failure) return;
                     status = 1;
                     context.stop();
                     try {
                       std::rethrow_exception(failure);
                     } catch (const std::exception& error) {
                       std::cerr << error.what() << '\n';
                     }
                   });
    std::vector<std::thread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back([&] { context.run(); });
    context.run();
    for (auto& thread : others) thread.join();
    return status;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
