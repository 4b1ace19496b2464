// Collectives of several processes. Every rank runs every test: mpirun -n 4 lorry_ranks_test. What the result must be
// follows from the ranks' numbers alone.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "lorry/lorry.h"
#include "lorry/ops/dispatch/run.h"
#include "tests/parallel/ranks.h"

namespace lorry::parallel {
namespace {

/// What rank r begins with: whole numbers, small enough for every dtype, that differ between ranks and elements.
Tensor numbers_of(int rank, const Dims& sizes, DType dtype, Device device) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  Tensor x = arange(count).remainder(5).add(rank % 3).view(sizes);
  return x.to(dtype).to(device);
}
Tensor sum_over_ranks(const Dims& sizes, DType dtype, Device device) {
  Tensor sum = numbers_of(0, sizes, kI64, kCPU);
  for (int r = 1; r < world().size(); ++r) sum = sum.add(numbers_of(r, sizes, kI64, kCPU));
  return sum.to(dtype).to(device);
}
void expect_same(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  EXPECT_TRUE(got.cpu().to(kF64).equal(expected.cpu().to(kF64))) << got.cpu() << "\n" << expected.cpu();
}
bool is_on_gpus(DType dtype, Device device) { return device.is_cpu() || dtype != kI16; }

constexpr DType kReduced[] = {kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64};

TEST(Collectives, all_reduce_sums_every_dtype_and_size) {
  for (const Device device : devices())
    for (const DType dtype : kReduced)
      for (const Dims& sizes : {Dims{}, Dims{1}, Dims{0}, Dims{7}, Dims{3, 0, 2}, Dims{5, 3}, Dims{1000, 7},
                                Dims{1, 1, 2, 1, 3, 1, 1, 2}}) {
        if (!is_on_gpus(dtype, device)) continue;
        const Tensor x = numbers_of(world().rank(), sizes, dtype, device);
        all_reduce_(x, world());
        expect_same(x, sum_over_ranks(sizes, dtype, device));
      }
}

TEST(Collectives, all_reduce_finds_extremes_and_products) {
  for (const Device device : devices())
    for (const DType dtype : {kI32, kF32, kBF16, kF64}) {
      const int64_t last = world().size() - 1;
      const Tensor own = full({4}, world().rank() + 1, {.dtype = dtype, .device = device});
      expect_same(all_reduce(own, world(), Reduction::maximum), full({4}, last + 1, {.dtype = dtype}));
      expect_same(all_reduce(own, world(), Reduction::minimum), full({4}, 1, {.dtype = dtype}));
      expect_same(all_reduce(own, world(), Reduction::product), full({4}, std::tgamma(last + 2), {.dtype = dtype}));
      expect_same(own, full({4}, world().rank() + 1, {.dtype = dtype}));
    }
}

TEST(Collectives, not_a_number_and_infinity_reach_every_rank) {
  for (const Device device : devices()) {
    Tensor x = zeros({3}, {.device = device});
    if (world().rank() == world().size() - 1) x = tensor({NAN, INFINITY, 1.0f}).to(device);
    all_reduce_(x, world());
    const std::vector<float> got = x.cpu().to_vector<float>();
    EXPECT_TRUE(std::isnan(got[0]));
    EXPECT_EQ(got[1], INFINITY);
    EXPECT_EQ(got[2], 1);
  }
}

TEST(Collectives, any_strides_are_taken_and_kept) {
  for (const Device device : devices()) {
    const Tensor base = zeros({6, 10}, {.device = device});
    const Tensor x = base.t().slice(0, 1, 9, 2);  // [4, 6]
    x.copy_(numbers_of(world().rank(), {4, 6}, kF32, device));
    all_reduce_(x, world());
    expect_same(x, sum_over_ranks({4, 6}, kF32, device));
    EXPECT_EQ(base.sum().item<float>(), x.sum().item<float>()) << "nothing beside the view was written";
  }
}

TEST(Collectives, a_list_travels_together) {
  for (const Device device : devices()) {
    const std::vector<Tensor> list{numbers_of(world().rank(), {3}, kF32, device),
                                   numbers_of(world().rank(), {2, 2}, kI64, device),
                                   numbers_of(world().rank(), {0}, kF32, device)};
    all_reduce_(list, world());
    expect_same(list[0], sum_over_ranks({3}, kF32, device));
    expect_same(list[1], sum_over_ranks({2, 2}, kI64, device));
  }
}

TEST(Collectives, all_gather_lists_the_ranks) {
  for (const Device device : devices())
    for (const DType dtype : {kBool, kU8, kBF16, kF32, kI64}) {
      const Tensor got = all_gather(numbers_of(world().rank(), {2, 3}, dtype, device), world());
      ASSERT_EQ(got.sizes(), Dims({world().size(), 2, 3}));
      for (int r = 0; r < world().size(); ++r) expect_same(got.select(0, r), numbers_of(r, {2, 3}, dtype, device));
    }
}

TEST(Collectives, reduce_scatter_leaves_each_rank_its_part) {
  for (const Device device : devices())
    for (const DType dtype : {kF32, kBF16, kI32}) {
      const Dims sizes{world().size(), 5};
      const Tensor got = reduce_scatter(numbers_of(world().rank(), sizes, dtype, device), world());
      expect_same(got, sum_over_ranks(sizes, dtype, device).select(0, world().rank()));
    }
}

TEST(Collectives, all_to_all_transposes) {
  for (const Device device : devices()) {
    const int64_t size = world().size();
    const Tensor own = arange(size).add(100 * world().rank()).to(device);
    expect_same(all_to_all(own, world()), arange(size).mul(100).add(world().rank()));
  }
}

TEST(Collectives, broadcast_takes_any_root) {
  for (const Device device : devices())
    for (int root = 0; root < world().size(); ++root) {
      const std::vector<Tensor> list{full({3}, world().rank(), {.device = device}),
                                     full({}, world().rank(), {.device = device})};
      broadcast_(list, world(), root);
      expect_same(list[0], full({3}, root));
      expect_same(list[1], full({}, root));
    }
}

TEST(Collectives, sends_are_received) {
  if (world().size() < 2) GTEST_SKIP() << "one rank";
  for (const Device device : devices()) {
    if (world().rank() == 0) send(arange(10, {.dtype = kI64, .device = device}).slice(0, 0, 10, 2), world(), 1);
    const Tensor x = zeros({5}, {.dtype = kI64, .device = device});
    if (world().rank() == 1) {
      receive_(x, world(), 0);
      expect_same(x, arange(5).mul(2));
    }
    barrier(world());
  }
}

TEST(Collectives, what_is_begun_goes_on_until_it_is_waited_for) {
  for (const Device device : devices()) {
    const Tensor x = numbers_of(world().rank(), {1000}, kF32, device),
                 y = numbers_of(world().rank(), {10}, kF32, device);
    Begun first = begin_all_reduce({x}, world()), second = begin_all_reduce({y}, world());
    static_cast<void>(ones({100}, {.device = device}).add(1));
    second.wait();
    first.wait();
    first.wait();
    expect_same(x, sum_over_ranks({1000}, kF32, device));
    expect_same(y, sum_over_ranks({10}, kF32, device));
  }
}

TEST(Collectives, groups_of_some_ranks_work_by_themselves) {
  if (world().size() < 3) GTEST_SKIP() << "fewer than three ranks";
  std::vector<int> even, odd;
  for (int r = 0; r < world().size(); ++r) (r % 2 == 0 ? even : odd).push_back(r);
  const std::vector<int>& own = world().rank() % 2 == 0 ? even : odd;
  const ProcessGroup group = world().subgroup(own);
  EXPECT_EQ(group.size(), static_cast<int>(own.size()));
  EXPECT_EQ(own[static_cast<size_t>(group.rank())], world().rank());
  for (const Device device : devices()) {
    const Tensor x = full({2}, world().rank(), {.dtype = kI64, .device = device});
    all_reduce_(x, group);
    expect_same(x, full({2}, std::accumulate(own.begin(), own.end(), 0)));
  }
  EXPECT_THROW(static_cast<void>(world().subgroup({(world().rank() + 1) % world().size()})), ValueError);
  EXPECT_THROW(static_cast<void>(world().subgroup({1, 0})), ValueError);
  barrier(world());
}

TEST(Collectives, ranks_exchange_texts) {
  const std::vector<std::string> all = world().exchange(fmt::format("rank {}", world().rank()));
  ASSERT_EQ(all.size(), static_cast<size_t>(world().size()));
  for (int r = 0; r < world().size(); ++r) EXPECT_EQ(all[static_cast<size_t>(r)], fmt::format("rank {}", r));
  world().require_same("the seed", "7");
  if (world().size() == 1) return;
  EXPECT_THROW(world().require_same("the seed", fmt::format("{}", world().rank())), ParallelError);
}

TEST(Collectives, refuse_what_does_not_fit_on_every_rank_alike) {
  const Tensor x = ones({3});
  EXPECT_THROW(broadcast_(x, world(), world().size()), ValueError);
  EXPECT_THROW(send(x, world(), world().rank()), ValueError);
  EXPECT_THROW(all_reduce_(std::vector<Tensor>{}, world()), ValueError);
  EXPECT_THROW(all_reduce_(Tensor(), world()), Error);
  EXPECT_THROW(static_cast<void>(reduce_scatter(ones({world().size() + 1}), world())), ShapeError);
  EXPECT_THROW(all_gather_out(ones({1}), ones({3}), world()), ShapeError);
  EXPECT_THROW(all_reduce_(ones({2}, {.device = kMeta}), world()), DeviceError);
  const Tensor leaf = ones({2}).requires_grad_();
  EXPECT_THROW(static_cast<void>(all_gather(leaf, world())), GradError);
  const NoGrad no_grad;
  all_reduce_(leaf, world());
  expect_same(leaf.detach(), full({2}, world().size()));
}

TEST(Collectives, refuse_a_gpu_that_another_rank_has) {
  if (world().size() < 2 || devices().size() < 2) GTEST_SKIP() << "needs a GPU for each of several ranks";
  const Tensor own = ones({2}, {.device = world().device()}), of_rank_0 = ones({2}, {.device = {DeviceType::cuda, 0}});
  if (world().rank() < 2) {
    const ProcessGroup two = world().subgroup({0, 1});
    EXPECT_THROW(all_reduce_(of_rank_0, two), DeviceError);  // refused by both
    all_reduce_(own, two);
    expect_same(own, full({2}, 2));
    if (world().rank() == 1) {
      EXPECT_THROW(all_reduce_(of_rank_0, two), DeviceError);
    }
    barrier(two);  // the refused call of rank 1 does not count: rank 0 made none
  }
  barrier(world());
}

/// Makes every call that it hears again, from copies of what it had before.
struct Again {
  static inline std::vector<Tensor> inputs = {};
  static inline std::set<Op> made = {};

  static void before(const door::CallView& call, void*&) {
    inputs.clear();
    for (const door::Input& x : call.inputs) inputs.push_back(x.tensor()->clone());
  }
  static void after(const door::CallView& call, void*) {
    if (call.op < Op::all_reduce || call.op > Op::barrier) return;
    std::vector<door::Input> copies;
    for (const Tensor& x : inputs) copies.emplace_back(&x);
    std::vector<Tensor> outputs;
    for (const Tensor& x : call.outputs) outputs.push_back(empty_like(x));
    door::CallView again = call;
    again.inputs = copies;
    again.outputs = call.in_place ? std::span<const Tensor>(inputs) : std::span<const Tensor>(outputs);
    const std::vector<Tensor> results = door::run(again);
    EXPECT_EQ(results.size(), call.outputs.size()) << name(call.op);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], call.outputs[i]);
    made.insert(call.op);
  }
};

TEST(Collectives, every_call_can_be_made_again_from_its_announcement) {
  if (world().size() < 2) GTEST_SKIP() << "one rank";
  constexpr door::Listener kAgain{.bit = kUserMode, .before = Again::before, .after = Again::after};
  for (const Device device : devices()) {
    Again::made.clear();
    const Tensor x = full({world().size(), 3}, world().rank(), {.device = device});
    {
      const door::ListenerScope listening(kAgain);
      all_reduce_(x.clone(), world());
      all_reduce_({x.clone(), x.clone()}, world(), Reduction::maximum);
      broadcast_(x.clone(), world(), 1);
      static_cast<void>(all_reduce(x, world()));
      static_cast<void>(all_gather(x, world()));
      static_cast<void>(reduce_scatter(x, world()));
      static_cast<void>(all_to_all(x, world()));
      if (world().rank() == 0) send(x, world(), 1);
      if (world().rank() == 1) receive_(x.clone(), world(), 0);
      barrier(world());
    }
    EXPECT_EQ(Again::made.contains(Op::send), world().rank() == 0);
    EXPECT_EQ(Again::made.contains(Op::receive), world().rank() == 1);
    for (int op = static_cast<int>(Op::all_reduce); op <= static_cast<int>(Op::barrier); ++op) {
      const bool is_of_all = static_cast<Op>(op) != Op::send && static_cast<Op>(op) != Op::receive;
      EXPECT_TRUE(!is_of_all || Again::made.contains(static_cast<Op>(op))) << name(static_cast<Op>(op));
    }
  }
}

}  // namespace
}  // namespace lorry::parallel
