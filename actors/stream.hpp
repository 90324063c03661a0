// Streams: methods whose request, answer, or both are any number of messages.
//
//   hf::StreamReader<demo::Update> updates = co_await watcher.watch({.from = 3});     // "server"
//   while (auto update = co_await updates.read()) show(*update);     // throws if it failed
//   // the handler:  co_await updates.write({.key = 1});  ...  updates.finish();
//
// In a schema, `streaming: "server"` gives the handler a StreamWriter in place of a Reply,
// "client" a StreamReader in place of the request and a StreamReply, "bidi" a reader and a writer:
//
//   Watch(Query):Update (streaming: "server", interleaved);
//   Load(Chunk):Summary (streaming: "client", interleaved);
//   Talk(Line):Line     (streaming: "bidi", interleaved);
//
// The handler's actor takes no other letter before the handler has ended, unless the method is
// `interleaved`; or the handler moves its ends elsewhere (Actor::start, a member) and returns.
//
// What was written and not read yet is bounded by the reader's window: then `write` suspends,
// until its deadline (5 s from now unless it is told another one). It holds up nobody else.
//
// Either end may end it: a writer with `finish()` or `fail(error)`, after which what was written
// is still read; a reader with `cancel()`. Dropping an end is giving up: the other one gets
// Errc::cancelled, or, when a handler or an actor ended with an error, that. When the other
// process is lost, both get peer_lost; at the stream's deadline, deadline_exceeded.
//
// Ends belong to the shard they were made on. They may be moved, and dropped in any state, also
// while a coroutine waits on them: that one then throws Errc::cancelled.
#pragma once

#include <concepts>
#include <cstring>
#include <hyperframes/actors/detail/method.hpp>
#include <hyperframes/actors/detail/send_waiter.hpp>
#include <hyperframes/actors/detail/stream_end.hpp>
#include <hyperframes/actors/detail/streaming.hpp>
#include <hyperframes/actors/within.hpp>
#include <hyperframes/runtime/task.hpp>
#include <memory>
#include <optional>
#include <utility>

namespace hyperframes {

/// How a stream is opened.
struct StreamOptions {
  Within within{};              ///< Until its handler has begun.
  Time deadline = no_deadline;  ///< Until it has ended, as a whole: its ends fail then.
  StreamWindow window{};        ///< What may be on its way to the caller.
};

namespace detail {

template <class Message>
const StreamElement& element_of() noexcept {
  static constexpr StreamElement element{Message::type_name, [](Buffer bytes) -> Result<Buffer> {
                                           if constexpr (Message::is_struct) {
                                             auto message = from_bytes<Message>(bytes);
                                             if (!message) return message.error();
                                             return bytes;
                                           } else {
                                             auto message = from_bytes<Message>(std::move(bytes));
                                             if (!message) return message.error();
                                             return to_bytes(std::move(*message));
                                           }
                                         }};
  return element;
}

template <class Message>
class ReadAwaiter : public ReadWaiter {
 public:
  using ReadWaiter::ReadWaiter;
  std::optional<Message> await_resume() {
    std::optional<Buffer> bytes = take();
    if (!bytes) return std::nullopt;
    if constexpr (Message::is_struct) {
      Message message;
      std::memcpy(static_cast<void*>(&message), bytes->data(), sizeof message);
      return message;
    } else {
      return Message::unverified(std::move(*bytes));
    }
  }
};

}  // namespace detail

/// The end that reads. One coroutine reads at a time.
template <class Message>
class StreamReader {
 public:
  /// Reads nothing: as one that was moved from, or cancelled.
  StreamReader() noexcept = default;
  explicit StreamReader(std::unique_ptr<detail::StreamSource> source) noexcept
      : source_(std::move(source)) {}

  /// The next message; nothing once the writer has finished, then and ever after. Throws what the
  /// stream failed with, after all that was written before. Waits as long as it takes, in a handler
  /// until its ask ends, unless `within` says less; a read that gave up loses no message.
  [[nodiscard]] detail::ReadAwaiter<Message> read(Within within = {}) noexcept {
    return {source_.get(), within};
  }
  /// Tells the writer to stop, and drops what was not read.
  void cancel() noexcept { source_.reset(); }
  explicit operator bool() const noexcept { return source_ != nullptr; }

 private:
  std::unique_ptr<detail::StreamSource> source_;
};

/// The end that writes. Several coroutines may write; their messages go in the order of their
/// calls.
template <class Message>
class StreamWriter {
 public:
  using Fields = typename Message::Fields;
  /// Writes nothing, as one that was moved from: `write` throws Errc::closed.
  StreamWriter() noexcept = default;
  explicit StreamWriter(std::unique_ptr<detail::StreamSink> sink) noexcept
      : sink_(std::move(sink)) {}

  /// Waits until the reader's window has room. Throws what the stream ended with: Errc::cancelled
  /// if the reader gave up; Errc::closed after `finish`. The message is built at once; if this
  /// throws, it was not written.
  [[nodiscard]] detail::WriteWaiter write(const Fields& fields, Within within = {}) {
    return {sink_.get(), detail::to_bytes(Message(fields)), within};
  }
  template <std::same_as<Message> Written>
  [[nodiscard]] detail::WriteWaiter write(Written message, Within within = {}) {
    return {sink_.get(), detail::to_bytes(std::move(message)), within};
  }
  /// Without waiting: false if there is no room, or the stream has ended.
  bool try_write(const Fields& fields) {
    if (!writable()) return false;
    Buffer bytes = detail::to_bytes(Message(fields));
    return sink_->try_write(bytes);
  }

  /// The clean end. Does not wait: what was written will be read.
  void finish() noexcept {
    if (sink_) sink_->finish();
  }
  /// Ends it with an error, which the reader gets after what was written.
  void fail(Error error) noexcept {
    if (sink_) sink_->finish(std::move(error));
  }
  /// False once it has ended, from either end: then there is no use in making more.
  bool writable() const noexcept { return sink_ && !sink_->failure(); }
  explicit operator bool() const noexcept { return sink_ != nullptr; }

 private:
  std::unique_ptr<detail::StreamSink> sink_;
};

/// The answer to a stream of requests. Dropped unsent, the caller gets Errc::cancelled, or what the
/// handler threw.
template <class Message>
class StreamReply {
 public:
  using Fields = typename Message::Fields;
  explicit StreamReply(StreamWriter<Message> writer) noexcept : writer_(std::move(writer)) {}

  /// Answers once, and never waits; does nothing after that, or if nobody waits for it.
  void send(const Fields& fields) {
    writer_.try_write(fields);
    writer_.finish();
  }
  void fail(Error error) noexcept { writer_.fail(std::move(error)); }
  /// False once nobody waits for it.
  bool wanted() const noexcept { return writer_.writable(); }

 private:
  StreamWriter<Message> writer_;
};

/// The caller's end of a "client" stream.
template <class Request, class Answer>
class StreamCall {
 public:
  StreamCall() noexcept = default;
  StreamCall(StreamWriter<Request> writer, StreamReader<Answer> reader) noexcept
      : writer_(std::move(writer)), reader_(std::move(reader)) {}

  [[nodiscard]] detail::WriteWaiter write(const typename Request::Fields& fields,
                                          Within within = {}) {
    return writer_.write(fields, within);
  }
  template <std::same_as<Request> Written>
  [[nodiscard]] detail::WriteWaiter write(Written message, Within within = {}) {
    return writer_.write(std::move(message), within);
  }
  bool try_write(const typename Request::Fields& fields) { return writer_.try_write(fields); }
  /// Ends the requests, and waits for the answer: until the default deadline, unless told another.
  /// Also when the handler stopped reading early. Once; throws what the handler did.
  Task<Answer> finish(Within within = {}) {
    writer_.finish();
    return answer(std::move(reader_), within);
  }
  /// Gives up: the handler's reads throw `error`.
  void fail(Error error) noexcept {
    writer_.fail(std::move(error));
    reader_.cancel();
  }
  bool writable() const noexcept { return writer_.writable(); }

 private:
  static Task<Answer> answer(StreamReader<Answer> reader, Within within) {
    if (within.deadline == Time{}) within.deadline = detail::resolve(within);
    std::optional<Answer> read = co_await reader.read(within);
    if (!read)
      throw Error(Errc::no_reply, "finish a stream", "its handler ended without an answer");
    co_return std::move(*read);
  }
  StreamWriter<Request> writer_;
  StreamReader<Answer> reader_;
};

/// The caller's end of a "bidi" stream. Its halves end separately, and may be moved out.
template <class Written, class Read>
struct Duplex {
  StreamWriter<Written> writer;
  StreamReader<Read> reader;
};

namespace detail {

// ---- letters that open streams ----------------------------------------------

struct NoRequest {
  static constexpr bool is_struct = true;
};

template <class Method>
struct StreamRequest {
  static constexpr bool has_request = Method::streaming == StreamKind::server;
  using Request = std::conditional_t<has_request, typename Method::Request, NoRequest>;
  StreamOffer offer;
  Request request;
};

template <class Method>
inline constexpr std::size_t stream_letter_size =
    std::max({Letter::payload_offset<StreamRequest<Method>>() + sizeof(StreamRequest<Method>),
              Letter::payload_offset<StreamOpened>() + sizeof(StreamOpened),
              Letter::payload_offset<Error*>() + sizeof(Error*)});

template <class Method>
Letter* make_stream_letter(StreamRequest<Method>&& request) {
  using Held = StreamRequest<Method>;
  auto* letter = new (pool_allocate(stream_letter_size<Method>)) Letter(Method::info);
  letter->bytes = stream_letter_size<Method>;
  if constexpr (Held::has_request && !Held::Request::is_struct)
    letter->bytes += static_cast<std::uint32_t>(request.request.buffer().size());
  new (letter->payload<Held>()) Held(std::move(request));
  letter->content = Letter::Content::request;
  letter->kind = Letter::Kind::ask;
  return letter;
}

/// An opening as its handler gets it.
template <class Method>
  requires(Method::streaming == StreamKind::server)
struct Invocation<Method> {
  typename Method::Request request;
  StreamWriter<typename Method::Response> writer;
};
template <class Method>
  requires(Method::streaming == StreamKind::client)
struct Invocation<Method> {
  StreamReader<typename Method::Request> reader;
  StreamReply<typename Method::Response> reply;
};
template <class Method>
  requires(Method::streaming == StreamKind::bidi)
struct Invocation<Method> {
  StreamReader<typename Method::Request> reader;
  StreamWriter<typename Method::Response> writer;
};

/// Where the handler of that letter has its ends.
StreamPlace place_of_handler(const Letter& letter, Time deadline) noexcept;
NodeCore* core_of(const Letter& letter) noexcept;
/// Answers the opening.
void answer_opened(Letter* letter, StreamSink& sink, StreamSource* source) noexcept;

/// Makes the handler's ends, and tells the caller of them.
template <StreamingMethod Method>
Invocation<Method> open_letter(Letter* letter) {
  using Held = StreamRequest<Method>;
  Held& held = letter->content_as<Held>();
  Held taken = std::move(held);
  held.~Held();
  letter->content = Letter::Content::nothing;
  const StreamPlace place = place_of_handler(*letter, taken.offer.deadline);
  auto sink = std::make_unique<StreamSink>(place, taken.offer.source, taken.offer.window);
  std::unique_ptr<StreamSource> source;
  if constexpr (Method::streaming != StreamKind::server)
    source = std::make_unique<StreamSource>(place, element_of<typename Method::Request>(),
                                            StreamWindow{});
  answer_opened(letter, *sink, source.get());
  StreamWriter<typename Method::Response> writer(std::move(sink));
  if constexpr (Method::streaming == StreamKind::server) {
    return {std::move(taken.request), std::move(writer)};
  } else if constexpr (Method::streaming == StreamKind::client) {
    return {StreamReader<typename Method::Request>(std::move(source)),
            StreamReply<typename Method::Response>(std::move(writer))};
  } else {
    return {StreamReader<typename Method::Request>(std::move(source)), std::move(writer)};
  }
}

/// The functions of a streaming method's MethodInfo.
template <class Method>
struct StreamFunctions {
  using Held = StreamRequest<Method>;

  static Task<void> invoke(Actor& actor, Letter* letter) {
    return Method::invoke(static_cast<typename Method::Service::Actor&>(actor),
                          open_letter<Method>(letter));
  }
  static void destroy_content(Letter& letter) noexcept {
    if (letter.content == Letter::Content::request) {
      letter.content_as<Held>().~Held();
    } else {
      letter.content_as<StreamOpened>().~StreamOpened();
    }
  }
  static void write(Letter& letter, Buffer& body, Segments& segments) {
    if (letter.content == Letter::Content::request) {
      Held& held = letter.content_as<Held>();
      if constexpr (Held::has_request) body = detail::to_bytes(std::move(held.request));
      segments.push_back(held.offer.to_bytes());
    } else {
      body = std::move(letter.content_as<StreamOpened>()).to_bytes();
    }
    destroy_content(letter);
    letter.content = Letter::Content::nothing;
  }
  static Result<Letter*> read_request(Buffer body, Segments segments) {
    auto offer = StreamOffer::from_bytes(segments);
    if (!offer) return offer.error();
    if constexpr (Held::has_request) {
      auto request = detail::from_bytes<typename Method::Request>(std::move(body));
      if (!request) return request.error();
      return make_stream_letter<Method>({*offer, std::move(*request)});
    } else {
      return make_stream_letter<Method>({*offer, {}});
    }
  }
  static Result<void> read_answer(Letter& letter, Buffer body, Segments) {
    StreamOpened opened;
    opened.core = core_of(letter);
    opened.peer = letter.peer;
    if (!opened.read(body))
      return Error(Errc::verification_failed, std::string("open a stream of ") + Method::name,
                   "the answer is not of the size that this version knows",
                   "check that both ends use the same version");
    new (letter.payload<StreamOpened>()) StreamOpened(std::move(opened));
    letter.content = Letter::Content::answer;
    return {};
  }
  static void detach(Letter& letter) {
    if constexpr (Held::has_request)
      if (letter.content == Letter::Content::request)
        detach_message(letter.content_as<Held>().request);
  }
};

template <StreamingMethod Method>
constexpr MethodInfo make_stream_method_info() noexcept {
  using Functions = StreamFunctions<Method>;
  return {.id = Method::id,
          .name = Method::name,
          .index = Method::index,
          .interleaved = Method::interleaved,
          .oneway = false,
          .bulk = Method::bulk,
          .streams = true,
          .invoke = &Functions::invoke,
          .destroy_content = &Functions::destroy_content,
          .write = &Functions::write,
          .read_request = &Functions::read_request,
          .read_answer = &Functions::read_answer,
          .detach = &Functions::detach};
}

// ---- the caller -------------------------------------------------------------

template <class Method>
struct StreamOf;
template <class Method>
  requires(Method::streaming == StreamKind::server)
struct StreamOf<Method> {
  using type = StreamReader<typename Method::Response>;
};
template <class Method>
  requires(Method::streaming == StreamKind::client)
struct StreamOf<Method> {
  using type = StreamCall<typename Method::Request, typename Method::Response>;
};
template <class Method>
  requires(Method::streaming == StreamKind::bidi)
struct StreamOf<Method> {
  using type = Duplex<typename Method::Request, typename Method::Response>;
};

/// Where a caller has its ends; no home if there is nothing to call, or not from here.
StreamPlace place_of_caller(const Destination& to, const PromiseBase& caller,
                            const StreamOptions& options, bool bulk) noexcept;
StreamWindow checked(StreamWindow window) noexcept;

template <StreamingMethod Method>
class OpenAwaiter {
 public:
  using Value = typename StreamOf<Method>::type;
  OpenAwaiter(const Destination& to, typename StreamRequest<Method>::Request&& request,
              const StreamOptions& options) noexcept
      : to_(to), request_(std::move(request)), options_(options) {}
  OpenAwaiter(const OpenAwaiter&) = delete;
  ~OpenAwaiter() { disown_if_detached(); }

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> handle) {
    PromiseBase& caller = handle.promise();
    place_ = place_of_caller(to_, caller, options_, Method::bulk);
    StreamOffer offer{.window = checked(options_.window), .deadline = place_.deadline};
    if (place_.home) {
      source_ = std::make_unique<StreamSource>(place_, element_of<typename Method::Response>(),
                                               offer.window);
      offer.source = source_->number();
    }
    Letter* letter = make_stream_letter<Method>({offer, std::move(request_)});
    return waiter_.emplace(to_, letter, resolve(options_.within, caller)).send(caller);
  }
  Value await_resume() {
    StreamOpened& opened = waiter_->take_answer()->template content_as<StreamOpened>();
    if (disown_if_detached()) throw node_ended();
    source_->connect(opened.sink);
    StreamReader<typename Method::Response> reader(std::move(source_));
    if constexpr (Method::streaming == StreamKind::server) {
      opened.taken();
      return reader;
    } else {
      auto sink = std::make_unique<StreamSink>(place_, opened.source, opened.window);
      opened.taken();
      sink->introduce();
      StreamWriter<typename Method::Request> writer(std::move(sink));
      return {std::move(writer), std::move(reader)};
    }
  }

 private:
  /// A node may end while its answer waits for the caller to go on: then all ends are gone.
  bool disown_if_detached() noexcept {
    if (!source_ || !source_->detached()) return false;
    if (Letter* letter = waiter_ ? waiter_->answered() : nullptr)
      letter->content_as<StreamOpened>().taken();
    return true;
  }

  Destination to_;
  typename StreamRequest<Method>::Request request_;
  StreamOptions options_;
  StreamPlace place_;
  std::unique_ptr<StreamSource> source_;
  std::optional<SendWaiter> waiter_;
};

}  // namespace detail

/// A call of a streaming method: `co_await` gives the caller's ends, once the handler has begun. It
/// throws as an Ask does. Awaited once.
template <detail::StreamingMethod Method>
class [[nodiscard]] OpenStream {
 public:
  using value_type = typename detail::StreamOf<Method>::type;
  using Request = typename detail::StreamRequest<Method>::Request;
  OpenStream(const detail::Destination& to, Request request, StreamOptions options)
      : to_(to), request_(std::move(request)), options_(options) {}

  detail::OpenAwaiter<Method> operator co_await() && noexcept {
    return {to_, std::move(request_), options_};
  }
  operator Task<value_type>() && { return run(std::move(*this)); }

 private:
  static Task<value_type> run(OpenStream open) { co_return co_await std::move(open); }
  detail::Destination to_;
  Request request_;
  StreamOptions options_;
};

}  // namespace hyperframes
