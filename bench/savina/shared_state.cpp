// Savina's benchmarks of actors that guard what others share.
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors.hpp"
#include "kernels.hpp"
#include "root.hpp"

namespace hyperframes::bench::savina {
namespace {

// ---- concurrent dictionary --------------------------------------------------------------------

class Dictionary final : public protocol::Dictionary::Actor {
 public:
  Dictionary() {
    for (std::int64_t key = 0; key < dictionary_keys; ++key) values_[key] = dictionary_value(key);
  }

 private:
  Task<void> write(protocol::Entry entry, Reply<protocol::Number> reply) override {
    reply.send({.value = values_[entry.key()] = entry.value()});
    return {};
  }
  Task<void> read(protocol::Number key, Reply<protocol::Number> reply) override {
    reply.send({.value = values_[key.value()]});
    return {};
  }
  std::unordered_map<std::int64_t, std::int64_t> values_;
};

class DictionaryUser final : public protocol::Starter::Actor {
 public:
  DictionaryUser(std::int64_t index, ConcurrentDictionary program,
                 protocol::Dictionary::Ref dictionary, protocol::Root::Ref root)
      : index_(index), program_(program), dictionary_(dictionary), root_(root) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    Random random(static_cast<std::uint64_t>(index_));
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < program_.operations_each; ++i) {
      const DictionaryStep step = next_step(random, program_);
      const auto value =
          step.writes
              ? co_await dictionary_.write({.key = step.key, .value = dictionary_value(step.key)})
              : co_await dictionary_.read({.value = step.key});
      sum += value.value();
    }
    co_await root_.report({.value = sum});
  }
  std::int64_t index_;
  ConcurrentDictionary program_;
  protocol::Dictionary::Ref dictionary_;
  protocol::Root::Ref root_;
};

class DictionaryRoot final : public Root {
 public:
  explicit DictionaryRoot(ConcurrentDictionary program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto dictionary = co_await spawn<Dictionary>(SpawnOptions{});
    for (std::int64_t i = 0; i < program_.workers; ++i) {
      auto user = co_await spawn<DictionaryUser>(SpawnOptions{}, i, program_, dictionary, self());
      co_await user.begin({});
    }
    co_return program_.workers;
  }
  ConcurrentDictionary program_;
};

// ---- bounded buffer ---------------------------------------------------------------------------

using Ticket = Reply<protocol::Number>;

struct AnswerTicket {
  void operator()(Ticket& ticket, std::int64_t value) const { ticket.send({.value = value}); }
};

class Buffer final : public protocol::Buffer::Actor {
 public:
  explicit Buffer(BoundedBuffer program) : state_(program) {}

 private:
  Task<void> put(protocol::Number item, Ticket reply) override {
    state_.put(item.value(), std::move(reply));
    return {};
  }
  Task<void> take(protocol::Nothing, Ticket reply) override {
    state_.take(std::move(reply));
    return {};
  }
  BufferState<Ticket, AnswerTicket> state_;
};

class Producer final : public protocol::Starter::Actor {
 public:
  Producer(std::int64_t index, std::int64_t items, protocol::Buffer::Ref buffer)
      : index_(index), items_(items), buffer_(buffer) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    for (std::int64_t i = 1; i <= items_; ++i)
      co_await buffer_.put({.value = index_ * items_ + i}, until(no_deadline));
  }
  std::int64_t index_, items_;
  protocol::Buffer::Ref buffer_;
};

class Consumer final : public protocol::Starter::Actor {
 public:
  Consumer(protocol::Buffer::Ref buffer, protocol::Root::Ref root) : buffer_(buffer), root_(root) {}

 private:
  Task<void> begin(protocol::Nothing) override {
    std::int64_t sum = 0;
    for (;;) {
      const auto item = co_await buffer_.take({}, until(no_deadline));
      if (item.value() == buffer_closed) break;
      sum += item.value();
    }
    co_await root_.report({.value = sum});
  }
  protocol::Buffer::Ref buffer_;
  protocol::Root::Ref root_;
};

class BoundedBufferRoot final : public Root {
 public:
  explicit BoundedBufferRoot(BoundedBuffer program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto buffer = co_await spawn<Buffer>(SpawnOptions{}, program_);
    for (std::int64_t i = 0; i < program_.consumers; ++i) {
      auto consumer = co_await spawn<Consumer>(SpawnOptions{}, buffer, self());
      co_await consumer.begin({});
    }
    for (std::int64_t i = 0; i < program_.producers; ++i) {
      auto producer = co_await spawn<Producer>(SpawnOptions{}, i, program_.items_each, buffer);
      co_await producer.begin({});
    }
    co_return program_.consumers;
  }
  BoundedBuffer program_;
};

// ---- banking ----------------------------------------------------------------------------------

using Accounts = std::vector<protocol::Account::Ref>;

/// Takes no other letter between a credit and the answer of the account that is debited for it.
class Account final : public protocol::Account::Actor {
 public:
  Account(std::int64_t index, std::shared_ptr<const Accounts> accounts, protocol::Root::Ref root)
      : index_(index), accounts_(std::move(accounts)), root_(root) {}

 private:
  Task<void> credit(protocol::Transfer transfer) override {
    balance_ -= transfer.amount();
    const auto debited = co_await (*accounts_)[transfer.to()].debit({.value = transfer.amount()});
    co_await root_.report({.value = debited.value() - transfer.amount() * index_});
  }
  Task<void> debit(protocol::Number amount, Reply<protocol::Number> reply) override {
    balance_ += amount.value();
    reply.send({.value = amount.value() * index_});
    return {};
  }
  std::int64_t index_, balance_ = 0;
  std::shared_ptr<const Accounts> accounts_;
  protocol::Root::Ref root_;
};

class BankingRoot final : public Root {
 public:
  explicit BankingRoot(Banking program) : program_(program) {}

 private:
  Task<std::int64_t> fork() override {
    auto accounts = std::make_shared<Accounts>();
    for (std::int64_t i = 0; i < program_.accounts; ++i)
      accounts->push_back(co_await spawn<Account>(
          SpawnOptions{}, i, std::shared_ptr<const Accounts>(accounts), self()));
    Random random(1);
    for (std::int64_t i = 0; i < program_.transactions; ++i) {
      const Transaction next = next_transaction(random, program_.accounts);
      const auto& from = (*accounts)[static_cast<std::size_t>(next.from)];
      co_await from.credit({.amount = next.amount, .to = static_cast<std::uint32_t>(next.to)});
    }
    co_return program_.transactions;
  }
  Banking program_;
};

}  // namespace

Outcome run(const ConcurrentDictionary& program) { return timed<DictionaryRoot>(program); }
Outcome run(const BoundedBuffer& program) { return timed<BoundedBufferRoot>(program); }
Outcome run(const Banking& program) { return timed<BankingRoot>(program); }

}  // namespace hyperframes::bench::savina
