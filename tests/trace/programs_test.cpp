// Random functions, recorded and interpreted; LORRY_TEST_SCALE multiplies the 500 functions. And every operator.

#include <gtest/gtest.h>

#include "lorry/optim/run_row.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/scale.h"
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
  for (const Sample* sample : samples_of(op))
    for (const DType dtype : kDTypes) {
      if (!sample->accepts(dtype)) continue;
      SCOPED_TRACE(fmt::format("{} {}", name(op), dtype));
      const Tensors all = make_inputs(*sample, dtype, Memory::contiguous);
      const MakeArguments make = [&](uint64_t) {
        Tensors inputs;
        for (const Tensor& x : all)
          if (x.defined()) inputs.push_back(x.clone());
        return inputs;
      };
      const auto whole = [&](const Tensors& defined) {
        Tensors inputs = all;
        auto next = defined.begin();
        for (Tensor& x : inputs)
          if (x.defined()) x = *next++;
        return inputs;
      };
      if (op == Op::nonzero || op == Op::unique || op == Op::empty) {
        continue;
      }
      expect_traced(make, [&](const Tensors& x) { return sample->call(whole(x)); });
      if (sample->in_place == nullptr) continue;
      expect_traced(make, [&](const Tensors& x) {
        const Tensor copy = x[0].clone();
        Tensors inputs = whole(x);
        inputs[0] = copy;
        sample->in_place(inputs);
        return Tensors{copy};
      });
    }
}

INSTANTIATE_TEST_SUITE_P(All, TraceOperators, testing::Range(0, kOpCount),
                         [](const auto& info) { return std::string(name(static_cast<Op>(info.param))); });

}  // namespace
}  // namespace lorry::test
