// Gradients of random programs with views and in-place writes against exact derivatives that use no tape.
// LORRY_TEST_SCALE multiplies the 500 programs.

#include "tests/autograd/programs.h"

#include <gtest/gtest.h>

#include <memory>

#include "lorry/autograd/engine.h"
#include "lorry/memory/memory.h"
#include "lorry/ops/ops.h"
#include "tests/support/scale.h"
#include "tests/support/tensors.h"

namespace lorry::test {
namespace {

using Numbers = std::vector<double>;

Numbers random_numbers(std::mt19937& random, size_t count) {
  Numbers out(count);
  for (double& x : out) x = std::uniform_real_distribution<>(-1, 1)(random);
  return out;
}

double dot(const Tensor& gradient, const Numbers& direction) {
  if (!gradient.defined()) return 0;
  const Numbers g = read(gradient.detach());
  EXPECT_EQ(g.size(), direction.size());
  double sum = 0;
  for (size_t i = 0; i < direction.size(); ++i) sum += g[i] * direction[i];
  return sum;
}

bool close(double got, double expected) { return std::abs(got - expected) <= 1e-9 * (1 + std::abs(expected)); }

Model modelled(const Program& program, const Model::Seeds& seeds = {}, const Model::Probe* probe = nullptr) {
  Model model;
  for (const Step& step : program.steps) model.run(step, seeds, probe);
  return model;
}

/// Checks everything that can be asked of one program; false when Lorry refused it, which it may.
class Check {
 public:
  explicit Check(uint32_t seed)
      : seed_(seed), random_(seed + 1), program_(random_program(seed, 18)), model_(modelled(program_)) {}

  bool run() {
    SCOPED_TRACE(fmt::format("program of seed {}:\n{}", seed_, to_string(program_)));
    try {
      values();
      if (!model_loss_requires_grad()) return true;
      backward();
      inner();
      second();
    } catch (const GradError& e) {
      EXPECT_TRUE(program_.may_be_refused) << e.what();
      EXPECT_NE(std::string_view(e.what()).find("overwritten in place"), std::string_view::npos) << e.what();
      return false;
    }
    return true;
  }

 private:
  bool model_loss_requires_grad() const {
    return std::any_of(program_.loss.begin(), program_.loss.end(),
                       [&](const auto& p) { return model_.requires_grad(p.first); });
  }

  void values() {
    const Execution run = execute(program_);
    for (size_t v = 0; v < run.values.size(); ++v) {
      const Numbers got = read(run.values[v].detach());
      const auto expected = model_.read(static_cast<int>(v), nullptr);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(close(got[i], expected[i].value)) << "value v" << v << " element " << i;
      EXPECT_EQ(run.values[v].requires_grad(), model_.requires_grad(static_cast<int>(v))) << "v" << v;
    }
  }

  double derivative(const Version& version, const Numbers& direction) const {
    const Model::Probe probe{version, direction};
    Model model = modelled(program_, {}, &probe);
    return model.loss(program_, &probe).a;
  }

  void compare(const Tensor& gradient, const Version& version, std::string_view what) {
    const Numbers direction = random_numbers(random_, model_.values()[static_cast<size_t>(version.value)].at.size());
    const double got = dot(gradient, direction), expected = derivative(version, direction);
    EXPECT_TRUE(close(got, expected)) << what << " of v" << version.value << ": " << got << ", expected " << expected;
  }

  int last_step() const { return static_cast<int>(program_.steps.size()); }

  /// backward(): leaves, hooks, retained gradients.
  void backward() {
    const Execution run = execute(program_);
    // A view learns of a write when it is next asked for its history, and what it retains follows.
    for (const Tensor& x : run.values) (void)x.grad_fn();
    run.loss.backward();
    for (size_t v = 0, leaf = 0; v < run.values.size(); ++v)
      if (leaf < run.leaves.size() && run.values[v].is_same(run.leaves[leaf])) {
        compare(run.leaves[leaf].grad(), model_.version(static_cast<int>(v), last_step()), "grad()");
        ++leaf;
      }
    for (const auto& heard : run.hooks) {
      const int v = program_.steps[static_cast<size_t>(heard->step)].x;
      EXPECT_LE(heard->calls, 1) << "hook of step " << heard->step;
      compare(heard->gradient, model_.version(v, heard->step), "hook");
    }
    for (const Step& step : program_.steps)
      if (step.action == Action::retain)
        compare(run.values[static_cast<size_t>(step.x)].grad(), model_.version(step.x, last_step()),
                "retained gradient");
  }

  /// grad() of every value.
  void inner() {
    const Execution run = execute(program_);
    std::vector<Tensor> asked;
    std::vector<int> numbers;
    for (size_t v = 0; v < run.values.size(); ++v)
      if (run.values[v].requires_grad()) {
        asked.push_back(run.values[v]);
        numbers.push_back(static_cast<int>(v));
      }
    const auto together = autograd::grad({run.loss}, asked, {}, {.retain_graph = true, .allow_unused = true});
    for (size_t i = 0; i < asked.size(); ++i)
      compare(together[i], model_.version(numbers[i], last_step()), "grad({loss}, ...)");
    const size_t one = random_() % asked.size();
    const auto alone = autograd::grad({run.loss}, {asked[one]}, {}, {.allow_unused = true});
    compare(alone[0], model_.version(numbers[one], last_step()), "grad({loss}, one)");
  }

  /// The gradient of a directional derivative, with respect to the leaves.
  void second() {
    const Execution run = execute(program_);
    Model::Seeds seeds;
    for (const Tensor& leaf : run.leaves) {
      seeds.a.push_back(random_numbers(random_, static_cast<size_t>(leaf.numel())));
      seeds.b.push_back(random_numbers(random_, static_cast<size_t>(leaf.numel())));
    }
    const auto first = autograd::grad({run.loss}, run.leaves, {}, {.create_graph = true, .allow_unused = true});
    Tensor slope = zeros({}, {kF64});
    for (size_t i = 0; i < first.size(); ++i)
      if (first[i].defined()) slope = slope.add(first[i].mul(lorry::test::values(first[i].sizes(), seeds.a[i])).sum());
    double got = 0;
    if (slope.requires_grad()) {
      const auto second = autograd::grad({slope}, run.leaves, {}, {.allow_unused = true});
      for (size_t i = 0; i < second.size(); ++i) got += dot(second[i], seeds.b[i]);
    }
    Model model = modelled(program_, seeds);
    const HyperDual loss = model.loss(program_);
    EXPECT_TRUE(close(slope.detach().item<double>(), loss.a))
        << "slope " << slope.detach().item<double>() << ", expected " << loss.a;
    EXPECT_TRUE(close(got, loss.ab)) << "second derivative " << got << ", expected " << loss.ab;
  }

  uint32_t seed_;
  std::mt19937 random_;
  Program program_;
  Model model_;
};

TEST(Programs, gradients_of_random_programs_are_their_derivatives) {
  const int64_t count = scaled(500);
  int64_t refused = 0, failed = 0;
  for (int64_t i = 0; i < count && failed < 5; ++i) {
    refused += Check(static_cast<uint32_t>(i + 1)).run() ? 0 : 1;
    if (HasFailure()) ++failed;
  }
  EXPECT_LE(refused, count / 4) << "too many programs are refused for the test to say much";
}

/// The model's own derivatives against central differences of its values.
TEST(Programs, the_models_derivatives_are_those_of_its_values) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Program program = random_program(seed, 18);
    std::mt19937 random(seed);
    Model::Seeds seeds;
    for (const Step& step : program.steps)
      if (step.action == Action::leaf) seeds.a.push_back(random_numbers(random, step.data.size()));
    const auto at = [&](double distance) {
      Program moved = program;
      size_t leaf = 0;
      for (Step& step : moved.steps) {
        if (step.action == Action::leaf) {
          for (size_t i = 0; i < step.data.size(); ++i) step.data[i] += distance * seeds.a[leaf][i];
          ++leaf;
        }
      }
      return modelled(moved).loss(moved).value;
    };
    const bool cuts = std::any_of(program.steps.begin(), program.steps.end(), [](const Step& step) {
      return step.action == Action::detach || step.action == Action::write_quietly;
    });
    if (cuts) continue;  // what the tape does not follow is no derivative
    const double slope = modelled(program, seeds).loss(program).a;
    EXPECT_NEAR(slope, (at(1e-6) - at(-1e-6)) / 2e-6, 1e-6 * (1 + std::abs(slope))) << to_string(program);
  }
}

TEST(Programs, graphs_that_nobody_walks_are_freed) {
  const Device device = default_device();
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const int64_t before = memory::stats(device).live_blocks;
    { const Execution run = execute(random_program(seed, 18)); }
    EXPECT_EQ(memory::stats(device).live_blocks, before) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lorry::test
