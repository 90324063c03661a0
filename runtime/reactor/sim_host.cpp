#include <hyperframes/runtime/reactor/sim_host.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <hyperframes/runtime/crc32c.hpp>
#include <hyperframes/runtime/reactor/blocking.hpp>
#include <hyperframes/runtime/reactor/sim_streams.hpp>
#include <hyperframes/runtime/shard.hpp>

namespace hyperframes::detail {
namespace {

struct SimState final : Operation::DriverState {
  SimHandle handle;
  bool cancelled = false;
  std::uint64_t sync_ticket = 0;
};

SimState& state_of(Operation& operation) {
  if (!operation.driver_state) operation.driver_state = std::make_unique<SimState>();
  return static_cast<SimState&>(*operation.driver_state);
}

bool is_socket_operation(Operation::Kind kind) noexcept {
  using enum Operation::Kind;
  return kind == accept || kind == connect || kind == receive || kind == receive_stream ||
         kind == send || kind == shutdown;
}

bool has_descriptor(Operation::Kind kind) noexcept {
  using enum Operation::Kind;
  return (is_socket_operation(kind) && kind != connect) || kind == close || kind == read ||
         kind == write || kind == sync || kind == truncate || kind == size;
}

}  // namespace

// ---- Descriptors

int SimHost::add_descriptor(SimHandle handle) {
  int number = 3;
  for (const auto& [taken, other] : descriptors) {
    if (taken != number) break;
    ++number;
  }
  if (descriptors.size() >= descriptor_limit) return -EMFILE;
  descriptors.emplace(number, std::move(handle));
  return number;
}

std::int64_t SimHost::close_descriptor(int descriptor) {
  auto node = descriptors.extract(descriptor);
  if (node.empty()) return -EBADF;
  streams.close(node.mapped());
  return 0;
}

SimHandle* SimHost::find_descriptor(int descriptor) {
  const auto at = descriptors.find(descriptor);
  return at == descriptors.end() ? nullptr : &at->second;
}

// ---- The disk's operations

Duration SimHost::duration_of(const Operation& operation) {
  using enum Operation::Kind;
  const SimDisk::Timing& timing = disk.timing();
  SimRandom& random = clockwork.disk;
  Duration span = random.between(timing.name_min, timing.name_max);
  if (operation.kind == sync || operation.kind == sync_directory) {
    span = random.between(timing.sync_min, timing.sync_max);
  } else if (operation.kind == read || operation.kind == write) {
    span = random.between(timing.transfer_min, timing.transfer_max);
    if (timing.bytes_per_second)
      span += Duration(static_cast<std::int64_t>(operation.memory.size_bytes() * 1'000'000'000 /
                                                 timing.bytes_per_second));
  }
  if (disk.faults().slow > 0 && random.chance(disk.faults().slow))
    span += random.between(Duration(0), disk.faults().slow_max);
  return span;
}

int SimHost::fault_of(Operation::Kind kind, const std::string& path) {
  for (auto& planned : disk.planned_) {
    if (planned.count == 0 || planned.kind != kind) continue;
    if (path.find(planned.path_part) == std::string::npos) continue;
    --planned.count;
    return planned.error;
  }
  using enum Operation::Kind;
  const auto& faults = disk.faults();
  const double probability = kind == read                             ? faults.read_error
                             : kind == write                          ? faults.write_error
                             : kind == sync || kind == sync_directory ? faults.sync_error
                                                                      : 0;
  return probability > 0 && clockwork.disk.chance(probability) ? EIO : 0;
}

std::size_t SimHost::cut_short(std::size_t size) {
  if (size < 2 || !clockwork.disk.chance(disk.faults().short_transfer)) return size;
  return clockwork.disk.between(1, size - 1);
}

std::int64_t SimHost::perform_transfer(Operation& operation) {
  const SimHandle& handle = state_of(operation).handle;
  if (!handle.file) return -ESPIPE;
  if (handle.file->folder) return -EISDIR;
  if (operation.kind == Operation::Kind::read) {
    const auto into = operation.memory[0].bytes();
    return static_cast<std::int64_t>(
        handle.file->read(operation.offset, into.first(cut_short(into.size()))));
  }
  if (!handle.writable) return -EBADF;
  std::size_t left = cut_short(operation.memory.size_bytes()), done = 0;
  for (const Buffer& buffer : operation.memory) {
    const std::size_t count = std::min(left - done, buffer.size());
    if (count == 0) continue;
    const std::int64_t result =
        disk.files_->write(*handle.file, operation.offset + done, buffer.bytes().first(count));
    if (result < 0) return done ? static_cast<std::int64_t>(done) : result;
    done += static_cast<std::size_t>(result);
    if (static_cast<std::size_t>(result) < count) break;
  }
  return static_cast<std::int64_t>(done);
}

std::int64_t SimHost::perform(Operation& operation) {
  using enum Operation::Kind;
  SimFileSystem& files = *disk.files_;
  SimState& state = state_of(operation);
  switch (operation.kind) {
    case open: {
      auto opened = files.open(operation.path, operation.flags);
      if (opened.result < 0) return opened.result;
      SimHandle handle;
      handle.file = std::move(opened.inode);
      handle.writable = (operation.flags & O_ACCMODE) != O_RDONLY;
      handle.path = operation.path;
      return add_descriptor(std::move(handle));
    }
    case read:
    case write: return perform_transfer(operation);
    case truncate:
      if (!state.handle.file || !state.handle.writable) return -EINVAL;
      return files.truncate(*state.handle.file, operation.offset);
    case size:
      if (!state.handle.file) return -EINVAL;
      return static_cast<std::int64_t>(state.handle.file->size());
    case rename: return files.rename(operation.path, operation.second_path);
    case remove: return files.remove(operation.path);
    case make_directory: return files.make_directory(operation.path);
    case list_directory: return files.list(operation.path, operation.names);
    default: return -EINVAL;
  }
}

void SimHost::start_on_disk(SimReactor& reactor, Operation& operation) {
  using enum Operation::Kind;
  SimState& state = state_of(operation);
  if (operation.kind == sync_directory) {
    auto found = disk.files_->find(operation.path);
    if (found.result == 0 && !found.inode->folder) found.result = -ENOTDIR;
    if (found.result < 0) return SimReactor::finish(reactor.key_of(operation), found.result);
    state.handle.file = std::move(found.inode);
    state.handle.path = operation.path;
  }
  const bool syncs = operation.kind == sync || operation.kind == sync_directory;
  if (syncs) {
    if (!state.handle.file) return SimReactor::finish(reactor.key_of(operation), -EINVAL);
    state.sync_ticket = state.handle.file->begin_sync();
  }
  clockwork.after(duration_of(operation), [key = reactor.key_of(operation), syncs] {
    Operation* const found = SimReactor::find(key);
    if (!found) return;
    SimHost& self = *key.host;
    SimState& state = state_of(*found);
    if (self.crash_countdown && --self.crash_countdown == 0) return self.on_crash_point();
    ++self.disk.operation_count_;
    const std::string& path = state.handle.path.empty() ? found->path : state.handle.path;
    const int fault = self.fault_of(found->kind, path);
    if (syncs) {
      state.handle.file->end_sync(state.sync_ticket, fault != 0);
      return SimReactor::finish(key, -fault);
    }
    if (state.cancelled) return SimReactor::finish(key, -ECANCELED);
    SimReactor::finish(key, fault ? -fault : self.perform(*found));
  });
}

void SimHost::lose_power() {
  for (SimReactor* reactor : reactors) {
    reactor->for_each_in_flight([this](Operation& operation) {
      if (operation.kind != Operation::Kind::write || clockwork.disk.below(2)) return;
      const SimHandle& handle = state_of(operation).handle;
      if (!handle.file || handle.file->folder || !handle.writable || operation.memory.empty())
        return;
      const auto bytes = operation.memory[0].bytes();
      const std::size_t sectors = bytes.size() / SimInode::sector_bytes;
      disk.files_->write(*handle.file, operation.offset,
                         bytes.first(clockwork.disk.below(sectors + 1) * SimInode::sector_bytes));
    });
  }
  disk.files_->lose_power(clockwork.disk);
}

// ---- The driver

struct SimReactor::Chunk : Block {
  std::shared_ptr<ChunkCount> count;
  std::vector<std::byte> memory;
};

SimReactor::SimReactor(SimHost& host, unsigned shard, Options options)
    : host_(host),
      shard_(shard),
      incarnation_(host.incarnation),
      options_(options),
      chunks_(std::make_shared<ChunkCount>()) {
  chunks_->reactor = this;
}

SimReactor::~SimReactor() {
  chunks_->reactor = nullptr;
  while (Operation* operation = flying_.pop_front()) Operation::destroy(operation);
}

bool SimReactor::drain(Time) noexcept {
  drained_ = true;
  unfinished_.clear();
  due_.clear();
  readable_.clear();
  readable_set_.clear();
  // Those there are now: what their owners begin is for the next call.
  for (std::size_t left = flying_.size(); left > 0; --left) {
    --in_flight_;
    finish_operation(flying_.pop_front(), -ECANCELED, *this);
  }
  return true;
}

Time SimReactor::now() const noexcept { return host_.clockwork.now() + host_.clock_offset; }

OperationKey SimReactor::key_of(const Operation& operation) const noexcept {
  return {&host_, incarnation_, shard_, operation.driver_word};
}

SimReactor* SimReactor::reactor_of(const OperationKey& key) noexcept {
  if (!key.host->running || key.host->incarnation != key.incarnation) return nullptr;
  return key.host->reactors[key.shard];
}

const SimHandle* SimReactor::handle_of(const Operation& operation) noexcept {
  const auto* state = static_cast<const SimState*>(operation.driver_state.get());
  return state ? &state->handle : nullptr;
}

Operation* SimReactor::find(const OperationKey& key) noexcept {
  SimReactor* const reactor = reactor_of(key);
  if (!reactor) return nullptr;
  const auto at = reactor->unfinished_.find(key.id);
  return at == reactor->unfinished_.end() ? nullptr : at->second;
}

void SimReactor::finish(const OperationKey& key, std::int64_t result) {
  Operation* const operation = find(key);
  if (!operation) return;
  SimReactor& reactor = *reactor_of(key);
  reactor.unfinished_.erase(key.id);
  reactor.due_.push_back({operation, result});
}

void SimReactor::notify_readable(const OperationKey& key) {
  SimReactor* const reactor = reactor_of(key);
  if (reactor && reactor->readable_set_.insert(key.id).second) reactor->readable_.push_back(key.id);
}

void SimReactor::start(Operation* operation) noexcept {
  ++in_flight_;
  flying_.push_back(*operation);
  if (drained_) return;  // the next drain ends it
  operation->driver_word = ++operation_count_;
  unfinished_.emplace(operation->driver_word, operation);
  if (!host_.running || host_.incarnation != incarnation_) return;  // its node has crashed
  const OperationKey key = key_of(*operation);
  SimState& state = state_of(*operation);
  if (has_descriptor(operation->kind)) {
    SimHandle* const handle = host_.find_descriptor(operation->descriptor);
    if (!handle) return finish(key, -EBADF);
    state.handle = *handle;
    if (state.handle.stream) ++state.handle.stream->operations;
    if (state.handle.listener) ++state.handle.listener->operations;
  }
  if (operation->kind == Operation::Kind::close) {
    finish(key, host_.close_descriptor(operation->descriptor));
  } else if (is_socket_operation(operation->kind) || operation->kind == Operation::Kind::resolve) {
    host_.streams.start(*this, *operation, state.handle);
  } else {
    host_.start_on_disk(*this, *operation);
  }
}

void SimReactor::cancel(Operation* operation) noexcept {
  const OperationKey key = key_of(*operation);
  if (find(key) != operation) return;  // on its way to its owner, or its node has crashed
  if (is_socket_operation(operation->kind)) return host_.streams.cancel(key);
  // The disk may have begun: then the operation takes effect, and its result is what arrives.
  state_of(*operation).cancelled = host_.clockwork.disk.below(2) == 0;
}

void SimReactor::end(Operation& operation, std::int64_t result) {
  --in_flight_;
  operation.unlink();
  std::uint64_t detail = static_cast<std::uint64_t>(operation.kind);
  using enum Operation::Kind;
  if ((operation.kind == read || operation.kind == receive) && result > 0)
    host_.clockwork.fold(
        crc32c(operation.memory[0].bytes().first(static_cast<std::size_t>(result))));
  host_.clockwork.record("completes", host_.index, shard_, detail,
                         static_cast<std::uint64_t>(result));
  const SimHandle handle = std::move(state_of(operation).handle);
  finish_operation(&operation, result, *this);
  host_.streams.operation_ended(handle);
}

std::size_t SimReactor::poll() noexcept {
  if (drained_) {
    const std::size_t count = in_flight_;
    drain(Time{});
    return count;
  }
  woken_ = false;
  std::size_t count = 0;
  // Only what is there now: what this starts waits for the next turn, as with a kernel.
  for (std::size_t left = readable_.size(); left > 0 && !readable_.empty(); --left, ++count) {
    const std::uint64_t id = readable_.front();
    readable_.pop_front();
    readable_set_.erase(id);
    deliver_stream(id);
  }
  for (std::size_t left = due_.size(); left > 0; --left, ++count) {
    const Due due = due_.front();
    due_.pop_front();
    end(*due.operation, due.result);
  }
  return count;
}

// ---- Streams of received chunks

Buffer SimReactor::take_chunk(SimStream& stream) {
  SimRandom& random = host_.clockwork.network;
  std::size_t size = std::min(stream.received.size(), options_.receive_chunk_bytes);
  if (size > 1 && random.below(4) == 0) size = random.between(1, size);
  auto* chunk = new Chunk;
  chunk->memory.resize(size);
  chunk->data = chunk->memory.data();
  chunk->capacity = size;
  chunk->home = Shard::current();
  chunk->count = chunks_;
  chunk->dispose = [](Block* block) noexcept {
    const std::unique_ptr<Chunk> self(static_cast<Chunk*>(block));
    --self->count->out;
    if (self->count->reactor) self->count->reactor->chunk_came_back();
  };
  ++chunks_->out;
  host_.streams.take(stream, chunk->memory);
  return Buffer::adopt(chunk, chunk->data, size);
}

void SimReactor::chunk_came_back() {
  if (chunks_->out > options_.receive_chunks / 2) return;
  for (const std::uint64_t id : std::exchange(starved_, {}))
    notify_readable({&host_, incarnation_, shard_, id});
}

void SimReactor::deliver_stream(std::uint64_t id) {
  const OperationKey key{&host_, incarnation_, shard_, id};
  while (Operation* const operation = find(key)) {
    SimStream& stream = *state_of(*operation).handle.stream;
    if (!stream.received.empty()) {
      if (chunks_->out >= options_.receive_chunks) {
        starved_.push_back(id);
        return;
      }
      Buffer chunk = take_chunk(stream);
      const auto size = static_cast<std::int64_t>(chunk.size());
      host_.clockwork.fold(crc32c(chunk.bytes()));
      host_.clockwork.record("streams", host_.index, shard_, stream.id,
                             static_cast<std::uint64_t>(size));
      if (!operation->owner) continue;  // abandoned: the bytes go, as with a kernel
      operation->chunk = std::move(chunk);
      operation->owner->on_complete(*operation, size, true);
      operation->chunk = {};
      continue;
    }
    if (!stream.readable()) return;
    return finish(key, -host_.streams.take_error(stream));
  }
}

// ---- The rest of the driver

int SimReactor::listen(const Address& address, int backlog) {
  SimHandle handle;
  handle.listener = host_.streams.listen(host_, address, backlog);
  const int descriptor = host_.add_descriptor(handle);
  if (descriptor < 0) {
    host_.streams.close(handle);
    throw Error::system(EMFILE, "listen on " + address.to_string());
  }
  return descriptor;
}

Address SimReactor::local_address(int descriptor) const {
  const SimHandle* const handle = host_.find_descriptor(descriptor);
  if (handle && handle->listener) return handle->listener->address;
  if (handle && handle->stream) return handle->stream->local;
  throw Error::system(handle ? ENOTSOCK : EBADF, "read the address of a socket");
}

void SimReactor::tune_socket(int descriptor, std::size_t unsent_backlog_bytes) noexcept {
  SimHandle* const handle = host_.find_descriptor(descriptor);
  if (handle && handle->stream && unsent_backlog_bytes)
    handle->stream->unsent_limit = unsent_backlog_bytes;
}

void SimReactor::close_now(int descriptor) noexcept {
  if (host_.running && host_.incarnation == incarnation_) host_.close_descriptor(descriptor);
}

void SimReactor::reset_now(int descriptor) noexcept {
  if (!host_.running || host_.incarnation != incarnation_) return;
  if (const SimHandle* handle = host_.find_descriptor(descriptor); handle && handle->stream)
    host_.streams.reset(*handle->stream);
  host_.close_descriptor(descriptor);
}

void SimReactor::close_listener(int descriptor) noexcept {
  if (!host_.running || host_.incarnation != incarnation_) return;
  if (const SimHandle* handle = host_.find_descriptor(descriptor); handle && handle->listener)
    host_.streams.end_accepts(*handle->listener);
  host_.close_descriptor(descriptor);
}

// ---- Offload

// Of a process that has ended, its executor is gone too.
void SimOffload::execute(OffloadJob* job) noexcept {
  waiting_.push_back(job);
  host_.clockwork.after(host_.clockwork.schedule.between(Duration(2us), Duration(2ms)),
                        [this, &host = host_, incarnation = host_.incarnation, job] {
                          if (!host.running || host.incarnation != incarnation) return;
                          std::erase(waiting_, job);
                          host.clockwork.record("offloads", host.index, 0, 0, 0);
                          job->run(job);
                        });
}

std::vector<std::string> SimOffload::end(Time) {
  while (!waiting_.empty()) {
    OffloadJob* const job = waiting_.front();
    waiting_.pop_front();
    job->abandon();
  }
  return {};
}

}  // namespace hyperframes::detail
