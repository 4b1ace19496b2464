// Random functions, recorded and interpreted; LORRY_TEST_SCALE multiplies the 500 functions. And every operator.

#include <gtest/gtest.h>

#include "lorry/optim/run_row.h"
#include "tests/support/scale.h"
#include "tests/trace/operator_calls.h"
#include "tests/trace/random_programs.h"

namespace lorry::test {
namespace {

TEST(TracePrograms, interpreted_as_run) {
  for (const uint64_t seed : seeds(500)) {
    SCOPED_TRACE(fmt::format("function {}", seed));
    const RandomFunction f = random_function(seed, 5 + static_cast<int>(seed % 30));
    expect_traced(f.make, f.call);
    if (HasFailure()) return;
  }
}

class TraceOperators : public testing::TestWithParam<int> {};

TEST_P(TraceOperators, interpreted_as_run) {
  const Op op = static_cast<Op>(GetParam());
  if (op == Op::nonzero || op == Op::unique || op == Op::empty) return;
  each_call(op, [](const OperatorCall& x) {
    expect_traced(x.make, x.call);
    if (x.sample.in_place == nullptr) return;
    expect_traced(x.make, [&](const Tensors& operands) {
      const Tensor copy = operands[0].clone();
      Tensors inputs = x.whole(operands);
      inputs[0] = copy;
      x.sample.in_place(inputs);
      return Tensors{copy};
    });
  });
}

INSTANTIATE_TEST_SUITE_P(All, TraceOperators, testing::Range(0, kOpCount),
                         [](const auto& info) { return std::string(name(static_cast<Op>(info.param))); });

}  // namespace
}  // namespace lorry::test
