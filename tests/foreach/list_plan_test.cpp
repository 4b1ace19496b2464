// ListPlan as an optimizer uses it: parameters, gradients and states as roles, an array without a role, further lists,
// copies. What lists must hold is read off the tensors.

#include "lorry/foreach/list_plan.h"

#include "lorry/base/events.h"
#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

enum Role : uint32_t { kParam, kGrad, kState };
using Change = ListPlan::Change;

struct Family {
  std::vector<Tensor> params, grads, states;
  ListPlan plan{3, {kParam, kGrad, ListPlan::kNoRole, kState}, Strategy::device_table};

  /// With gradients of entries that are not a multiple of `without`.
  explicit Family(size_t count, size_t without = 1'000) {
    for (size_t e = 0; e < count; ++e) {
      const DType dtype = e % 3 == 2 ? kBF16 : kF32;
      params.push_back(random_tensor({static_cast<int64_t>(3 + e), 4}, dtype, e).to(kCPU));
      grads.push_back(e % without == without - 1 ? Tensor() : params[e].clone());
      states.push_back(e % 2 == 0 ? params[e].clone() : Tensor());
      add(e);
    }
  }
  void add(size_t e) {
    const Tensor* const roles[] = {&params[e], &grads[e], &states[e]};
    if (!grads[e].defined()) return plan.add_ungrouped(roles);
    const DType dtypes[] = {params[e].dtype(), grads[e].dtype(), kF32, params[e].dtype()};
    plan.add(plan.group(kCPU, dtypes), roles,
             {.word = static_cast<uint32_t>(e / 2), .number = static_cast<uint32_t>(e)});
  }
  std::array<std::span<const Tensor>, 3> roles() const { return {params, grads, states}; }
  const kernels::ListEntry& entry(size_t e, size_t lists = 0) const {
    const ListPlan::Position at = plan.position(e);
    return plan.list(static_cast<size_t>(at.group), lists).entries()[at.index];
  }
  void* address(const Tensor& x) const { return x.defined() ? x.data_ptr() : nullptr; }
  void expect_addresses() const {
    for (size_t e = 0; e < params.size(); ++e) {
      if (plan.position(e).group < 0) continue;
      EXPECT_EQ(entry(e).at[0], address(params[e])) << e;
      EXPECT_EQ(entry(e).at[1], address(grads[e])) << e;
      EXPECT_EQ(entry(e).at[2], nullptr) << e;
      EXPECT_EQ(entry(e).at[3], address(states[e])) << e;
    }
  }
};

TEST(ListPlan, groups_entries_by_dtypes_and_knows_their_positions) {
  const Family family(10, 4);
  ASSERT_EQ(family.plan.groups().size(), 2u);
  EXPECT_EQ(family.plan.groups()[0].entries, (std::vector<uint32_t>{0, 1, 4, 6, 9}));
  EXPECT_EQ(family.plan.groups()[1].entries, (std::vector<uint32_t>{2, 5, 8}));
  EXPECT_EQ(std::vector<uint32_t>(family.plan.ungrouped().begin(), family.plan.ungrouped().end()),
            (std::vector<uint32_t>{3, 7}));
  EXPECT_EQ(family.plan.position(3).group, -1);
  EXPECT_EQ(family.plan.list(1).dtype(0), kBF16);
  EXPECT_EQ(family.plan.list(1).strategy(), Strategy::device_table);
  for (const size_t e : {0u, 5u, 9u}) {
    EXPECT_EQ(family.entry(e).count, family.params[e].numel());
    EXPECT_EQ(family.entry(e).word, e / 2);
    EXPECT_EQ(family.entry(e).number, e);
  }
  family.expect_addresses();
}

TEST(ListPlan, groups_of_one_dtype_are_kept_apart_by_tags) {
  ListPlan plan(1, {0}, Strategy::automatic);
  const DType dtype[] = {kF32};
  EXPECT_EQ(plan.group(kCPU, dtype, 7), 0u);
  EXPECT_EQ(plan.group(kCPU, dtype, 8), 1u);
  EXPECT_EQ(plan.group(kCPU, dtype, 7), 0u);
  EXPECT_EQ(plan.group(Device{DeviceType::cuda, 0}, dtype, 7), 2u);
}

TEST(ListPlan, refresh_patches_addresses_and_says_which) {
  Family family(9);
  EXPECT_EQ(family.plan.refresh(family.roles()), Change::none);
  EXPECT_TRUE(family.plan.is_current());
  family.params[4].set_data(family.params[4].clone());
  family.states[2].set_data(family.states[2].clone());
  EXPECT_FALSE(family.plan.is_current());
  ASSERT_EQ(family.plan.refresh(family.roles()), Change::addresses);
  ASSERT_EQ(family.plan.moved().size(), 2u);
  EXPECT_EQ(family.plan.moved()[0].role, kParam);
  EXPECT_EQ(family.plan.moved()[0].entry, 4u);
  EXPECT_EQ(family.plan.moved()[1].role, kState);
  EXPECT_EQ(family.plan.moved()[1].entry, 2u);
  family.expect_addresses();
  zeros({3}).set_data(zeros({4}));  // somebody else's
  EXPECT_EQ(family.plan.refresh(family.roles()), Change::none);
}

TEST(ListPlan, update_takes_over_a_replaced_tensor) {
  Family family(9);
  const size_t gradients = family.plan.add_lists({kGrad});
  for (const uint32_t e : {0u, 5u}) {
    family.grads[e] = family.grads[e].clone();
    EXPECT_EQ(family.plan.update(kGrad, e, family.grads[e]), Change::addresses);
    EXPECT_EQ(family.plan.update(kGrad, e, family.grads[e]), Change::none);
    EXPECT_EQ(family.entry(e, gradients).at[0], family.grads[e].data_ptr());
  }
  family.expect_addresses();
}

TEST(ListPlan, says_when_it_must_be_made_anew) {
  Family family(9, 4);
  const Tensor& x = family.params[0];
  EXPECT_EQ(family.plan.update(kParam, 0, zeros({3, 5})), Change::layout) << "another size";
  EXPECT_EQ(family.plan.update(kParam, 0, zeros({4, 3}).t()), Change::layout) << "other strides";
  EXPECT_EQ(family.plan.update(kParam, 0, x.to(kBF16)), Change::layout) << "another dtype";
  EXPECT_EQ(family.plan.update(kParam, 0, x.reshape({12})), Change::layout) << "another rank";
  EXPECT_EQ(family.plan.update(kGrad, 0, Tensor()), Change::layout) << "a gradient that is gone";
  EXPECT_EQ(family.plan.update(kGrad, 3, zeros({6, 4})), Change::layout) << "a gradient that has come";
  EXPECT_EQ(family.plan.update(kGrad, 7, Tensor()), Change::none);
  EXPECT_EQ(family.plan.update(kParam, 3, family.params[3].clone()), Change::addresses) << "of an ungrouped entry";
  family.params[1].set_data(zeros({9, 9}));
  EXPECT_EQ(family.plan.refresh(family.roles()), Change::layout);
}

TEST(ListPlan, further_lists_have_the_same_entries_and_fewer_arrays) {
  Family family(9, 4);
  const size_t lists = family.plan.add_lists({kState, kGrad});
  for (size_t g = 0; g < family.plan.groups().size(); ++g) {
    EXPECT_EQ(family.plan.list(g, lists).arrays(), 2);
    EXPECT_EQ(family.plan.list(g, lists).elements(), family.plan.list(g).elements());
  }
  for (const size_t e : {0u, 1u, 5u}) {
    EXPECT_EQ(family.entry(e, lists).at[0], family.address(family.states[e]));
    EXPECT_EQ(family.entry(e, lists).at[1], family.address(family.grads[e]));
    EXPECT_EQ(family.entry(e, lists).word, e / 2);
  }
}

TEST(ListPlan, copies_are_filled_and_written_back_where_kernels_work_on_them) {
  const Tensor wide = random_tensor({6, 8}, kF32, 1).to(kCPU), dense = random_tensor({5}, kF32, 2).to(kCPU);
  const Tensor strided = wide.narrow(1, 0, 4), before = strided.clone(), copy = empty({6, 4}).to(kCPU);
  ListPlan plan(1, {0}, Strategy::automatic);
  const DType dtype[] = {kF32};
  for (const Tensor* x : {&dense, &strided}) plan.add(plan.group(kCPU, dtype), {&x, 1}, {});
  plan.use_copy(0, strided, copy);
  const size_t all = plan.add_lists({0}), uncopied = plan.add_lists({0}, /*with_copies=*/false);
  EXPECT_EQ(plan.list(0).entries()[1].at[0], copy.data_ptr());
  EXPECT_EQ(plan.list(0, all).entries()[1].at[0], copy.data_ptr());
  EXPECT_EQ(plan.list(0, uncopied).entries()[1].count, 0);
  EXPECT_EQ(plan.list(0, uncopied).entries()[0].count, 5);

  plan.fill_copies();
  EXPECT_TRUE(same_bits(copy, before));
  copy.mul_(2);
  plan.write_back(0, 0);
  EXPECT_TRUE(same_bits(strided.contiguous(), before * 2));

  strided.set_data(wide.clone().narrow(1, 0, 4));
  EXPECT_EQ(plan.update(0, 1, strided), Change::addresses);
  EXPECT_EQ(plan.list(0).entries()[1].at[0], copy.data_ptr()) << "kernels still work on the copy";
  plan.fill_copies();
  EXPECT_TRUE(same_bits(copy, before * 2));
}

TEST(ListPlan, makes_copies_itself_if_none_is_given_and_says_so) {
  const Tensor strided = random_tensor({6, 8}, kF32, 1).to(kCPU).narrow(1, 0, 4);
  ListPlan plan(1, {0}, Strategy::automatic);
  const DType dtype[] = {kF32};
  const Tensor* const roles[] = {&strided};
  plan.add(plan.group(kCPU, dtype), roles, {});
  plan.use_copy(0, strided);
  int copies = 0;
  events::Handler handler =
      events::set_handler([&](const events::Event& event) { copies += event.kind == events::Kind::hidden_copy; });
  plan.fill_copies();
  events::set_handler(std::move(handler));
  EXPECT_EQ(copies, 1);
  const auto* const copied = static_cast<const float*>(plan.list(0).entries()[0].at[0]);
  const std::vector<double> values = strided.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(copied[i], values[i]) << i;
  plan.release_copies();
}

TEST(ListPlan, without_groups_computes_nothing_in_lists) {
  Family family(9, 4);
  family.plan.ungroup_all();
  EXPECT_TRUE(family.plan.groups().empty());
  ASSERT_EQ(family.plan.ungrouped().size(), 9u);
  for (uint32_t e = 0; e < 9; ++e) EXPECT_EQ(family.plan.ungrouped()[e], e);
  EXPECT_EQ(family.plan.update(kParam, 0, family.params[0].clone()), Change::addresses);
}

}  // namespace
}  // namespace lorry::foreach::test
