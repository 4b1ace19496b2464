// Undefined tensors given to modules and to what works on their parameters: refused by type.

#include <gtest/gtest.h>

#include "lorry/nn/gpt.h"
#include "lorry/nn/layers.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/clip.h"

namespace lorry::nn {
namespace {

TEST(UndefinedInModules, layers_refuse_them) {
  const Tensor none;
  EXPECT_THROW(Linear(2, 3).forward(none), ValueError);
  EXPECT_THROW(Embedding(2, 3).forward(none), ValueError);
  EXPECT_THROW(LayerNorm(Dims{3}).forward(none), ValueError);
  EXPECT_THROW(RMSNorm(Dims{3}).forward(none), ValueError);
  EXPECT_THROW(Dropout(0.5).forward(none), ValueError);
  const GPTConfig config{.vocab = 16, .context = 8, .layers = 1, .heads = 2, .width = 8};
  const GPT gpt(config);
  const Tensor tokens = zeros({1, 4}, {kI64});
  EXPECT_THROW(gpt.forward(none), ShapeError);
  EXPECT_THROW(gpt.loss(none, tokens), ShapeError);
  EXPECT_THROW(gpt.loss(tokens, none), ShapeError);
  EXPECT_THROW(gpt.blocks[0].forward(none), ValueError);
  EXPECT_THROW(gpt.blocks[0].attention.forward(none), ValueError);
  EXPECT_THROW(gpt.blocks[0].mlp.forward(none), ValueError);
  EXPECT_THROW(gpt.forward(PagedBatch{}, PagedCache(config, 1)), ShapeError);
  EXPECT_THROW(gpt.forward(PagedBatch{tokens[0], none, none, none}, PagedCache(config, 1)), ValueError);
}

TEST(UndefinedInModules, a_number_that_is_no_dtype_is_refused) {
  Linear layer(2, 3);
  EXPECT_THROW(layer.to(static_cast<DType>(77)), DTypeError);
  EXPECT_THROW(Linear(2, 3, true, {.dtype = static_cast<DType>(77)}), DTypeError);
}

TEST(UndefinedInModules, norms_of_lists_refuse_them) {
  EXPECT_THROW(optim::get_total_norm({ones({2}), Tensor()}), ValueError);
  EXPECT_THROW(optim::clip_grad_norm_({ones({2}), Tensor()}, 1.0), ValueError);
}

}  // namespace
}  // namespace lorry::nn
