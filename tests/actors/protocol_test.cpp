// What the generator makes of a schema: everything.fbs has every kind of field.
#include <hyperframes/actors/detail/build_table.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>

#include "everything.fbs.hpp"
#include "support.hpp"

using namespace actor_test;
using hf::Errc;
using hf::Task;
using namespace tests::everything;

namespace {

Everything::Fields full() {
  Everything::Fields fields{.truth = false,
                            .small = -7,
                            .large = 12345678901234567890u,
                            .negative = -1,
                            .real = 1.25f,
                            .endless = 2.0,
                            .maybe = 0,
                            .color = Color::blue,
                            .access = Access::execute,
                            .name = "name",
                            .must = "must"};
  fields.bytes = {1, 2, 3};
  fields.flags = {1, 0, 1};
  fields.colors = {Color::red, Color::blue};
  fields.words = {"one", "two"};
  fields.places = {shapes::Place({.x = 1, .y = 2}), shapes::Place({.x = 3, .y = 4})};
  fields.box = Box({.corner = {.x = 5, .y = 6},
                    .level = Level::high,
                    .counts = {7, 8, 9},
                    .pair = {.first = 10, .second = 11.5}});
  fields.tree = Tree::Fields{.name = "root"};
  fields.tree->children = {Tree::Fields{.name = "left"}, Tree::Fields{.name = "right"}};
  fields.tree->owner = Forest::Fields{.trees = {Tree::Fields{.name = "neighbour"}}};
  fields.forest = {Tree::Fields{.name = "oak"}, Tree::Fields{.name = "elm"}};
  fields.content = hf::Nested<Text::Fields>(Text::Fields{.text = "inside"});
  fields.class_ = 3;
  fields.buffer = 4;
  return fields;
}

hf::Buffer copy(const Everything& view) { return hf::Buffer::copy_of(view.buffer().bytes()); }

}  // namespace

TEST_CASE("every kind of field is built, verified and read back") {
  const Everything view(full());
  auto verified = Everything::verified(copy(view));
  REQUIRE(verified);
  const Everything& read = *verified;
  CHECK(!read.truth());
  CHECK(read.small() == -7);
  CHECK(read.large() == 12345678901234567890u);
  CHECK(read.negative() == -1);
  CHECK(read.real() == 1.25f);
  CHECK(read.endless() == 2.0);
  CHECK(read.maybe() == 0);
  CHECK(read.color() == Color::blue);
  CHECK(read.access() == Access::execute);
  CHECK(read.name() == "name");
  CHECK(read.must() == "must");
  CHECK(std::ranges::equal(read.bytes(), std::vector<std::uint8_t>{1, 2, 3}));
  CHECK(std::ranges::equal(read.flags(), std::vector<std::uint8_t>{1, 0, 1}));
  CHECK(std::ranges::equal(read.colors(), std::vector<Color>{Color::red, Color::blue}));
  REQUIRE(read.words());
  CHECK(read.words()->Get(1)->str() == "two");
  REQUIRE(read.places().size() == 2);
  CHECK(read.places()[1].y() == 4);
  REQUIRE(read.box());
  CHECK(read.box()->corner().y() == 6);
  CHECK(read.box()->level() == Level::high);
  CHECK(read.box()->counts()[2] == 9);
  CHECK(read.box()->pair().second() == 11.5);
  REQUIRE(read.tree());
  CHECK(read.tree()->children()->Get(1)->name()->str() == "right");
  CHECK(read.tree()->owner()->trees()->Get(0)->name()->str() == "neighbour");
  CHECK(read.forest()->size() == 2);
  CHECK(read.content_type() == Content::Text);
  REQUIRE(read.content_as_text());
  CHECK(read.content_as_text()->text()->str() == "inside");
  CHECK(!read.content_as_box());
  CHECK(read.class_() == 3);
  CHECK(read.buffer_() == 4);
}

TEST_CASE("fields that are left out have the schema's defaults") {
  const Everything read({.must = "x"});
  CHECK(read.truth());
  CHECK(read.small() == -3);
  CHECK(read.large() == 9223372036854775807u);
  CHECK(read.negative() == std::numeric_limits<std::int64_t>::min());
  CHECK(read.real() == 0.5f);
  CHECK(std::isinf(read.endless()));
  CHECK(!read.maybe());
  CHECK(read.color() == Color::green);
  CHECK(static_cast<unsigned>(read.access()) == 3);
  CHECK(read.name().empty());
  CHECK(read.bytes().empty());
  CHECK(!read.words());
  CHECK(!read.box());
  CHECK(!read.tree());
  CHECK(read.content_type() == Content::NONE);
}

TEST_CASE("a union holds tables and structs") {
  const Everything number(
      {.must = "x", .content = hf::Nested<Number::Fields>(Number::Fields{.value = 4})});
  REQUIRE(number.content_as_number());
  CHECK(number.content_as_number()->value() == 4);
  const Everything box({.must = "x", .content = Box({.level = Level::high})});
  REQUIRE(box.content_as_box());
  CHECK(Box(*box.content_as_box()).level() == Level::high);
}

TEST_CASE("a required field that is missing is refused where it is built, and where it arrives") {
  // An empty string was given, so the field is there.
  CHECK_NOTHROW(Everything(Everything::Fields()));
  flatbuffers::FlatBufferBuilder builder;
  fb::EverythingBuilder table(builder);
  table.add_small(1);
  builder.Finish(flatbuffers::Offset<fb::Everything>(builder.EndTable(table.start_)));
  auto read = Everything::verified(
      hf::Buffer::copy_of(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()))));
  REQUIRE(!read);
  CHECK(read.error().is(Errc::verification_failed));
}

TEST_CASE("values that the schema does not know are refused, wherever they stand") {
  const auto refused = [](const Everything& view, const char* field) {
    auto read = Everything::verified(copy(view));
    REQUIRE(!read);
    CHECK(read.error().is(Errc::verification_failed));
    CHECK(std::string(read.error().what()).find(field) != std::string::npos);
  };
  refused(Everything({.color = static_cast<Color>(5), .must = "x"}), "color");
  refused(Everything({.must = "x", .colors = {Color::red, static_cast<Color>(3)}}), "colors");
  refused(Everything({.must = "x", .box = Box({.level = static_cast<Level>(7)})}), "box");
  refused(Everything({.must = "x", .content = Box({.level = static_cast<Level>(7)})}), "Box");

  // A union of a kind that a newer schema might have.
  flatbuffers::FlatBufferBuilder builder;
  const auto must = builder.CreateString("x");
  const auto text = fb::CreateText(builder, 0).Union();
  fb::EverythingBuilder table(builder);
  table.add_must(must);
  table.add_content_type(static_cast<fb::Content>(9));
  table.add_content(text);
  builder.Finish(table.Finish());
  auto read = Everything::verified(
      hf::Buffer::copy_of(std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()))));
  REQUIRE(!read);
  CHECK(std::string(read.error().what()).find("content") != std::string::npos);
}

TEST_CASE("tables nested too deeply are refused") {
  Tree::Fields tree{.name = "leaf"};
  for (int i = 0; i < 100; ++i) {
    Tree::Fields outer{.name = "node"};
    outer.children.push_back(std::move(tree));
    tree = std::move(outer);
  }
  Everything::Fields fields{.must = "x"};
  fields.tree = std::move(tree);
  auto read = Everything::verified(copy(Everything(fields)));
  REQUIRE(!read);
  CHECK(read.error().is(Errc::verification_failed));
}

TEST_CASE("bytes that are no such table are refused, never read") {
  const Everything view(full());
  const hf::Buffer good = copy(view);
  for (std::size_t size = 0; size + 8 < good.size(); ++size)  // the last bytes may be padding
    CHECK(!Everything::verified(hf::Buffer::copy_of(good.bytes().first(size))));

  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    hf::Buffer bad = copy(view);
    for (int i = 0; i < 4; ++i)
      bad.data()[random() % bad.size()] = static_cast<std::byte>(random());
    if (auto read = Everything::verified(std::move(bad))) {
      // What verifies can be read from end to end.
      std::size_t sum = read->name().size() + read->must().size() + read->bytes().size();
      if (read->words())
        for (const auto* word : *read->words()) sum += word->size();
      if (read->tree() && read->tree()->children())
        for (const auto* child : *read->tree()->children())
          if (child->name()) sum += child->name()->size();
      CHECK(sum < (1u << 20));
    }
  }
}

TEST_CASE("a table that does not lie on a 16-byte boundary is copied to one") {
  const Everything view(full());
  hf::Buffer shifted = hf::Buffer::heap(view.buffer().size() + 4);
  std::memcpy(shifted.data() + 4, view.buffer().data(), view.buffer().size());
  shifted.remove_prefix(4);
  auto read = Everything::verified(std::move(shifted));
  REQUIRE(read);
  CHECK(read->large() == 12345678901234567890u);
  CHECK(reinterpret_cast<std::uintptr_t>(read->buffer().data()) % 16 == 0);
}

TEST_CASE("type ids are the hash of the full name") {
  // FNV-1a of "demo.Counter.Add", computed elsewhere: a change would break the wire protocol.
  CHECK(demo::Counter::AddMethod::id == 0x6f0e1aa16cd91265u);
  CHECK(std::string_view(demo::Counter::AddMethod::name) == "demo.Counter.Add");
  CHECK(demo::Counter::AddMethod::id != demo::OtherCounter::AddMethod::id);
}

TEST_CASE("structs travel as requests and answers, and names that C++ reserves work as methods") {
  struct Trader final : Exchange::Actor {
    Task<void> echo(Everything request, hf::Reply<Everything> reply) override {
      reply.send(std::move(request));
      return {};
    }
    Task<void> move(shapes::Place request, hf::Reply<Pair> reply) override {
      reply.send({.first = static_cast<std::int16_t>(request.x()), .second = 0.5});
      return {};
    }
    Task<void> put_box(Box request) override {
      box = request;
      return {};
    }
    Task<void> fetch(Nothing, hf::Segments segments,
                     hf::Reply<hf::WithSegments<Nothing>> reply) override {
      reply.send({}, std::move(segments));
      return {};
    }
    Task<void> store(Nothing, hf::Segments segments, hf::Reply<Nothing> reply) override {
      CHECK(segments.size_bytes() == 3);
      reply.send({});
      return {};
    }
    Task<void> stop_(Nothing, hf::Reply<Nothing> reply) override {
      reply.send({});
      stop();
      return {};
    }
    Box box;
  };
  for (unsigned shard : {0u, 1u}) {
    World world(2);
    world.run([&, shard]() -> Task<void> {
      auto trader = co_await world.node.spawn<Trader>({.shard = shard});
      const auto pair = co_await trader.move({.x = 3});
      CHECK(pair.first() == 3);
      CHECK(pair.second() == 0.5);
      co_await trader.put_box({.level = Level::high});
      const auto everything = co_await trader.echo(Everything(full()));
      CHECK(everything.name() == "name");
      const auto fetched = co_await trader.fetch({}, hf::Segments(hf::Buffer::copy_of("abc")));
      CHECK(fetched.segments[0].text() == "abc");
      co_await trader.store({}, hf::Segments(hf::Buffer::copy_of("abc")));
      co_await trader.stop_({});
      co_await world.node.join(trader);
    });
  }
}
