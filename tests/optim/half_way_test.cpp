// Steps of several launches that end by an exception between two of them, at the kernels' own interface: optimizers let
// reports wait.

#include "lorry/device/launches.h"
#include "lorry/ops/ops.h"
#include "tests/optim/lists.h"

namespace lorry::optim::test {
namespace {

using lorry::test::kGPU;
using Rule = formula::AdamW<false>;

/// Gives x the elements and hyper blocks of another list of f32. What the device keeps of the list itself stays.
void copy_elements(const Steppable<Rule>& x, const Steppable<Rule>& from) {
  const auto entries = x.list().entries(), others = from.list().entries();
  for (size_t e = 0; e < entries.size(); ++e)
    for (int k = 0; k < x.list().arrays(); ++k)
      device::copy(entries[e].at[k], kGPU, others[e].at[k], kGPU, 4 * entries[e].count, x.stream());
  device::copy(x.hyper_block_data(), kGPU, from.hyper_block_data(), kGPU,
               Steppable<Rule>::kHyperBlocks * sizeof(formula::HyperBlock<Rule, float>), x.stream());
}

/// A report of an earlier kernel arrives, and is thrown, while the launches of a step are under way.
TEST(HalfWay, a_step_that_threw_between_its_launches_leaves_the_next_one_right) {
  LORRY_SKIP_WITHOUT_CUDA();
  const std::vector<int64_t> counts(1'000, 40);
  Steppable<Rule> spoiled(kGPU, {kF32}, counts, 0, Strategy::per_tensor),
      fresh(kGPU, {kF32}, counts, 0, Strategy::per_tensor);
  for (Steppable<Rule>* x : {&spoiled, &fresh}) x->new_gradients(1), x->step();
  const int64_t each = static_cast<int64_t>(counts.size());
  const Tensor busy = zeros({64 << 20}, {.device = kGPU}), five = ones({5}, {.device = kGPU}),
               wrong = tensor({7}, {.dtype = kI64, .device = kGPU});
  bool half_way = false;
  for (int attempt = 0; attempt < 50 && !half_way; ++attempt) {
    for (int i = 0; i < 4; ++i) busy.add_(1);
    index_select(five, 0, wrong);
    const device::LaunchCount count;
    EXPECT_THROW(for (int i = 0; i < 100'000; ++i) spoiled.step(), IndexError);
    half_way = count.kernels() % each != 0;
  }
  ASSERT_TRUE(half_way) << "every report arrived between two steps";
  copy_elements(spoiled, fresh);
  for (size_t step = 1; step <= 3; ++step) {
    for (Steppable<Rule>* x : {&spoiled, &fresh}) x->new_gradients(1 + step), x->step();
    ASSERT_TRUE(same(spoiled, fresh, step)) << "the hyper blocks of a step went on before its last entry was read";
  }
}

}  // namespace
}  // namespace lorry::optim::test
