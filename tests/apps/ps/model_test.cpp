#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <hyperframes/apps/ps/model.hpp>
#include <hyperframes/runtime/error.hpp>
#include <random>

using namespace hyperframes::ps;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* text = R"(
model: factorization_machine
latent: 3
label: liked
epochs: 4
initial_scale: 0.05
optimizer: {kind: adagrad, learning_rate: 0.09, initial_accumulator: 0.1}
fields:
  - {name: user, l2: 0.02, l2_latent: 0.01}
  - {name: genres, separator: "|", combine: sqrt, l2: 0.005}
)";

std::string error_of(const std::string& yaml) {
  try {
    ModelConfig::parse(yaml);
  } catch (const hyperframes::Error& error) {
    return error.what();
  }
  return "no error";
}

/// The summed loss and the L2 of every occurrence, from scratch.
double objective(const ModelConfig& config, const Batch& batch, const std::vector<float>& rows) {
  const std::size_t width = config.width();
  double total = 0;
  for (std::size_t sample = 0; sample < batch.samples(); ++sample) {
    double z = rows[0];
    for (std::size_t a = batch.offsets[sample]; a < batch.offsets[sample + 1]; ++a) {
      const auto& left = batch.features[a];
      z += rows[left.row * width] * static_cast<double>(left.share);
      for (std::size_t b = a + 1; b < batch.offsets[sample + 1]; ++b) {
        const auto& right = batch.features[b];
        double dot = 0;
        for (std::size_t f = 1; f < width; ++f)
          dot += static_cast<double>(rows[left.row * width + f]) * rows[right.row * width + f];
        z += dot * left.share * right.share;
      }
      const auto& field = config.fields[left.field];
      total += 0.5 * field.l2 * std::pow(rows[left.row * width], 2);
      for (std::size_t f = 1; f < width; ++f)
        total += 0.5 * field.l2_latent * std::pow(rows[left.row * width + f], 2);
    }
    const double p = 1 / (1 + std::exp(-z));
    total -= batch.labels[sample] > 0.5f ? std::log(p) : std::log(1 - p);
  }
  return total;
}

Batch example_batch(const ModelConfig& config) {
  BatchBuilder builder(config);
  const std::string_view samples[][2] = {
      {"7", "Drama|War"}, {"9", "Comedy"}, {"7", "Comedy|Drama|Romance"}, {"3", ""}};
  float label = 0;
  for (const auto& sample : samples) builder.add(sample, label = 1 - label);
  return builder.take();
}

}  // namespace

TEST_CASE("a model is read from its description") {
  const auto config = ModelConfig::parse(text);
  CHECK(config.width() == 4);
  CHECK(config.label == "liked");
  CHECK(config.epochs == 4);
  REQUIRE(config.fields.size() == 2);
  CHECK(config.fields[1].separator == '|');
  CHECK(config.fields[0].l2_latent == 0.01f);
}

TEST_CASE("a wrong description is refused with its line and what may stand there") {
  CHECK_THAT(error_of("model: perceptron\nfields: [{name: a}]"),
             ContainsSubstring("line 1") && ContainsSubstring("logistic_regression"));
  CHECK_THAT(error_of("model: logistic_regression\nfeilds: []"), ContainsSubstring("line 2") &&
                                                                     ContainsSubstring("feilds") &&
                                                                     ContainsSubstring("fields"));
  CHECK_THAT(error_of("model: logistic_regression"), ContainsSubstring("fields"));
  CHECK_THAT(error_of("model: logistic_regression\nfields:\n  - {name: a, l2: -1}"),
             ContainsSubstring("line 3") && ContainsSubstring("l2"));
  CHECK_THAT(error_of("model: logistic_regression\nlatent: 8\nfields: [{name: a}]"),
             ContainsSubstring("latent"));
  CHECK_THAT(error_of("model: factorization_machine\nlatent: many\nfields: [{name: a}]"),
             ContainsSubstring("many"));
  CHECK_THAT(error_of("model: [\n"), ContainsSubstring("line"));
  CHECK_THAT(error_of("model: logistic_regression\nfields: [{name: a}, {name: a}]"),
             ContainsSubstring("twice"));
}

TEST_CASE("a feature has the same id everywhere, and another in another field") {
  CHECK(feature_id("user", "318") == feature_id("user", "318"));
  CHECK(feature_id("user", "318") != feature_id("movie", "318"));
  CHECK(feature_id("user", "318") >> 63 == 0);
  CHECK(feature_id("movie", "318") == 0x060ffd27df1b43d0u);
}

TEST_CASE("a batch holds each feature once, and shares a field among its values") {
  const auto config = ModelConfig::parse(text);
  const Batch batch = example_batch(config);
  CHECK(batch.samples() == 4);
  CHECK(batch.ids.size() == 1 + 3 + 4);  // bias, users 7 9 3, four genres
  CHECK(batch.features[1].share == Catch::Approx(1 / std::sqrt(2.0)));
  CHECK(batch.offsets == std::vector<std::uint32_t>{0, 3, 5, 9, 10});
}

TEST_CASE("gradients agree with differences of the objective") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.3f);
  for (const char* kind : {"factorization_machine", "logistic_regression"}) {
    std::string yaml = text;
    if (std::string(kind) == "logistic_regression") {
      yaml.replace(yaml.find("factorization_machine"), 21, kind);
      yaml.replace(yaml.find("latent: 3\n"), 10, "");
    }
    const Model model(ModelConfig::parse(yaml));
    const Batch batch = example_batch(model.config());
    std::vector<float> rows(batch.ids.size() * model.config().width());
    for (float& value : rows) value = normal(random);
    std::vector<float> gradients(rows.size()), predictions(batch.samples());
    const double loss = model.gradients(batch, rows, gradients, predictions);
    CHECK(loss == Catch::Approx(model.predict(batch, rows, predictions)));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // The bias row's latent part takes no part in the model.
      if (i > 0 && i < model.config().width()) continue;
      const float step = 1e-2f, kept = rows[i];
      rows[i] = kept + step;
      const double above = objective(model.config(), batch, rows);
      rows[i] = kept - step;
      const double below = objective(model.config(), batch, rows);
      rows[i] = kept;
      CHECK(gradients[i] == Catch::Approx((above - below) / (2 * step)).margin(2e-3));
    }
  }
}

TEST_CASE("spans of a wrong size are refused, with the sizes") {
  const Model model(ModelConfig::parse(text));
  const Batch batch = example_batch(model.config());
  std::vector<float> rows(batch.ids.size() * model.config().width()), gradients(rows.size());
  std::vector<float> predictions(batch.samples());
  const auto refused = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const hyperframes::Error& error) {
      return error.is(hyperframes::Errc::invalid_argument) ? error.what() : "another error";
    }
    return "no error";
  };
  const auto less = [](std::vector<float>& of) { return std::span(of).first(of.size() - 1); };
  CHECK_THAT(refused([&] { model.predict(batch, less(rows), predictions); }),
             ContainsSubstring("31 floats of rows were given where 32 belong"));
  CHECK_THAT(refused([&] { model.predict(batch, rows, less(predictions)); }),
             ContainsSubstring("3 predictions were given where 4 belong"));
  CHECK_THAT(refused([&] { model.gradients(batch, less(rows), gradients, predictions); }),
             ContainsSubstring("31 floats of rows"));
  CHECK_THAT(refused([&] { model.gradients(batch, rows, less(gradients), predictions); }),
             ContainsSubstring("31 floats of gradients"));
  CHECK_THAT(refused([&] { model.gradients(batch, rows, gradients, less(predictions)); }),
             ContainsSubstring("3 predictions"));
  BatchBuilder builder(model.config());
  const std::string_view value = "7";
  CHECK_THAT(refused([&] { builder.add({&value, 1}, 0); }),
             ContainsSubstring("1 values were given where 2 belong"));
  CHECK(builder.samples() == 0);
}

TEST_CASE("a score far out loses no precision and yields no infinite loss") {
  const Model model(ModelConfig::parse("model: logistic_regression\nfields: [{name: a}]"));
  BatchBuilder builder(model.config());
  const std::string_view value = "x";
  builder.add({&value, 1}, 0);
  const Batch batch = builder.take();
  std::vector<float> rows{0, 200}, predictions(1);
  CHECK(model.predict(batch, rows, predictions) == Catch::Approx(200));
}

TEST_CASE("a key that is no plain word is an error that names its line") {
  const std::string error = error_of("model: logistic_regression\n? [a]\n: b\n");
  CHECK_THAT(error, ContainsSubstring("model.yaml, line 2"));
  CHECK_THAT(error, ContainsSubstring("a key that is a list or mapping"));
  CHECK_THAT(error_of("? {a: 1}\n: b\n"), ContainsSubstring("a key that is a list or mapping"));
}

TEST_CASE("a model's fingerprint tells all that changes its rows or gradients, and no more") {
  const std::string yaml(text);
  const auto fingerprint = [](const std::string& of) {
    return ModelConfig::parse(of).fingerprint();
  };
  const auto with = [&](const std::string& old, const std::string& instead) {
    std::string changed = yaml;
    const auto at = changed.find(old);
    REQUIRE(at != std::string::npos);
    return fingerprint(changed.replace(at, old.size(), instead));
  };
  const auto own = fingerprint(yaml);
  CHECK(with("epochs: 4", "epochs: 5") == own);
  CHECK(with("latent: 3\nlabel: liked", "label: 'liked' # another order\nlatent: 3") == own);
  const std::vector<std::uint64_t> others = {
      with("latent: 3", "latent: 4"),
      with("label: liked", "label: seen"),
      with("initial_scale: 0.05", "initial_scale: 0.06"),
      with("kind: adagrad", "kind: sgd"),
      with("learning_rate: 0.09", "learning_rate: 0.1"),
      with("initial_accumulator: 0.1", "initial_accumulator: 0.2"),
      with("name: user", "name: person"),
      with("l2: 0.02,", "l2: 0.03,"),
      with("l2_latent: 0.01", "l2_latent: 0.02"),
      with("separator: \"|\"", "separator: \",\""),
      with("combine: sqrt", "combine: mean"),
      with("  - {name: user, l2: 0.02, l2_latent: 0.01}\n", "")};
  for (std::size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    CHECK(others[i] != own);
    for (std::size_t j = 0; j < i; ++j) CHECK(others[i] != others[j]);
  }
}

TEST_CASE("a key that stands twice in a model is refused with its line") {
  CHECK_THAT(error_of(std::string(text) + "epochs: 2\n"),
             ContainsSubstring("has 'epochs' twice") && ContainsSubstring("line 11"));
  CHECK_THAT(error_of("model: logistic_regression\nfields: [{name: a, l2: 1, l2: 2}]\n"),
             ContainsSubstring("'l2' twice"));
}

TEST_CASE("a folder given as a model is called a folder") {
  try {
    ModelConfig::load("/");
    FAIL("it was taken");
  } catch (const hyperframes::Error& error) {
    CHECK_THAT(error.what(), ContainsSubstring("it is a folder"));
  }
}
