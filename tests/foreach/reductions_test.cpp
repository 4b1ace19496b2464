// Every reduction of formula/list.def over lists against the operator for each tensor, to the bit: types, strategies,
// gradients, and calls made again.

#include <functional>

#include "tests/foreach/support.h"
#include "tests/support/announced_calls.h"

namespace lorry::foreach::test {
namespace {

struct ListReduction {
  const char* name;
  Op op;
  std::function<TensorList(const TensorList&)> together;
  std::function<Tensor(const Tensor&)> alone;
};

const ListReduction kReductions[] = {
#define LORRY_LIST_REDUCTION(name, ...)                                             \
  {#name, Op::foreach_##name, [](const TensorList& x) { return foreach::name(x); }, \
   [](const Tensor& x) { return lorry::name(x); }},
#include "lorry/formula/list.def"
};

/// Lists of one dtype and of several, with special values; no tensor is empty, for there may be nothing to choose.
std::vector<std::vector<Tensor>> lists() {
  std::vector<std::vector<Tensor>> all;
  for (const DType dtype : kDTypes) {
    all.push_back(assorted(dtype, 1));
    std::erase_if(all.back(), [](const Tensor& x) { return x.numel() == 0; });
  }
  std::vector<Tensor> mixed = all[static_cast<size_t>(kF32)];
  for (const DType dtype : {kBF16, kF64, kI32})
    for (const Tensor& x : all[static_cast<size_t>(dtype)]) mixed.push_back(x);
  all.push_back(mixed);
  const double inf = INFINITY, nan = NAN;
  for (const DType dtype : {kF16, kBF16, kF32, kF64})
    all.push_back({tensor({0.0, -0.0, 1.0}).to(dtype), tensor({inf, -inf, 2.0}).to(dtype),
                   tensor({1.0, nan, 0.0}).to(dtype), zeros({5'000}, {dtype})});
  return all;
}

TEST(ListReductions, give_each_tensor_the_bits_of_its_operator) {
  for (const ListReduction& r : kReductions)
    for (const std::vector<Tensor>& x : lists())
      for (const Strategy strategy : kAll) {
        SCOPED_TRACE(testing::Message() << r.name << " " << describe(x[0]) << " " << name(strategy));
        const StrategyScope scope(strategy);
        std::vector<Tensor> want;
        for (const Tensor& t : x) want.push_back(r.alone(t));
        const TensorList list(x);
        EXPECT_TRUE(same_bits(r.together(list), want));
        EXPECT_TRUE(same_bits(r.together(list), want)) << "once more, by the plan that is there";
      }
}

TEST(ListReductions, are_one_call_that_is_run_again) {
  for (const ListReduction& r : kReductions)
    for (const std::vector<Tensor>& x : lists()) {
      SCOPED_TRACE(testing::Message() << r.name << " " << describe(x[0]));
      const TensorList list(x);
      const std::vector<lorry::test::Heard> calls = lorry::test::heard_of([&] { r.together(list); });
      ASSERT_EQ(calls.size(), 1u);
      EXPECT_EQ(calls[0].op, r.op);
      EXPECT_TRUE(same_bits(TensorList(lorry::test::run_again(calls[0])), calls[0].outputs));
    }
}

TEST(ListReductions, are_the_operators_of_their_entries_where_gradients_are_recorded) {
  for (const ListReduction& r : kReductions) {
    SCOPED_TRACE(r.name);
    const Tensor a = random_tensor({5}, kF32, 1).requires_grad_(), b = random_tensor({4}, kF32, 1).requires_grad_();
    const Tensor together = r.together(TensorList({a}))[0], alone = r.alone(b);
    EXPECT_EQ(together.requires_grad(), alone.requires_grad());
  }
}

}  // namespace
}  // namespace lorry::foreach::test
