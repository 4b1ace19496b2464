// Every row of the operator table that is differentiated, against central differences through its samples: first and
// second derivatives, in-place forms, writes through views, and gradients of empty tensors.

#include <gtest/gtest.h>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/rules.h"
#include "lorry/formula/pointwise.h"
#include "tests/autograd/leaves.h"
#include "tests/ops/operator_samples.h"
#include "tests/support/gradcheck.h"

namespace lorry::test {
namespace {

bool has_gradient(Op op) { return row(op).kind == OpKind::differentiable || row(op).kind == OpKind::view; }

/// The first result, squared so that the second derivatives of linear operators do not vanish.
Function squared(const Sample& sample) {
  return [&sample](const Tensors& t) { return sample.call(t)[0].square(); };
}

/// Central differences of f, once and, through its gradients, twice.
void check(const Function& f, const Tensors& inputs, double step) {
  EXPECT_TRUE(gradcheck(f, inputs, {.step = step}));
  EXPECT_TRUE(gradgradcheck(f, inputs, {.step = step, .relative = 1e-4, .absolute = 1e-6}));
}

class OperatorGradients : public testing::TestWithParam<int> {
 protected:
  static Op op() { return static_cast<Op>(GetParam()); }
};

class InPlaceOperatorGradients : public OperatorGradients {};
class ViewGradients : public OperatorGradients {};

TEST_P(OperatorGradients, come_from_the_row_that_the_sample_is_for) {
  if (op() == Op::transfer && default_device().is_cpu()) GTEST_SKIP() << "from the CPU to the CPU nothing is recorded";
  for (const Sample* sample : samples_of(op())) EXPECT_EQ(sample->call(leaves(*sample))[0].grad_fn(), name(op()));
}

TEST_P(OperatorGradients, agree_with_central_differences_twice) {
  ASSERT_FALSE(samples_of(op()).empty());
  for (const Sample* sample : samples_of(op())) {
    EXPECT_TRUE(
        gradcheck([&](const Tensors& t) { return sample->call(t)[0]; }, leaves(*sample), {.step = sample->step}));
    check(squared(*sample), leaves(*sample), sample->step);
    if (!sample->by_memory) {
      EXPECT_TRUE(gradcheck(squared(*sample), leaves(*sample, Memory::transposed), {.step = sample->step}))
          << "transposed";
    }
  }
}

TEST_P(InPlaceOperatorGradients, agree_with_central_differences_twice) {
  for (const Sample* sample : samples_of(op())) {
    if (sample->in_place == nullptr) continue;
    const Function write = [&](const Tensors& t) {
      Tensors inputs = t;
      inputs[0] = t[0] * 2;
      sample->in_place(inputs);
      return inputs[0].square();
    };
    check(write, leaves(*sample), sample->step);
  }
}

TEST_P(ViewGradients, agree_with_central_differences_through_what_is_written) {
  for (const Sample* sample : samples_of(op())) {
    if (sample->call(make_inputs(*sample, kF64))[0].layout().has_internal_overlap()) continue;  // refuses to be written
    const Function write = [&](const Tensors& t) {
      const Tensor base = t[0] * 2;
      sample->call({base})[0].mul_(3).add_(sample->call({t[0].square()})[0]);
      return base.square();
    };
    check(write, leaves(*sample), sample->step);
  }
}

TEST_P(OperatorGradients, of_empty_tensors_have_their_sizes) {
  for (const Sample* given : samples_of(op())) {
    if (given->leading == 0) continue;
    const Sample sample = without_rows(*given);
    const Tensors inputs = leaves(sample);
    sample.call(inputs)[0].sum().backward();
    for (const Tensor& x : inputs)
      if (x.grad().defined()) {
        EXPECT_EQ(x.grad().sizes(), x.sizes());
      }
  }
}

template <class Wanted>
auto rows(const Wanted& wanted) {
  std::vector<int> found;
  for (int i = 0; i < kOpCount; ++i)
    if (has_gradient(static_cast<Op>(i)) && wanted(static_cast<Op>(i))) found.push_back(i);
  return testing::ValuesIn(found);
}
bool writes_in_place(Op op) {
  for (const Sample* sample : samples_of(op))
    if (sample->in_place != nullptr) return true;
  return false;
}
const auto kRowName = [](const auto& info) { return std::string(kOps[info.param].name); };
INSTANTIATE_TEST_SUITE_P(Rows, OperatorGradients, rows([](Op) { return true; }), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, InPlaceOperatorGradients, rows(writes_in_place), kRowName);
INSTANTIATE_TEST_SUITE_P(Rows, ViewGradients, rows([](Op op) { return row(op).kind == OpKind::view; }), kRowName);

TEST(OperatorRules, are_there_for_every_row_that_is_differentiated_and_no_other) {
  for (int i = 0; i < kOpCount; ++i) {
    const bool pointwise = kOps[i].kind == OpKind::pointwise;
    const bool wanted =
        pointwise ? differentiable(kPointwise[i].result, kPointwise[i].domain) : has_gradient(static_cast<Op>(i));
    EXPECT_EQ(autograd::find_rule(static_cast<Op>(i)) != nullptr, wanted) << kOps[i].name;
  }
}

TEST(OperatorRules, give_constants_no_history) {
  for (int i = 0; i < kOpCount; ++i) {
    if (kOps[i].kind != OpKind::constant) continue;
    for (const Sample* sample : samples_of(static_cast<Op>(i)))
      for (const Tensor& result : sample->call(leaves(*sample)))
        if (!sample->internal) {
          EXPECT_FALSE(result.requires_grad()) << kOps[i].name;
        }
  }
}

TEST(OperatorRules, of_masked_fills_hold_twice) {
  const Tensor x = make_inputs({.inputs = {value({3, 4})}}, kF64)[0].requires_grad_(),
               number = full({}, 0.7, {kF64}).requires_grad_();
  check([](const Tensors& t) { return (t[0] * 2).masked_fill(t[0].detach().gt(0), 3).square(); }, {x}, 1e-6);
  check([](const Tensors& t) { return (t[0] * 2).masked_fill_(t[0].detach().gt(0), t[1]).square(); }, {x, number},
        1e-6);
}

}  // namespace
}  // namespace lorry::test
