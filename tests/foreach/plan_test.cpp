// Lists over and over: plans that are found again, patched, and made anew; memory that is shared; copies, casts and
// fills.

#include <algorithm>

#include "lorry/base/events.h"
#include "lorry/foreach/operator_plan.h"
#include "tests/foreach/support.h"
#include "tests/support/on_cuda.h"

namespace lorry::foreach::test {
namespace {

using L = TensorList;

size_t plans_of(const TensorList& x) { return x.body()->plans->plans.size(); }
const detail::OperatorPlan& last_plan(const TensorList& x) { return *x.body()->plans->plans.back(); }

std::vector<Tensor> added(const TensorList& x, const TensorList& y) {
  std::vector<Tensor> sums;
  for (size_t e = 0; e < x.size(); ++e) sums.push_back(x[e] + y[e]);
  return sums;
}

TEST(Plan, is_found_again_by_the_identity_of_its_lists) {
  const TensorList x = assorted(kF32, 1), y = assorted(kF32, 2), copy = x;
  add(x, y);
  const detail::OperatorPlan* const made = &last_plan(x);
  EXPECT_TRUE(same_bits(add(copy, y), added(x, y)));
  EXPECT_EQ(plans_of(x), 1u);
  EXPECT_EQ(&last_plan(x), made);
  add(x, TensorList(y.tensors()));  // equal tensors, another list
  EXPECT_EQ(plans_of(x), 2u);
  add_(x, y);
  EXPECT_EQ(plans_of(x), 3u);
  for (int i = 0; i < 20; ++i) add(x, TensorList(y.tensors()));
  EXPECT_EQ(plans_of(x), detail::PlanCache::kCapacity);
}

TEST(Plan, notices_new_values_and_new_numbers) {
  const TensorList x = assorted(kF32, 1), y = assorted(kF32, 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
    mul_(x, 1.5 + i);
    mul_(y, -0.5);
  }
  EXPECT_TRUE(same_bits(mul(x, 2.0)[0], x[0] * 2.0));
  EXPECT_TRUE(same_bits(mul(x, 3.0)[0], x[0] * 3.0));
  EXPECT_EQ(mul(TensorList{random_tensor({3}, kI64, 1)}, 2.5)[0].dtype(), kF32);
}

TEST(Plan, numbers_wrap_and_round_as_for_single_tensors) {
  for (const DType t : {kU8, kI8, kF16}) {
    const TensorList x{random_tensor({3}, t, 1), random_tensor({40}, t, 2)};
    for (const int64_t number : {3, -1, 259, 44})
      for (const Op op : {Op::eq, Op::lt, Op::floor_divide, Op::bitwise_left_shift}) {
        if (is_floating(t) && op == Op::bitwise_left_shift) continue;
        const TensorList got = apply(static_cast<Pointwise>(op), {x, number});
        for (size_t e = 0; e < x.size(); ++e) {
          const Operand operands[] = {x[e], number};
          EXPECT_TRUE(same_bits(got[e], ops::call(op, operands))) << name(op) << " of " << name(t) << " and " << number;
        }
      }
  }
}

TEST(Plan, notices_numbers_that_16_bits_do_not_hold) {
  const TensorList x{random_tensor({3}, kBF16, 1), random_tensor({40}, kBF16, 2)};
  for (const double number : {0.5, 0.1, 2.0})
    for (size_t e = 0; e < x.size(); ++e)
      EXPECT_TRUE(same_bits(remainder(x, number)[e], lorry::remainder(x[e], number))) << number;
}

TEST(Plan, takes_over_changed_addresses) {
  for (const Strategy strategy : kAll) {
    const StrategyScope scope(strategy);
    const TensorList x = assorted(kF32, 1), y = assorted(kF32, 2);
    add_(x, y);
    const detail::OperatorPlan* const made = &last_plan(x);
    for (const size_t e : {0u, 3u, 5u, 7u}) {
      y[e].set_data(random_tensor(y[e].sizes(), kF32, 50 + e));
      x[e].set_data(random_tensor(x[e].sizes(), kF32, 60 + e));
      const std::vector<Tensor> want = added(x, y);
      EXPECT_TRUE(same_bits(add_(x, y), want)) << name(strategy) << " " << e;
      EXPECT_EQ(&last_plan(x), made);
    }
    for (size_t e = 0; e < y.size(); ++e) y[e].set_data(y[e].clone());  // all at once
    const std::vector<Tensor> want = added(x, y);
    EXPECT_TRUE(same_bits(add_(x, y), want)) << name(strategy);
  }
}

TEST(Plan, is_made_anew_for_another_size_dtype_or_layout) {
  const TensorList x = {random_tensor({4, 6}, kF32, 1), random_tensor({9}, kF32, 2)},
                   y = {random_tensor({4, 6}, kF32, 3), random_tensor({9}, kF32, 4)};
  add(x, y);
  x[1].set_data(random_tensor({10}, kF32, 5)), y[1].set_data(random_tensor({10}, kF32, 6));
  EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
  x[1].set_data(random_tensor({10}, kBF16, 5));
  EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
  x[0].transpose_(0, 1);
  EXPECT_THROW(add(x, y), ShapeError);
  y[0].transpose_(0, 1);
  EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
  x[0].set_data(random_tensor({6, 4}, kF32, 7));  // the same numbers of elements, other strides than y's
  EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
}

TEST(Plan, tells_layouts_apart_exactly) {
  // Sums of a size times 31 and a stride are equal in each of these pairs.
  const TensorList x = {zeros({3, 5})};
  add_(x, 1);
  const Tensor wide = zeros({2, 36});
  x[0].set_data(wide.narrow(1, 0, 5));
  add_(x, 1);
  EXPECT_EQ(x[0].sum().item<double>(), 10);
  EXPECT_EQ(wide.sum().item<double>(), 10);
  const TensorList y = {zeros({3, 5})};
  // [1, 5], the same elements whatever its first stride
  const Tensor row = zeros({3, 67}), part = row.narrow(0, 0, 1).narrow(1, 0, 5);
  add_(y, 1);
  y[0].set_data(part);
  add_(y, 1);
  EXPECT_EQ(row.sum().item<double>(), 5);
}

TEST(Plan, is_dropped_when_a_tensor_may_no_longer_be_written) {
  alignas(64) static float rom[9] = {};
  const TensorList x = {random_tensor({8}, kF32, 1).to(kCPU), random_tensor({9}, kF32, 2).to(kCPU)},
                   y = {x[0].clone(), x[1].clone()};
  add_(x, y);
  x[1].set_data(Tensor(make_counted<lorry::detail::TensorNode>(
      Storage::foreign(kCPU, rom, sizeof(rom), nullptr, nullptr, /*read_only=*/true), Layout::contiguous({9}), 0,
      kF32)));
  const std::vector<Tensor> before = clones(x.tensors());
  for (int again = 0; again < 3; ++again) EXPECT_THROW(add_(x, y), ValueError) << again;
  EXPECT_TRUE(same_bits(x, before));
  x[1].set_data(random_tensor({9}, kF32, 3).to(kCPU));
  const std::vector<Tensor> want = added(x, y);
  EXPECT_TRUE(same_bits(add_(x, y), want));
}

TEST(Plan, of_inference_mode_does_not_hold_outside) {
  TensorList x, y;
  {
    const InferenceMode scope;
    x = {random_tensor({8}, kF32, 1), random_tensor({9}, kF32, 2)}, y = x.like();
    zero_(y);
    add_(x, y);
  }
  const std::vector<Tensor> before = clones(x.tensors());
  for (int again = 0; again < 3; ++again) EXPECT_THROW(add_(x, y), GradError) << again;
  EXPECT_TRUE(same_bits(x, before));
  const InferenceMode scope;
  EXPECT_TRUE(same_bits(add_(x, y), before));
}

TEST(Plan, outlives_the_other_list) {
  const TensorList x = assorted(kF32, 1);
  for (uint64_t i = 0; i < 12; ++i) {
    const TensorList y = assorted(kF32, 10 + i);
    EXPECT_TRUE(same_bits(add(x, y), added(x, y)));
  }
}

TEST(Plan, all_strategies_agree_on_random_lists) {
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    std::vector<Tensor> x, y;
    const int count = round == 2 ? 3'000 : 40;
    const DType dtypes[] = {kF32, kBF16, kF64, kF16};
    for (int e = 0; e < count; ++e) {
      const int64_t n = round == 2 ? static_cast<int64_t>(random() % 90)
                        : e == 7   ? 1 << 20
                                   : static_cast<int64_t>(random() % 20'000);
      const DType a = dtypes[random() % 4], b = random() % 3 == 0 ? dtypes[random() % 4] : a;
      const auto shift = static_cast<int64_t>(random() % 3 == 0 ? random() % 9 : 0),
                 other = static_cast<int64_t>(random() % 5 == 0 ? random() % 9 : shift);
      x.push_back(random_tensor({n + shift}, a, random()).slice(0, shift));
      y.push_back(random_tensor({n + other}, b, random()).slice(0, other));
    }
    const TensorList a = x, b = y;
    const std::vector<Tensor> want = added(a, b);
    for (const Strategy strategy : kAll) {
      SCOPED_TRACE(name(strategy));
      const StrategyScope scope(strategy);
      EXPECT_TRUE(same_bits(add(a, b), want));
      EXPECT_TRUE(same_bits(add(a, b), want)) << "again";
      const TensorList self = clones(x);
      add_(self, b);
      for (size_t e = 0; e < x.size(); ++e) ASSERT_TRUE(same_bits(self[e], want[e].to(x[e].dtype()))) << e;
    }
  }
}

TEST(Plan, dense_tensors_are_taken_as_they_lie) {
  const TensorList x = {random_tensor({9, 12}, kF32, 1).transpose(0, 1),
                        random_tensor({4, 5, 6}, kF32, 2).permute({2, 0, 1})};
  const TensorList y = {random_tensor({9, 12}, kF32, 3).transpose(0, 1),
                        random_tensor({4, 5, 6}, kF32, 4).permute({2, 0, 1})};
  const TensorList sum = add(x, y);
  EXPECT_TRUE(last_plan(x).plan.ungrouped().empty());
  EXPECT_EQ(last_plan(x).plan.groups().size(), 1u);
  for (size_t e = 0; e < 2; ++e) {
    EXPECT_TRUE(same_bits(sum[e], x[e] + y[e]));
    EXPECT_EQ(sum[e].strides(), x[e].strides());
  }
}

TEST(Plan, one_launch_a_combination_of_dtypes) {
  const TensorList x = {random_tensor({5}, kF32, 1), random_tensor({6}, kBF16, 2), random_tensor({7}, kF32, 3),
                        random_tensor({8}, kBF16, 4)};
  const TensorList y = {random_tensor({5}, kF32, 1), random_tensor({6}, kBF16, 2), random_tensor({7}, kF32, 3),
                        random_tensor({8}, kF32, 4)};
  add(x, y);
  EXPECT_EQ(last_plan(x).plan.groups().size(), 3u);
}

// ---- shared memory --------------------------------------------------------------------------------------------------

TEST(ForeachMemory, what_is_written_shares_nothing_with_other_entries) {
  const Tensor x = random_tensor({20}, kF32, 1), y = random_tensor({20}, kF32, 2);
  EXPECT_EQ(message<ShapeError>([&] {
              add_({x, x}, L{y, y});
            }),
            "add: a tensor of the list that is written shares memory with another entry's; entries are computed in no "
            "order; expected none to; clone one of "
            "them first");
  EXPECT_THROW(add_({x.slice(0, 0, 10), x.slice(0, 9, 19)}, L{y.slice(0, 0, 10), y.slice(0, 0, 10)}), ShapeError);
  EXPECT_THROW(add_({x, y}, L{y, x}), ShapeError);
  EXPECT_THROW(mul_({x, y}, x[3]), ShapeError);
  EXPECT_THROW(add_({x.slice(0, 0, 10)}, L{x.slice(0, 5, 15)}), ShapeError) << "of its own entry, as the operator does";
  EXPECT_THROW(copy_({x, y}, {y, x}), ShapeError);
  EXPECT_THROW(zero_({x, x}), ShapeError);
}

TEST(ForeachMemory, an_entry_may_read_what_it_writes_and_entries_may_read_the_same) {
  const Tensor x = random_tensor({20}, kF32, 1), y = random_tensor({20}, kF32, 2), before = x.clone();
  add_({x}, L{x});
  EXPECT_TRUE(same_bits(x, before + before));
  const TensorList halves = {x.slice(0, 0, 10), x.slice(0, 10)}, shared = {y.slice(0, 0, 10), y.slice(0, 0, 10)};
  const std::vector<Tensor> want = added(halves, shared);
  EXPECT_TRUE(same_bits(add_(halves, shared), want));
}

TEST(ForeachMemory, a_move_onto_another_entry_is_noticed) {
  const TensorList x = {random_tensor({8}, kF32, 1), random_tensor({8}, kF32, 2)},
                   y = {random_tensor({8}, kF32, 3), random_tensor({8}, kF32, 4)};
  add_(x, y);
  y[0].set_data(x[1]);
  EXPECT_THROW(add_(x, y), ShapeError);
  y[0].set_data(x[0]);
  const std::vector<Tensor> want = added(x, y);
  EXPECT_TRUE(same_bits(add_(x, y), want));
}

TEST(ForeachMemory, a_move_onto_part_of_its_own_entry_is_noticed) {
  const TensorList x = {random_tensor({8}, kF32, 1), random_tensor({9}, kF32, 2)},
                   y = {random_tensor({8}, kF32, 3), random_tensor({9}, kF32, 4)};
  add_(x, y);
  const Tensor both = random_tensor({20}, kF32, 5);
  x[0].set_data(both.slice(0, 0, 8)), y[0].set_data(both.slice(0, 4, 12));
  EXPECT_THROW(add_(x, y), ShapeError);
  y[0].set_data(both.slice(0, 8, 16));
  const std::vector<Tensor> want = added(x, y);
  EXPECT_TRUE(same_bits(add_(x, y), want));
}

TEST(ForeachMemory, columns_that_interleave_are_written_in_order) {
  const Tensor x = random_tensor({6, 4}, kF32, 1), y = random_tensor({6, 4}, kF32, 2), want = x + y;
  add_(x.unbind(1), y.unbind(1));
  EXPECT_TRUE(same_bits(x, want));
}

// ---- copies ---------------------------------------------------------------------------------------------------------

TEST(ForeachCopies, convert_between_all_types) {
  for (const Strategy strategy : kAll) {
    SCOPED_TRACE(name(strategy));
    const StrategyScope scope(strategy);
    std::vector<Tensor> x;
    uint64_t seed = 1;
    for (const DType dtype : kDTypes)
      for (const int64_t n : {0, 1, 77, 5'001}) x.push_back(random_tensor({n + 1}, dtype, seed++).slice(0, 1));
    const TensorList from = x;
    for (const DType dtype : kDTypes) {
      std::vector<Tensor> want;
      for (const Tensor& t : x) want.push_back(t.to(dtype));
      EXPECT_TRUE(same_bits(to(from, dtype), want)) << name(dtype);
      const TensorList self = from.like(dtype);
      EXPECT_TRUE(same_bits(copy_(self, from), want)) << name(dtype);
      zero_(self);
      for (const Tensor& t : self) EXPECT_TRUE(same_bits(t, zeros(t.sizes(), {.dtype = dtype})));
      fill_(self, 3);
      for (const Tensor& t : self) EXPECT_TRUE(same_bits(t, full(t.sizes(), 3, {.dtype = dtype})));
    }
  }
}

TEST(ForeachCopies, broadcast_and_take_any_strides) {
  const TensorList to = {zeros({3, 4}), zeros({4, 3}).transpose(0, 1), zeros({5})},
                   from = {random_tensor({4}, kF64, 1), random_tensor({3, 4}, kF32, 2), random_tensor({5}, kI32, 3)};
  copy_(to, from);
  for (size_t e = 0; e < 3; ++e) EXPECT_TRUE(same_bits(to[e], zeros(to[e].sizes()).copy_(from[e])));
}

TEST(ForeachCopies, a_tensor_of_the_dtype_is_itself) {
  const TensorList x = {random_tensor({5}, kF32, 1), random_tensor({5}, kBF16, 2)};
  const TensorList y = to(x, kF32);
  EXPECT_TRUE(y[0].is_same(x[0]));
  EXPECT_EQ(y[1].dtype(), kF32);
}

// ---- bad input, gradients -------------------------------------------------------------------------------------------

TEST(ForeachErrors, name_what_is_wrong) {
  const TensorList x = {random_tensor({5}, kF32, 1), random_tensor({6}, kF32, 2)}, one = {x[0]};
  EXPECT_EQ(message<ValueError>([&] { add(x, one); }),
            "add: lists of different lengths; got 2 and 1; expected a tensor for each");
  EXPECT_EQ(message<ValueError>([&] {
              mul(x, std::vector<double>{1, 2, 3});
            }),
            "mul: 3 numbers for 2 tensors; expected one for each");
  EXPECT_EQ(
      message<ShapeError>([&] { mul(x, zeros({3})); }),
      "mul: a tensor of numbers does not fit 2 tensors; got [3] f32 cpu; expected a 0-d tensor, or one of 2 numbers");
  EXPECT_EQ(message<ValueError>([&] { apply(Pointwise::add, {x}); }), "add: 1 operands; expected 2");
  EXPECT_EQ(message<ValueError>([&] {
              apply(Pointwise::add, {1, 2});
            }),
            "add: no list of tensors among the arguments; expected one");
  EXPECT_THROW(add(x, TensorList{x[0], Tensor()}), ValueError);
  EXPECT_THROW(add(x, TensorList{x[1], x[0]}), ShapeError);
  EXPECT_THROW(bitwise_and(x, x), DTypeError);
  EXPECT_THROW(add_(TensorList{random_tensor({3}, kI32, 1)}, 0.5), DTypeError);
  EXPECT_THROW(where(x, x, x), DTypeError);
  EXPECT_TRUE(add(TensorList(), TensorList()).empty());
}

TEST(ForeachErrors, leave_the_lists_usable) {
  const TensorList x = {random_tensor({5}, kF32, 1), random_tensor({6}, kF32, 2)},
                   y = {random_tensor({5}, kF32, 3), random_tensor({7}, kF32, 4)};
  const std::vector<Tensor> before = clones(x.tensors());
  EXPECT_THROW(add_(x, y), ShapeError);
  EXPECT_TRUE(same_bits(x, before)) << "nothing is written before all entries are checked";
  y[1].set_data(random_tensor({6}, kF32, 5));
  const std::vector<Tensor> want = added(x, y);
  EXPECT_TRUE(same_bits(add_(x, y), want));
}

TEST(ForeachGradients, are_recorded_where_asked) {
  const TensorList x = {random_tensor({5}, kF32, 1).requires_grad_(), random_tensor({6}, kF32, 2).requires_grad_()},
                   y = {random_tensor({5}, kF32, 3), random_tensor({6}, kF32, 4)};
  const TensorList product = mul(x, y);
  for (const Tensor& t : product) t.sum().backward();
  for (size_t e = 0; e < 2; ++e) EXPECT_TRUE(same_bits(x[e].grad(), y[e]));
  EXPECT_THROW(add_(x, y), GradError) << "a leaf, as the operator does";
  const NoGrad quiet;
  EXPECT_FALSE(mul(x, y)[0].requires_grad());
  EXPECT_NO_THROW(add_(x, y));
}

TEST(ForeachDevices, of_all_kinds_stand_in_one_list) {
  const std::vector<Device> devices = lorry::test::all_devices();
  const auto spread = [&](std::vector<Tensor> list) {
    for (size_t e = 0; e < list.size(); ++e) list[e] = list[e].to(devices[e % devices.size()]);
    return TensorList(list);
  };
  const auto back = [](const TensorList& list) {
    std::vector<Tensor> here;
    for (const Tensor& t : list) here.push_back(t.to(kCPU));
    return here;
  };
  const TensorList x = assorted(kF32, 1), y = assorted(kF32, 2), far_x = spread(x.tensors()),
                   far_y = spread(y.tensors());
  for (const Strategy strategy : kAll) {
    const StrategyScope scope(strategy);
    const TensorList sums = add(far_x, far_y);
    for (size_t e = 0; e < sums.size(); ++e) EXPECT_EQ(sums[e].device(), far_x[e].device());
    EXPECT_TRUE(same_bits(back(sums), back(add(x, y)))) << name(strategy);
    mul_(far_x, 1.25), mul_(x, 1.25);
    add_(far_x, far_y), add_(x, y);
    EXPECT_TRUE(same_bits(back(far_x), back(x))) << name(strategy);
  }
  const Norms near = norms(TensorList(back(x))), far = norms(far_x);
  EXPECT_TRUE(same_bits(back(far.per_tensor), near.per_tensor.tensors()));
  EXPECT_NEAR(far.total.to(kCPU).item<double>(), near.total.item<double>(), 1e-12 * near.total.item<double>());
  if (devices.size() == 1) return;
  EXPECT_THROW(add(far_x, TensorList(back(y))), DeviceError);
}

TEST(ForeachLarge, a_tensor_of_more_than_2_to_the_31_elements) {
  if (default_device().is_cpu()) GTEST_SKIP() << "takes gigabytes: run on a GPU";
  const int64_t n = (int64_t{1} << 31) + 4'321;
  const Tensor x = zeros({n}, {.dtype = kBF16}), small = zeros({100}, {.dtype = kBF16});
  const TensorList list = {small, x};
  for (const Strategy strategy : kAll) {
    const StrategyScope scope(strategy);
    add_(list, 1);
  }
  const auto added = static_cast<float>(std::size(kAll));
  for (const int64_t i : {int64_t{0}, int64_t{1} << 30, int64_t{1} << 31, n - 1})
    EXPECT_EQ(x[i].item<float>(), added) << i;
  EXPECT_EQ(small[99].item<float>(), added);
  const Norms measured = norms(list, 1);
  EXPECT_EQ(measured.per_tensor[1].item<double>(), added * static_cast<double>(n));
  EXPECT_EQ(measured.total.item<double>(), added * static_cast<double>(n + 100));
}

}  // namespace
}  // namespace lorry::foreach::test
