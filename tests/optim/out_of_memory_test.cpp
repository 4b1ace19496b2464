// Steps that run out of memory leave everything as it was.

#include <cstdlib>
#include <new>

#include "lorry/memory/allocate.h"
#include "lorry/memory/memory.h"
#include "tests/optim/model.h"
#include "tests/optim/rules.h"

#if defined(__has_feature)
#define LORRY_CLANG_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define LORRY_CLANG_THREAD_SANITIZER 0
#endif

namespace {

/// Allocations of host memory on this thread until one fails; negative: none does.
constinit thread_local int64_t t_until_failure = -1;

}  // namespace

#if !LORRY_CLANG_THREAD_SANITIZER  // whose runtime defines these operators itself
namespace {

void* allocate_host(size_t bytes) {
  if (t_until_failure > 0 && --t_until_failure == 0) {
    t_until_failure = -1;  // once
    throw std::bad_alloc();
  }
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(size_t bytes) { return allocate_host(bytes); }
void* operator new[](size_t bytes) { return allocate_host(bytes); }
// A sanitizer's runtime brings all forms; those that are not aligned have to belong together.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void operator delete(void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { std::free(data); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }
void operator delete[](void* data, size_t) noexcept { std::free(data); }
#endif

namespace lorry::optim::test {
namespace {

using Adam3 = formula::AdamW<true>;

/// Frees what is cached, and takes what lies free between blocks that are held: the next block comes from the system.
std::vector<Tensor> take_gaps(Device device) {
  std::vector<Tensor> gaps;
  for (int64_t bytes = int64_t{1} << 28; bytes >= 1 << 14; bytes /= 2) {
    memory::empty_cache(device);
    while (true) {
      const int64_t before = memory::stats(device).reserved;
      const Tensor gap = empty({bytes}, {kU8, device});
      if (memory::stats(device).reserved > before) break;
      gaps.push_back(gap);
    }
  }
  memory::empty_cache(device);
  return gaps;
}

TEST(OutOfMemory, a_step_that_finds_no_memory_for_its_state_leaves_all_as_before) {
  const Device device = default_device();
  const int64_t count = device.is_cpu() ? 1 << 20 : 1 << 23;  // more than a GPU's segment may have left
  for (const Execution execution : kExecutions) {
    Model model(14);
    const Tensor large = parameter(zeros({count}));
    model.params.emplace_back("large", large);
    Any<Adam3> adam(model.params, settings_of<Adam3>(0), execution);
    model.give_gradients();
    large.set_grad({});
    adam.step();
    large.set_grad(ones({count}));
    const std::string before = model.all_bits() + all_bits(adam);
    const std::vector<Tensor> gaps = take_gaps(device);
    memory::set_limit(device, memory::stats(device).reserved + (1 << 20));
    EXPECT_THROW(adam.step(), OutOfMemory) << name(execution);
    memory::set_limit(device, 0);
    EXPECT_EQ(model.all_bits() + all_bits(adam), before) << name(execution);
    adam.step();
    EXPECT_EQ(steps_of(adam, "large"), 1);
    EXPECT_EQ(steps_of(adam, "p0"), 2);
  }
}

TEST(OutOfMemory, a_step_that_finds_no_memory_for_its_tables_leaves_all_as_before) {
  const Device device = default_device();
  if (device.is_cpu()) GTEST_SKIP() << "lists have no tables on a CPU";
  int failed = 0;
  for (const int room : {0, 1, 2, 3, 4, 5, 6, 8}) {
    Model model(15), narrow(16, kBF16);
    for (const auto& [name, p] : narrow.params) model.params.emplace_back("narrow." + name, p);
    Any<Adam3> adam(model.params, settings_of<Adam3>(0), Execution::fused);
    model.give_gradients();
    adam.step();
    adam.set_strategy(Strategy::device_table);
    const std::string before = model.all_bits() + all_bits(adam);
    memory::empty_cache(device);
    memory::set_limit(device, memory::stats(device).reserved);
    std::vector<void*> blocks;
    constexpr int64_t kBytes = 512;
    try {
      for (;;) blocks.push_back(memory::allocate(device, kBytes));
    } catch (const OutOfMemory&) {
    }
    for (int k = 0; k < room && !blocks.empty(); ++k) memory::release(device, blocks.back(), kBytes), blocks.pop_back();
    bool stepped = true;
    try {
      adam.step();
    } catch (const OutOfMemory&) {
      stepped = false;
    }
    for (void* const block : blocks) memory::release(device, block, kBytes);
    memory::set_limit(device, 0);
    failed += !stepped;
    EXPECT_NE(model.all_bits() + all_bits(adam) == before, stepped) << room;
  }
  EXPECT_GT(failed, 0);
}

/// Parameters of every layout that a step treats apart, and what an optimizer may keep beside them.
struct MemoryCase {
  DType dtype;
  Memory memory;
};
const MemoryCase kMemoryCases[] = {
    {kF32, {}}, {kBF16, {.masters = Masters::split, .states = {StateType::bf16, StateType::q8}, .seed = 3}}};

Model odd_model(uint64_t seed, DType dtype) {
  Model model(seed, dtype, 2);
  model.params.emplace_back("turned", parameter(random_tensor(model.random, {4, 3}, dtype).t()));
  model.params.emplace_back("non_dense", parameter(random_tensor(model.random, {5, 8}, dtype).narrow(1, 1, 3)));
  return model;
}

/// A step that fails at one allocation after the other until it is made: each failure leaves all as before.
template <class Rule>
void expect_wholly_or_not_at_all(const MemoryCase& memory_case, Execution execution) {
  for (const bool clips : {false, true}) {
    SCOPED_TRACE(
        fmt::format("{} by {} in {}{}", Rule::kName, name(execution), memory_case.dtype, clips ? ", clipped" : ""));
    Model model = odd_model(17, memory_case.dtype);
    Any<Rule> optimizer(model.params, settings_of<Rule>(1), execution, memory_case.memory);
    const auto step = [&] { clips ? (void)optimizer.step({.max_norm = 0.5, .zero_grad = true}) : optimizer.step(); };
    model.give_gradients();
    step();
    const auto all = [&] {
      std::string bits_of_all = model.all_bits() + all_bits(optimizer);
      for (const auto& [name, p] : model.params) bits_of_all += bits(p.grad());
      return bits_of_all;
    };
    model.give_gradients();
    int failed = 0;
    for (int64_t until = 1;; ++until) {
      const std::string before = all();
      bool stepped = true;
      t_until_failure = until;
      try {
        step();
      } catch (const std::exception&) {
        stepped = false;
      }
      const bool reached = t_until_failure < 0;
      t_until_failure = -1;
      ASSERT_EQ(all() == before, !stepped) << "allocation " << until;
      failed += !stepped;
      if (!reached) break;  // a failure that somebody could do without leads to a step too
      if (stepped) model.give_gradients();
    }
    EXPECT_TRUE(failed > 0 || execution == Execution::fused);
  }
}

TEST(OutOfMemory, a_step_that_fails_at_any_allocation_of_the_host_changes_nothing) {
  if (!default_device().is_cpu())
    GTEST_SKIP() << "kernels of a GPU lay their lists out while a step runs, in host memory";
  if (LORRY_CLANG_THREAD_SANITIZER) GTEST_SKIP() << "allocations are the sanitizer's";
  formula::Rules::each([]<class Rule>() {
    for (const MemoryCase& memory_case : kMemoryCases)
      for (const Execution execution : kExecutions) expect_wholly_or_not_at_all<Rule>(memory_case, execution);
  });
}

TEST(OutOfMemory, an_eager_step_that_finds_too_little_memory_on_the_device_changes_nothing) {
  const Device device = default_device();
  const int64_t count = device.is_cpu() ? 1 << 17 : 1 << 22;
  for (const MemoryCase& memory_case : kMemoryCases)
    for (const Execution execution : {Execution::loop, Execution::foreach})
      for (const bool has_budget : {false, true}) {
        int failed = 0, made = 0;
        for (int64_t room = 0; room < 64 && made < 2; ++room) {
          std::vector<NamedTensor> params;
          for (int i = 0; i < 3; ++i) {
            params.emplace_back(fmt::format("p{}", i), parameter(full({count}, 0.5, {.dtype = memory_case.dtype})));
            params.back().second.set_grad(full({count}, 0.01, {.dtype = memory_case.dtype}));
          }
          Any<Adam3> adam(params, settings_of<Adam3>(1), execution, memory_case.memory);
          if (has_budget) adam.set_memory_budget(8 * count);
          adam.step();
          const auto all = [&] {
            std::string bits_of_all = all_bits(adam);
            for (const auto& [name, p] : params) bits_of_all += bits(p);
            return bits_of_all;
          };
          const std::string before = all();
          const Tensor factor = full({}, 0.5, {.dtype = kF64});
          const std::vector<Tensor> gaps = take_gaps(device);
          memory::set_limit(device, memory::stats(device).reserved + room * count * 4 + (1 << 14));
          bool stepped = true;
          try {
            adam.step(factor);
          } catch (const OutOfMemory&) {
            stepped = false;
          }
          memory::set_limit(device, 0);
          (stepped ? made : failed) += 1;
          EXPECT_EQ(all() == before, !stepped) << name(execution) << " in " << lorry::name(memory_case.dtype)
                                               << (has_budget ? ", within a budget, " : ", ") << room;
        }
        EXPECT_GT(failed, 0) << name(execution);
        EXPECT_GT(made, 0) << name(execution);
      }
}

}  // namespace
}  // namespace lorry::optim::test
