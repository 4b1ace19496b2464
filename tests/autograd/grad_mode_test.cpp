// The scopes that switch recording: what each does inside, and that its end gives back what it changed and nothing
// else.

#include "lorry/autograd/grad_mode.h"

#include <gtest/gtest.h>

#include <memory>

#include "lorry/ops/ops.h"

namespace lorry::test {
namespace {

Tensor leaf() { return ones({3}).requires_grad_(); }

TEST(GradMode, inference_mode_of_false_records_and_makes_ordinary_tensors) {
  const Tensor x = leaf();
  {
    const InferenceMode inference;
    EXPECT_TRUE((x * 2).is_inference());
    {
      const InferenceMode off(false);
      EXPECT_FALSE(inference_enabled());
      EXPECT_TRUE(grad_enabled());
      const Tensor y = x * 2;
      EXPECT_FALSE(y.is_inference());
      EXPECT_TRUE(y.requires_grad());
      y.sum().backward();
    }
    EXPECT_TRUE(inference_enabled());
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 2, 2}));
  EXPECT_TRUE(grad_enabled());
}

TEST(GradMode, inference_mode_of_false_ends_no_grad_too) {
  const Tensor x = leaf();
  const NoGrad quiet;
  {
    const InferenceMode off(false);
    EXPECT_TRUE((x * 2).requires_grad());
  }
  EXPECT_FALSE((x * 2).requires_grad());
}

TEST(GradMode, enable_grad_records_nothing_in_inference_mode) {
  const Tensor x = leaf();
  const InferenceMode inference;
  const EnableGrad recording;
  const Tensor y = x * 2;
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.is_inference());
}

TEST(GradMode, scopes_nest_and_restore) {
  const Tensor x = leaf();
  {
    const NoGrad quiet;
    EXPECT_FALSE(grad_enabled());
    {
      const EnableGrad recording;
      EXPECT_TRUE((x * 2).requires_grad());
      try {
        const NoGrad again;
        throw 1;
      } catch (int) {
      }
      EXPECT_TRUE(grad_enabled());
    }
    EXPECT_FALSE((x * 2).requires_grad());
  }
  EXPECT_TRUE((x * 2).requires_grad());
}

TEST(GradMode, the_end_of_a_scope_leaves_the_modes_of_others_alone) {
  auto quiet = std::make_unique<NoGrad>();
  const ModeScope profiling(kProfileMode, 0);  // begins inside, ends outside
  quiet.reset();
  EXPECT_TRUE(mode(kProfileMode));
  EXPECT_TRUE(grad_enabled());
}

}  // namespace
}  // namespace lorry::test
