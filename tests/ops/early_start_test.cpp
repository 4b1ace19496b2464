// Kernels of a GPU start before the work in front of them ends (device/cuda/launch.h). Every operator's first kernel
// must wait until its operands are there.

#include <gtest/gtest.h>

#include "lorry/base/env.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/lorry.h"
#include "tests/ops/late_copy.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/on_cuda.h"

namespace lorry::test {
namespace {

#define LORRY_SKIP_UNLESS_ON_CUDA() \
  if (!default_device().is_cuda()) GTEST_SKIP() << "the default device is not a GPU"

/// Zeroes the operands, and enqueues that they get their values late.
void delay(const Tensors& operands) {
  std::vector<LateCopy> copies;
  Tensors values;  // memory that is given back after the copies, in the order of the stream
  for (const Tensor& x : operands) {
    if (!x.defined() || x.numel() == 0) continue;
    values.push_back(x.clone());
    copies.push_back({x.data_ptr(), values.back().data_ptr(), x.numel() * size_of(x.dtype())});
  }
  for (const Tensor& x : operands)
    if (x.defined()) x.zero_();
  device::synchronize(default_device());
  copy_late(current_stream(default_device()), copies);
}

/// Whether kernels start early here at all.
TEST(EarlyStart, happens) {
  LORRY_SKIP_UNLESS_ON_CUDA();
  if (cuda::properties(default_device().index).compute_capability < 90) GTEST_SKIP() << "the GPU is older than Hopper";
  if (env::text("CUDA_LAUNCH_BLOCKING").value_or("0") != "0") GTEST_SKIP() << "every launch waits for its end";
  int early = 0;
  for (int round = 0; round < 100 && early == 0; ++round) {
    const Tensor x = ones({1}, {kU8}), y = zeros({1}, {kU8});
    delay({x});
    copy_early(current_stream(default_device()), {y.data_ptr(), x.data_ptr(), 1});
    early += y.item<int>() == 0;
    device::synchronize(default_device());  // the late copy may not have been made
  }
  EXPECT_EQ(early, 1) << "a kernel that does not wait never saw memory as it was before";
}

class EarlyStarts : public testing::TestWithParam<int> {};

TEST_P(EarlyStarts, wait_for_operands) {
  LORRY_SKIP_UNLESS_ON_CUDA();
  for (const Sample* sample : samples_of(static_cast<Op>(GetParam())))
    for (const DType dtype : {kF32, kBF16, kI64, kBool}) {
      if (!sample->accepts(dtype) || sample->holds != nullptr) continue;
      SCOPED_TRACE(std::string(name(dtype)));
      const Tensors inputs = make_inputs(*sample, dtype);
      Tensors expected;
      for (const Tensor& y : sample->call(inputs)) expected.push_back(y.defined() ? y.clone() : y);
      delay(inputs);
      const Tensors results = sample->call(inputs);
      device::synchronize(default_device());
      ASSERT_EQ(results.size(), expected.size());
      for (size_t i = 0; i < results.size(); ++i) {
        if (!results[i].defined()) continue;
        EXPECT_TRUE(same_bits(results[i], expected[i])) << "result " << i;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Rows, EarlyStarts, testing::ValuesIn(sampled_rows()),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

TEST(EarlyStart, of_pointwise_and_list_kernels_waits_for_operands) {
  LORRY_SKIP_UNLESS_ON_CUDA();
  for (const int64_t n : {int64_t{5}, int64_t{4096}, int64_t{20'003}})
    for (const DType dtype : {kF32, kBF16, kF16, kF64}) {
      const Tensor x = arange(1, n + 1).remainder(7).add(1).to(dtype), y = arange(0, n).remainder(5).add(1).to(dtype);
      const std::vector<std::function<Tensors()>> calls = {
          [&] { return Tensors{x.add(y)}; },
          [&] { return Tensors{x.mul(3)}; },
          [&] { return Tensors{x.unsqueeze(1).add(y.narrow(0, 0, 5))}; },
          [&] { return Tensors{x.to(kF16)}; },
          [&] {
            return foreach::neg({x, y}).tensors();
          },
          [&] {
            return foreach::norm({x, y}, 2, kF64).tensors();
          }};
      for (size_t i = 0; i < calls.size(); ++i) {
        SCOPED_TRACE(i);
        const Tensors expected = calls[i]();
        delay({x, y});
        const Tensors results = calls[i]();
        device::synchronize(default_device());
        for (size_t k = 0; k < results.size(); ++k) EXPECT_TRUE(same_bits(results[k], expected[k]));
      }
    }
}

}  // namespace
}  // namespace lorry::test
