// The results of operators that are no views have memory of their own: no element twice, no base, and free to be
// written while gradients are recorded, whether or not they were when the result was made.

#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/grad_mode.h"
#include "lorry/formula/pointwise.h"
#include "lorry/ops/ops.h"
#include "lorry/ops/pointwise_call.h"
#include "tests/autograd/leaves.h"
#include "tests/ops/operator_samples.h"

namespace lorry::test {
namespace {

/// Everything that a result has to be, and a write with a history of its own.
void expect_own_memory(const Tensor& result) {
  EXPECT_FALSE(result.is_view());
  EXPECT_FALSE(result.layout().has_internal_overlap())
      << describe(result) << " with strides " << to_string(result.strides());
  if (!is_floating(result.dtype())) return;
  const EnableGrad recording;
  const Tensor factor = full({}, 2, result.options()).requires_grad_();
  EXPECT_NO_THROW(result.mul_(factor));
  EXPECT_TRUE(result.requires_grad());
  EXPECT_NO_THROW(autograd::grad({result.sum()}, {factor}));
}

class Results : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }

  static void check(const Sample& sample) {
    for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
      if (sample.by_memory && memory != Memory::contiguous) continue;
      for (const bool recorded : {true, false}) {
        SCOPED_TRACE(std::string(recorded ? "recorded" : "not recorded") + ", memory " +
                     std::to_string(static_cast<int>(memory)));
        const Tensors inputs = recorded ? leaves(sample, memory) : make_inputs(sample, kF64, memory);
        Tensors results;
        {
          const ModeScope mode(recorded ? uint32_t{kGradMode} : 0u, recorded ? 0u : uint32_t{kGradMode});
          results = sample.call(inputs);
        }
        for (const Tensor& result : results)
          if (result.defined() && !result.is_same(inputs.empty() ? Tensor() : inputs[0])) expect_own_memory(result);
      }
    }
  }
};

TEST_P(Results, of_operators_that_are_no_views_have_memory_of_their_own) {
  for (const Sample* sample : samples_of(op())) {
    if (sample->internal) continue;
    SCOPED_TRACE("sample " + std::to_string(sample - samples_of(op())[0]));
    check(*sample);
    if (sample->leading != 0) check(without_rows(*sample));
    if (sample->any_rank)
      for (const int rank : {0, 1, 3}) check(with_rank(*sample, rank));
  }
}

auto rows_without_views() {
  std::vector<int> found;
  for (int i = 0; i < kOpCount; ++i)
    if (kOps[i].kind == OpKind::differentiable || kOps[i].kind == OpKind::constant) found.push_back(i);
  return testing::ValuesIn(found);
}
INSTANTIATE_TEST_SUITE_P(Rows, Results, rows_without_views(),
                         [](const auto& info) { return std::string(kOps[info.param].name); });

TEST(PointwiseResults, have_memory_of_their_own) {
  for (int i = 0; i < kOpCount; ++i) {
    if (kOps[i].kind != OpKind::pointwise) continue;
    SCOPED_TRACE(kOps[i].name);
    const PointwiseRow& row = kPointwise[i];
    const bool whole = row.domain == Domain::whole || row.domain == Domain::integer;
    Tensors operands;
    for (int k = 0; k < row.arity; ++k)
      operands.push_back(full({3, 1}, 1,
                              {static_cast<Op>(i) == Op::where && k == 0 ? kBool
                               : whole                                   ? kI64
                                                                         : kF32})
                             .expand({3, 4}));
    const std::vector<Operand> given(operands.begin(), operands.end());
    expect_own_memory(ops::call(static_cast<Op>(i), given));
  }
}

class ComposedResults : public testing::Test {
 protected:
  void expect_own(const std::vector<std::pair<const char*, std::function<Tensor()>>>& calls) const {
    for (const auto& [what, call] : calls)
      for (const bool recorded : {true, false}) {
        SCOPED_TRACE(what);
        Tensor result;
        {
          const ModeScope mode(recorded ? uint32_t{kGradMode} : 0u, recorded ? 0u : uint32_t{kGradMode});
          result = call();
        }
        for (const Tensor& input : {x, one, cube}) EXPECT_NE(&result.storage(), &input.storage());
        expect_own_memory(result);
      }
  }

  const Tensor x = sample({2, 3}, kF32, 1), one = sample({1}, kF32, 2), cube = sample({2, 3, 4}, kF32, 3);
};

TEST_F(ComposedResults, of_repeating_and_moving_have_memory_of_their_own) {
  expect_own({
      {"repeat",
       [&] {
         return repeat(x, {2, 3});
       }},
      {"repeat once",
       [&] {
         return repeat(x, {1, 1});
       }},
      {"repeat of one element", [&] { return repeat(one, {5}); }},
      {"tile", [&] { return tile(x, {3}); }},
      {"repeat_interleave", [&] { return repeat_interleave(x, 2, 1); }},
      {"repeat_interleave of one element", [&] { return repeat_interleave(one, 4); }},
      {"repeat_interleave once", [&] { return repeat_interleave(x, 1, 0); }},
      {"repeat_interleave of nothing",
       [&] {
         return repeat_interleave(zeros({0, 3}), 2, 1);
       }},
      {"repeat_interleave by a tensor",
       [&] {
         return repeat_interleave(x, tensor({2, 1}), 0);
       }},
      {"roll", [&] { return roll(x, {1}); }},
      {"reshape that copies", [&] { return reshape(x.t(), {6}); }},
  });
}

TEST_F(ComposedResults, of_computing_have_memory_of_their_own) {
  expect_own({
      {"kthvalue", [&] { return std::get<0>(kthvalue(x, 2, 1)); }},
      {"kthvalue of one",
       [&] {
         return std::get<0>(kthvalue(sample({3, 1}, kF32, 4), 1, 1));
       }},
      {"median", [&] { return std::get<0>(median(x, 0)); }},
      {"sort along the first dimension", [&] { return std::get<0>(sort(x, 0)); }},
      {"sort of a row",
       [&] {
         return std::get<0>(sort(sample({1, 3}, kF32, 4), 0));
       }},
      {"diff of order 0", [&] { return diff(x, 0); }},
      {"softmax along the first dimension", [&] { return softmax(cube, 0); }},
      {"log_softmax in the middle", [&] { return log_softmax(cube, 1); }},
      {"addmv", [&] { return addmv(sample({2}, kF32, 5), x, sample({3}, kF32, 6)); }},
      {"linear_aligned",
       [&] {
         return linear_aligned(x, sample({5, 3}, kF32, 7));
       }},
      {"multinomial", [&] { return multinomial(ones({4}), 2).to(kF32); }},
      {"attention of rank 3", [&] { return scaled_dot_product_attention(cube, cube, cube); }},
      {"cross_entropy of every sample",
       [&] {
         return cross_entropy(cube, ones({2, 4}, {kI64}), {}, -100, Reduction::none);
       }},
      {"scatter_reduce",
       [&] {
         return scatter_reduce(x, 1, zeros({2, 3}, {kI64}), x, "mean", false);
       }},
      {"unique", [&] { return unique(x, true, false, false, 1).values; }},
      {"unique_consecutive", [&] { return unique_consecutive(x, false, false, 0).values; }},
      {"round", [&] { return round(x, 1); }},
      {"normal", [&] { return normal(x, x.abs()); }},
      {"logspace", [&] { return logspace(0, 1, 3); }},
  });
}

}  // namespace
}  // namespace lorry::test
