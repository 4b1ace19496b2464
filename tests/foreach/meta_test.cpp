// Lists of tensors on meta: every row gives results like those elsewhere, and nothing is computed.

#include "lorry/kernels/meta.h"
#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

std::vector<Tensor> on_meta(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const Tensor& x : tensors) all.push_back(empty_strided(x.sizes(), x.strides(), {x.dtype(), kMeta}));
  return all;
}

void expect_same_layout(const TensorList& got, const TensorList& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].device(), kMeta);
    EXPECT_EQ(got[i].dtype(), want[i].dtype());
    EXPECT_EQ(got[i].layout(), want[i].layout()) << i;
    EXPECT_EQ(got[i].version(), want[i].version()) << i;
  }
}

class MetaLists : public testing::TestWithParam<int> {};

TEST_P(MetaLists, get_results_like_those_elsewhere) {
  const auto op = static_cast<Pointwise>(GetParam());
  for (const DType dtype : {kF32, kBF16, kI64}) {
    SCOPED_TRACE(name(dtype));
    std::vector<TensorList> lists, there;
    for (int k = 0; k < row(op).arity; ++k) {
      std::vector<Tensor> ones;
      for (const Tensor& x : assorted(op == Pointwise::where && k == 0 ? kBool : dtype, 1))
        ones.push_back(ones_like(x));
      lists.emplace_back(ones), there.emplace_back(on_meta(ones));
    }
    const auto call = [&](const std::vector<TensorList>& x) {
      switch (x.size()) {
        case 1:
          return apply(op, {x[0]});
        case 2:
          return apply(op, {x[0], x[1]});
        case 3:
          return apply(op, {x[0], x[1], x[2]});
        default:
          return apply(op, {x[0], x[1], x[2], x[3]});
      }
    };
    TensorList want;
    try {
      want = call(lists);
    } catch (const DTypeError&) {
      EXPECT_THROW(call(there), DTypeError);
      continue;
    }
    const int64_t before = kernels::meta::calls();
    expect_same_layout(call(there), want);
    EXPECT_GT(kernels::meta::calls(), before);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, MetaLists, testing::Range(0, kPointwiseCount),
                         [](const auto& info) { return kPointwise[info.param].name; });

TEST(MetaLists, are_written_copied_filled_measured_and_clipped) {
  const std::vector<Tensor> x = assorted(kF32, 3), y = assorted(kF32, 4), a = on_meta(x), b = on_meta(y);
  for (const auto& [first, second] : {std::pair(x, y), std::pair(a, b)}) {
    mul_(first, 2);
    addcdiv_(first, second, second, 0.5);
    std::vector<Scalar> numbers;
    for (size_t i = 0; i < first.size(); ++i) numbers.emplace_back(static_cast<double>(i));
    add_(first, numbers);
    add_(first, zeros({}, {.device = kCPU}));
    add_(first, zeros({}, {.device = first[0].device()}));
    copy_(first, second);
    zero_(first);
  }
  expect_same_layout(a, x);
  expect_same_layout(norm(a), norm(x));
  expect_same_layout(to(a, kBF16), to(x, kBF16));
  expect_same_layout(std::vector<Tensor>{clip_norm_(a, 1)}, std::vector<Tensor>{clip_norm_(x, 1)});
  expect_same_layout(a, x);
  EXPECT_THROW(clip_norm_(a, 1, 2, true), DeviceError) << "the host would read the norm";
}

}  // namespace
}  // namespace lorry::foreach::test
