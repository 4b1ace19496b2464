// Random functions and every operator, replayed over other elements, against the functions as they are, to the bit.
// LORRY_TEST_SCALE multiplies the 300 functions.

#include <gtest/gtest.h>

#include <set>

#include "lorry/replay/graph.h"
#include "tests/support/scale.h"
#include "tests/trace/operator_calls.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

/// Gives `to` the elements of `from`, storage by storage: views may overlap or repeat elements.
void write_elements(const Tensors& to, const Tensors& from) {
  const NoGrad quiet;
  std::set<uint64_t> written;
  for (size_t i = 0; i < to.size(); ++i) {
    if (!to[i].defined() || to[i].numel() == 0 || !written.insert(to[i].storage().id()).second) continue;
    const auto whole = [](const Tensor& x) {
      const int64_t n = x.storage().bytes() / size_of(x.dtype());
      return x.detach().as_strided({n}, {1}, 0);
    };
    whole(to[i]).copy_(whole(from[i]));
  }
}

/// Expects a graph of f to give f's results, for the elements of its capture and for others.
void expect_replayed(const MakeArguments& make, const Function& f) {
  Outcome outcome{.results = {}, .arguments = make(1)};
  std::optional<replay::Graph> graph;
  run_seeded(1, outcome, [&](const Tensors& x) {
    graph.emplace([&] { return f(x); }, replay::CaptureOptions{.warm_up = 0});
    return graph->outputs();
  });
  expect_same(outcome, run_plain(make, f, 1), "the capture");
  for (const uint64_t seed : {2, 3, 1}) {
    write_elements(outcome.arguments, make(seed));
    run_seeded(seed, outcome, [&](const Tensors&) {
      graph->replay();
      return graph->outputs();
    });
    expect_same(outcome, run_plain(make, f, seed), "a replay");
  }
}

TEST(ReplayPrograms, give_the_bits_of_random_functions) {
  const std::vector<uint64_t> all = seeds(300);
  size_t replayed = 0;
  for (const uint64_t seed : all) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 30));
    try {
      expect_replayed(f.make, f.call);
      ++replayed;
    } catch (const CaptureError& error) {  // on a GPU: a tensor is made from numbers of the host
      EXPECT_FALSE(default_device().is_cpu()) << error.what();
      EXPECT_NE(std::string(error.what()).find("host memory is copied"), std::string::npos) << error.what();
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(replayed, all.size() / 2);
}

class ReplayOperators : public testing::TestWithParam<int> {};

TEST_P(ReplayOperators, give_the_bits_of_calls) {
  const Op op = static_cast<Op>(GetParam());
  if (op == Op::nonzero || op == Op::unique || op == Op::multinomial || op == Op::empty)
    GTEST_SKIP() << "the host reads sizes or checks elements; or there are none";
  if (op == Op::transfer && !default_device().is_cpu()) GTEST_SKIP() << "the host waits for the copy";
  each_call(op, [](const OperatorCall& x) { expect_replayed(x.make, x.call); });
}

INSTANTIATE_TEST_SUITE_P(All, ReplayOperators, testing::Range(0, kOpCount),
                         [](const auto& info) { return std::string(name(static_cast<Op>(info.param))); });

}  // namespace
}  // namespace lorry::test
