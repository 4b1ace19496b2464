// In-place forms on tensors that show an element several times. Those that write one value, whichever appearance is
// chosen, answer as in PyTorch; all others refuse (door::require_writable).

#include <gtest/gtest.h>

#include "tests/ops/operands.h"

namespace lorry::test {
namespace {

Tensor column() { return tensor({{1.0}, {2.0}, {3.0}}); }
using Values = std::vector<double>;

TEST(Repeats, fill_and_zero_write_every_element_once) {
  const Tensor x = column(), wide = x.expand({2, 3, 4});
  EXPECT_TRUE(wide.fill_(7).is_same(wide));
  EXPECT_EQ(x.to_vector<double>(), (Values{7, 7, 7}));
  const uint32_t version = x.version();
  wide.zero_();
  EXPECT_EQ(x.to_vector<double>(), (Values{0, 0, 0}));
  EXPECT_GT(x.version(), version);
}

TEST(Repeats, masked_fill_writes_where_any_appearance_is_chosen) {
  for (int64_t row = 0; row < 3; ++row) {
    const Tensor x = column(), mask = zeros({3, 4}, {kBool});
    mask.select(0, row).select(0, 2).fill_(true);
    x.expand({2, 3, 4}).masked_fill_(mask, 9);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(element(x, i), i == row ? 9 : static_cast<double>(i + 1));
  }
}

TEST(Repeats, triangles_zero_what_any_appearance_outside_zeroes) {
  const Tensor lower = column(), upper = column(), flags = ones({3, 1}, {kBool});
  lower.expand({3, 3}).tril_();
  EXPECT_EQ(lower.to_vector<double>(), (Values{0, 0, 3}));
  upper.expand({2, 3, 3}).triu_();
  EXPECT_EQ(upper.to_vector<double>(), (Values{1, 0, 0}));
  flags.expand({3, 3}).tril_(INT64_MAX);
  EXPECT_TRUE(flags.all().item<bool>());
  flags.expand({3, 3}).tril_(1);
  EXPECT_EQ(flags.to_vector<double>(), (Values{0, 1, 1}));
}

TEST(Repeats, gradients_know_of_what_was_filled) {
  const Tensor leaf = column().requires_grad_(), x = leaf.mul(2), wide = x.expand({3, 2});
  wide.masked_fill_(tensor({{true, false}, {false, false}, {false, false}}), 5);
  x.sum().backward();
  EXPECT_EQ(leaf.grad().to_vector<double>(), (Values{0, 2, 2}));
  EXPECT_THROW(leaf.expand({3, 2}).fill_(1), GradError);
}

TEST(Repeats, other_writes_are_refused) {
  const Tensor x = column(), wide = x.expand({3, 3});
  EXPECT_THROW(wide.add_(1), ShapeError);
  EXPECT_THROW(wide.exp_(), ShapeError);
  EXPECT_THROW(wide.copy_(ones({3, 3})), ShapeError);
  EXPECT_THROW(wide.uniform_(), ShapeError);
  EXPECT_EQ(x.to_vector<double>(), (Values{1, 2, 3}));
}

}  // namespace
}  // namespace lorry::test
