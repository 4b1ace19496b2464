#pragma once

// The samples of the operator table as functions of tensors, for tests that run each operator in several ways.

#include "tests/ops/operator_samples.h"
#include "tests/trace/support.h"

namespace lorry::test {

/// A sample in one dtype.
struct OperatorCall {
  const Sample& sample;
  MakeArguments make;                                    ///< the defined operands, in new memory
  std::function<Tensors(const Tensors& defined)> whole;  ///< all operands, from these
  Function call;
};

/// Calls `check` for each sample of a row in each dtype that it accepts, until a test fails.
inline void each_call(Op op, const std::function<void(const OperatorCall&)>& check) {
  for (const Sample* sample : samples_of(op))
    for (const DType dtype : kDTypes) {
      if (!sample->accepts(dtype)) continue;
      SCOPED_TRACE(fmt::format("{} {}", name(op), dtype));
      const Tensors all = make_inputs(*sample, dtype, Memory::contiguous);
      const auto make = [&](uint64_t) {
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
      check({*sample, make, whole, [&](const Tensors& x) { return sample->call(whole(x)); }});
      if (testing::Test::HasFailure()) return;
    }
}

}  // namespace lorry::test
