// Which calls of attention go to cuDNN. Only the choice: no device is needed.

#include <gtest/gtest.h>

#include "lorry/kernels/cuda/attention/attention.h"

namespace lorry::kernels::cuda {
namespace {

alignas(16) char g_memory[64];

Array array(const Dims& sizes, const Dims& strides, DType dtype = kBF16) {
  Array x;
  x.data = g_memory, x.dtype = dtype, x.layout = Layout::strided(sizes, strides);
  return x;
}

/// q, k and v as one linear layer leaves them: [b, t, 3, h, d].
AttentionArgs packed(int64_t b, int64_t h, int64_t t, int64_t d) {
  AttentionArgs args;
  args.q = args.k = args.v = array({b, h, t, d}, {3 * t * h * d, d, 3 * h * d, 1});
  args.out = array({b, h, t, d}, {t * h * d, d, h * d, 1});
  args.causal = true;
  return args;
}

AttentionGrads gradients(const AttentionArgs& args) { return {args.out, args.q, args.k, args.v}; }

TEST(AttentionChoice, cudnn_suits_what_a_gpt_trains_with) {
  const AttentionArgs args = packed(8, 12, 1024, 64);
  const AttentionGrads grads = gradients(args);
  EXPECT_TRUE(suits_cudnn(args));
  EXPECT_TRUE(suits_cudnn(args, &grads));
}

TEST(AttentionChoice, everything_else_is_left_to_the_plain_kernels) {
  EXPECT_FALSE(suits_cudnn(packed(8, 12, 1000, 64)));  // lengths
  EXPECT_FALSE(suits_cudnn(packed(8, 12, 1024, 60)));  // widths
  EXPECT_FALSE(suits_cudnn(packed(8, 12, 1024, 136)));
  EXPECT_FALSE(suits_cudnn(packed(0, 12, 1024, 64)));  // nothing to do
  AttentionArgs args = packed(2, 2, 64, 64);
  args.dropout = 0.1;
  EXPECT_FALSE(suits_cudnn(args));
  args = packed(2, 2, 64, 64);
  args.q.dtype = kF32;
  EXPECT_FALSE(suits_cudnn(args));
  args = packed(2, 2, 64, 64);
  args.mask = array({2, 2, 64, 64}, {0, 0, 64, 1}, kBool);
  EXPECT_FALSE(suits_cudnn(args));
  args = packed(2, 2, 64, 64);
  args.v.data = g_memory + 2;
  EXPECT_FALSE(suits_cudnn(args));
  args = packed(2, 2, 64, 64);
  args.k.layout.strides[0] = 0;  // expanded
  EXPECT_FALSE(suits_cudnn(args));
}

TEST(AttentionChoice, the_backward_pass_is_cut_so_that_its_memory_is_bounded) {
  EXPECT_EQ(cudnn_backward_parts(packed(8, 12, 1024, 64)), 1);   // 192 MiB
  EXPECT_EQ(cudnn_backward_parts(packed(32, 12, 1024, 64)), 2);  // 768 MiB
  EXPECT_EQ(cudnn_backward_parts(packed(3, 16, 4096, 64)), 3);   // 512 MiB a batch entry
  EXPECT_EQ(cudnn_backward_parts(packed(3, 16, 8192, 64)), 0);
  const AttentionArgs args = packed(3, 16, 8192, 64);
  const AttentionGrads grads = gradients(args);
  EXPECT_TRUE(suits_cudnn(args));
  EXPECT_FALSE(suits_cudnn(args, &grads));
}

}  // namespace
}  // namespace lorry::kernels::cuda
