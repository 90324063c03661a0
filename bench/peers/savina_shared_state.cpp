// Savina's benchmarks of actors that guard what others share, on CAF.
#include <memory>
#include <unordered_map>
#include <vector>

#include "savina_root.hpp"

namespace hyperframes::bench::savina::caf_peer {
namespace {

using Credit = caf::atom_constant<caf::atom("credit")>;
using Debit = caf::atom_constant<caf::atom("debit")>;
using Put = caf::atom_constant<caf::atom("put")>;
using Read = caf::atom_constant<caf::atom("read")>;
using Take = caf::atom_constant<caf::atom("take")>;
using Write = caf::atom_constant<caf::atom("write")>;

// ---- concurrent dictionary --------------------------------------------------------------------

struct DictionaryState {
  std::unordered_map<std::int64_t, std::int64_t> values;
};
caf::behavior dictionary(caf::stateful_actor<DictionaryState>* self) {
  auto& values = self->state.values;
  for (std::int64_t key = 0; key < dictionary_keys; ++key) values[key] = dictionary_value(key);
  return {
      [=](Write, std::int64_t key, std::int64_t value) { return self->state.values[key] = value; },
      [=](Read, std::int64_t key) { return self->state.values[key]; }};
}

struct UserState {
  Random random{0};
  std::int64_t left = 0, sum = 0;
};
caf::behavior dictionary_user(caf::stateful_actor<UserState>* self, std::int64_t index,
                              ConcurrentDictionary program, caf::actor dictionary,
                              caf::actor root) {
  self->state.random = Random(static_cast<std::uint64_t>(index));
  self->state.left = program.operations_each;
  auto use = [=] {
    const DictionaryStep step = next_step(self->state.random, program);
    if (!step.writes) return self->send(dictionary, Read::value, step.key);
    self->send(dictionary, Write::value, step.key, dictionary_value(step.key));
  };
  return {[=](Begin) { use(); },
          [=](std::int64_t value) {
            self->state.sum += value;
            if (--self->state.left > 0) return use();
            self->send(root, Report::value, self->state.sum);
          }};
}

// ---- bounded buffer ---------------------------------------------------------------------------

struct AnswerTicket {
  void operator()(Ticket& ticket, std::int64_t value) const { ticket.deliver(value); }
};

caf::behavior buffer(caf::event_based_actor* self, BoundedBuffer program) {
  auto state = std::make_shared<BufferState<Ticket, AnswerTicket>>(program);
  return {[=](Put, std::int64_t item) {
            state->put(item, self->make_response_promise<std::int64_t>());
          },
          [=](Take) { state->take(self->make_response_promise<std::int64_t>()); }};
}

struct ProducerState {
  std::int64_t next = 1;
};
caf::behavior producer(caf::stateful_actor<ProducerState>* self, std::int64_t index,
                       std::int64_t items, caf::actor buffer) {
  auto produce = [=] {
    if (self->state.next <= items)
      self->send(buffer, Put::value, index * items + self->state.next++);
  };
  return {[=](Begin) { produce(); }, [=](std::int64_t) { produce(); }};
}

struct ConsumerState {
  std::int64_t sum = 0;
};
caf::behavior consumer(caf::stateful_actor<ConsumerState>* self, caf::actor buffer,
                       caf::actor root) {
  return {[=](Begin) { self->send(buffer, Take::value); },
          [=](std::int64_t item) {
            if (item == buffer_closed) return self->send(root, Report::value, self->state.sum);
            self->state.sum += item;
            self->send(buffer, Take::value);
          }};
}

// ---- banking ----------------------------------------------------------------------------------

using Accounts = std::vector<caf::actor>;

struct AccountState {
  std::int64_t balance = 0;
};
/// Takes no other message between a credit and the answer of the account that is debited for it.
caf::behavior account(caf::stateful_actor<AccountState>* self, std::int64_t index,
                      std::shared_ptr<const Accounts> accounts, caf::actor root) {
  return {[=](Credit, std::int64_t amount, std::uint32_t to) {
            self->state.balance -= amount;
            self->request((*accounts)[to], caf::infinite, Debit::value, amount)
                .await([=](std::int64_t debited) {
                  self->send(root, Report::value, debited - amount * index);
                });
          },
          [=](Debit, std::int64_t amount) {
            self->state.balance += amount;
            return amount * index;
          }};
}

}  // namespace

Outcome run(const ConcurrentDictionary& program) {
  return timed([=](RootActor* self) {
    const auto shared = start(self, dictionary);
    for (std::int64_t i = 0; i < program.workers; ++i)
      self->send(start(self, dictionary_user, i, program, shared, handle_of(self)), Begin::value);
    return program.workers;
  });
}

Outcome run(const BoundedBuffer& program) {
  return timed([=](RootActor* self) {
    const auto shared = start(self, buffer, program);
    for (std::int64_t i = 0; i < program.consumers; ++i)
      self->send(start(self, consumer, shared, handle_of(self)), Begin::value);
    for (std::int64_t i = 0; i < program.producers; ++i)
      self->send(start(self, producer, i, program.items_each, shared), Begin::value);
    return program.consumers;
  });
}

Outcome run(const Banking& program) {
  return timed([=](RootActor* self) {
    auto accounts = std::make_shared<Accounts>();
    for (std::int64_t i = 0; i < program.accounts; ++i)
      accounts->push_back(
          start(self, account, i, std::shared_ptr<const Accounts>(accounts), handle_of(self)));
    Random random(1);
    for (std::int64_t i = 0; i < program.transactions; ++i) {
      const Transaction next = next_transaction(random, program.accounts);
      self->send((*accounts)[static_cast<std::size_t>(next.from)], Credit::value, next.amount,
                 static_cast<std::uint32_t>(next.to));
    }
    return program.transactions;
  });
}

}  // namespace hyperframes::bench::savina::caf_peer
