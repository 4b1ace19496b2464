// The intermediate memory of eager steps (loop and foreach): what reports count against what the allocator sees, and
// budgets that bound it.

#include <bit>

#include "lorry/memory/memory.h"
#include "lorry/optim/execution/foreach.h"
#include "lorry/optim/execution/loop.h"
#include "tests/optim/rules.h"
#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

using Adam3 = formula::AdamW<true>;

constexpr Execution kEager[] = {Execution::loop, Execution::foreach};

struct MemoryCase {
  DType dtype;
  Memory memory;
};
const MemoryCase kMemoryCases[] = {{kF32, {}},
                                   {kF64, {}},
                                   {kF32, {.states = StateType::q8}},
                                   {kF32, {.states = {StateType::bf16, StateType::q8, StateType::f32}, .seed = 3}},
                                   {kBF16, {}},
                                   {kF16, {.masters = Masters::f32}},
                                   {kBF16, {.masters = Masters::split}},
                                   {kBF16, {.masters = Masters::stochastic, .seed = 5}},
                                   {kBF16, {.masters = Masters::stochastic, .states = StateType::q8, .seed = 7}}};

std::string text_of(const MemoryCase& memory_case) {
  return fmt::format("{}, masters {}, states {}", memory_case.dtype, name(memory_case.memory.masters),
                     name(memory_case.memory.states));
}

/// Parameters with gradients, some odd, some without elements or with their elements in another order.
struct Model {
  explicit Model(DType dtype, uint64_t seed = 1) : random(seed) {
    for (const Dims& sizes : {Dims{3, 5}, Dims{1000}, Dims{0}, Dims{57, 33}, Dims{}, Dims{2048}, Dims{700}})
      params.emplace_back(fmt::format("p{}", params.size()), parameter(random_tensor(random, sizes, dtype)));
    params.emplace_back("turned", parameter(random_tensor(random, {40, 30}, dtype).t()));
    params.emplace_back("non_dense", parameter(random_tensor(random, {50, 30}, dtype).narrow(1, 3, 20)));
  }
  void give_gradients() {
    for (const auto& [name, p] : params) p.set_grad(random_tensor(random, p.sizes(), p.dtype()));
  }
  std::mt19937_64 random;
  std::vector<NamedTensor> params;
};

std::string all_bits(const Model& model, const Optimizer& optimizer) {
  std::string all;
  for (const auto& [name, p] : model.params) all += bits(p);
  for (const auto& [name, x] : optimizer.state_dict()) all += name + bits(x);
  return all;
}

/// What an allocator makes of a request at most: sizes are one to two times a power of two, in quarters.
int64_t block_of(int64_t bytes) {
  const int64_t quarter = std::max<int64_t>(
      1, static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(bytes, 2) - 1))) / 4);
  return (bytes + quarter - 1) / quarter * quarter;
}

/// The most bytes that a step has at a time beside those before it.
int64_t taken_by(const std::function<void()>& step) {
  const Device device = default_device();
  memory::empty_cache(device);  // a cached block that is larger than needed may be taken whole
  step();
  memory::reset_peak(device);
  const int64_t before = memory::stats(device).allocated;
  step();
  return memory::stats(device).peak_allocated - before;
}

constexpr int64_t kOthers = 4'096;      // of a budget, for tensors without sizes
constexpr int64_t kNumbers = 64 << 10;  // tensors without sizes, and how late a CPU's threads count

template <class Rule>
void expect_counted(const MemoryCase& memory_case, int variant) {
  constexpr int64_t n = 1 << 17;
  for (const Execution execution : kEager)
    for (const bool by_factor : {false, true}) {
      const Tensor a = parameter(full({n}, 0.5, {.dtype = memory_case.dtype}));
      a.set_grad(full({n}, 0.01, {.dtype = memory_case.dtype}));
      Any<Rule> optimizer({{"a", a}}, settings_of<Rule>(variant), execution, memory_case.memory);
      const int64_t got =
          taken_by([&] { by_factor ? (void)optimizer.step({.skip_nonfinite = true}) : optimizer.step(); });
      const MemoryReport report = optimizer.memory_report(by_factor);
      const int64_t counted = report.steps[execution == Execution::loop ? 0 : 1].intermediates;
      EXPECT_TRUE(got >= counted - kNumbers && got <= block_of(counted) + kNumbers)
          << Rule::kName << " " << name(execution) << ", " << text_of(memory_case) << (by_factor ? ", by a factor" : "")
          << ": " << got / n << " bytes an element, counted " << counted / n;
    }
}

TEST(Intermediates, of_every_rule_are_what_the_allocator_sees) {
  formula::Rules::each([]<class Rule>() {
    for (const int variant : {0, 1}) expect_counted<Rule>({kF32, {}}, variant);
  });
}

TEST(Intermediates, of_every_way_to_keep_states_and_masters_are_what_the_allocator_sees) {
  for (const MemoryCase& memory_case : kMemoryCases)
    expect_counted<Adam3>(memory_case, 1), expect_counted<formula::Sgd<false>>(memory_case, 0);
}

// ---- budgets --------------------------------------------------------------------------------------------------------

TEST(MemoryBudget, changes_no_bit) {
  for (const MemoryCase& memory_case : kMemoryCases)
    for (const Execution execution : kEager) {
      std::string expected;
      for (const int64_t elements : {0, 256, 1024, 3'000}) {
        Model model(memory_case.dtype);
        Any<Adam3> adam(model.params, settings_of<Adam3>(1), execution, memory_case.memory);
        if (elements > 0) {
          adam.set_memory_budget(1 << 30);
          const int64_t whole = adam.memory_report(true).steps[execution == Execution::loop ? 0 : 1].intermediates;
          int64_t largest = 0, all = 0;
          for (const auto& [name, p] : model.params) largest = std::max(largest, p.numel()), all += p.numel();
          adam.set_memory_budget(kOthers + block_of(whole / (execution == Execution::loop ? largest : all) * elements));
        }
        for (int step = 0; step < 4; ++step) {
          model.give_gradients();
          if (step == 2) model.params[3].second.set_grad({});
          step % 2 == 0 ? adam.step() : (void)adam.step({.max_norm = 1, .zero_grad = true});
        }
        const std::string got = all_bits(model, adam);
        if (elements == 0) expected = got;
        EXPECT_TRUE(got == expected) << name(execution) << ", " << text_of(memory_case) << ", " << elements
                                     << " elements at a time";
      }
    }
}

TEST(MemoryBudget, is_kept) {
  for (const MemoryCase& memory_case : kMemoryCases)
    for (const Execution execution : kEager) {
      std::vector<NamedTensor> params;
      for (int i = 0; i < 4; ++i) {
        params.emplace_back(fmt::format("{}", i), parameter(full({1 << 16}, 0.5, {.dtype = memory_case.dtype})));
        params.back().second.set_grad(full({1 << 16}, 0.01, {.dtype = memory_case.dtype}));
      }
      Any<Adam3> adam(params, settings_of<Adam3>(1), execution, memory_case.memory);
      adam.set_memory_budget(1 << 30);
      const size_t own = execution == Execution::loop ? 0 : 1;
      const int64_t elements = execution == Execution::loop ? 1 << 16 : 1 << 18;
      const int64_t budget = adam.memory_report().steps[own].intermediates / elements * (1 << 15);
      adam.set_memory_budget(budget);
      const int64_t used = adam.memory_report().steps[own].intermediates;
      EXPECT_TRUE(used <= budget && used > budget / 2) << used << " of " << budget;
      EXPECT_LE(taken_by([&] { adam.step(); }), budget) << name(execution) << ", " << text_of(memory_case);
    }
}

TEST(MemoryBudget, of_any_size_bounds_what_the_allocator_takes_for_parameters_of_any_size) {
  for (const MemoryCase& memory_case : kMemoryCases)
    for (const Execution execution : kEager) {
      std::vector<NamedTensor> params;
      for (const int64_t n : {1, 100'003, 77, 65'537, 4'099, 262'143, 255}) {
        params.emplace_back(fmt::format("{}", n), parameter(full({n}, 0.5, {.dtype = memory_case.dtype})));
        params.back().second.set_grad(full({n}, 0.01, {.dtype = memory_case.dtype}));
      }
      Any<Adam3> adam(params, settings_of<Adam3>(1), execution, memory_case.memory);
      for (const int64_t budget : {100'001, 196'609, 333'333, 1'048'577, 2'999'999}) {
        adam.set_memory_budget(budget);
        const std::string what = fmt::format("{}, {}, {} bytes", name(execution), text_of(memory_case), budget);
        EXPECT_LE(taken_by([&] { adam.step(); }), budget) << what;
        EXPECT_LE(taken_by([&] { adam.step({.max_norm = 1, .skip_nonfinite = true}); }), budget) << what << ", clipped";
      }
    }
}

TEST(MemoryBudget, that_is_too_small_is_refused_with_what_is_needed) {
  const Tensor a = parameter(zeros({1000}));
  a.set_grad(ones({1000}));
  AdamW adamw({{"a", a}}, {}, Execution::foreach);
  const std::string text = message<ValueError>([&] { adamw.set_memory_budget(1000); });
  EXPECT_EQ(text.substr(0, text.rfind(' ')),
            "adamw: memory_budget is too small for 256 elements at a time; got 1000 bytes; expected at least");
  const int64_t least = std::stoll(text.substr(text.rfind(' ')));
  EXPECT_EQ(adamw.memory_budget(), 0);
  EXPECT_THROW(adamw.set_memory_budget(least - 1), ValueError);
  adamw.set_memory_budget(least);
  EXPECT_NO_THROW(adamw.step({.max_norm = 1}));
  adamw.add_param_group({{{"b", parameter(zeros({1000}, {.dtype = kF64}))}}, {}});
  const std::string before = bits(a);
  EXPECT_THROW(adamw.step(), ValueError) << "f64 needs more";
  EXPECT_EQ(bits(a), before);
  EXPECT_THROW(adamw.set_memory_budget(-1), ValueError);
  AdamW fused({{"c", parameter(zeros({10}))}});
  fused.set_memory_budget(1);
}

/// The bytes that a refused budget asks for.
int64_t least_in(const std::string& text) { return std::stoll(text.substr(text.rfind(' '))); }

TEST(MemoryBudget, that_is_accepted_is_enough_for_gradients_of_every_dtype_with_and_without_clipping) {
  formula::Rules::each([]<class Rule>() {
    for (const MemoryCase& memory_case : kMemoryCases) {
      if (size_of(memory_case.dtype) != 2) continue;
      for (const Execution execution : kEager) {
        std::string expected;
        for (const bool bounded : {false, true}) {
          std::mt19937_64 random(5);
          const Tensor a = parameter(random_tensor(random, {1000}, memory_case.dtype));
          Any<Rule> optimizer({{"a", a}}, settings_of<Rule>(1), execution, memory_case.memory);
          if (bounded)
            optimizer.set_memory_budget(least_in(message<ValueError>([&] { optimizer.set_memory_budget(1); })));
          for (const DType grad_dtype : {kF32, memory_case.dtype, kF32}) {
            a.set_grad(random_tensor(random, {1000}, grad_dtype));
            optimizer.step();
            optimizer.step({.max_norm = 1, .skip_nonfinite = true});
          }
          if (!bounded) expected = bits(a);
          EXPECT_TRUE(bits(a) == expected)
              << fmt::format("{} {}, {}", Rule::kName, name(execution), text_of(memory_case));
        }
      }
    }
  });
}

TEST(EagerStep, that_has_room_for_no_element_is_refused) {
  const Tensor a = zeros({1000});
  const kernels::ListEntry entry{.at = {a.data_ptr(), a.data_ptr()}, .count = 1000};
  EagerWork work{};
  work.program.buffers = {4};
  work.where = "test";
  work.device = a.device();
  work.dtype = work.grad_dtype = kF32;
  const std::vector<SteppedParameter> one{{&entry, nullptr, 0}};
  const std::string expected =
      fmt::format("test: memory_budget is too small for 256 elements at a time; got 4096 bytes; expected at least {}",
                  least_budget(4));
  EXPECT_EQ(message<ValueError>([&] { LoopStep(work, one, 4'096); }), expected);
  EXPECT_EQ(message<ValueError>([&] { ForeachStep(work, one, 4'096); }), expected);
  EXPECT_NO_THROW(LoopStep(work, one, least_budget(4)));
  EXPECT_NO_THROW(ForeachStep(work, one, least_budget(4)));
}

// ---- reports --------------------------------------------------------------------------------------------------------

TEST(MemoryReport, says_what_there_will_be_before_the_first_step_and_what_there_is_after_it) {
  const Tensor a = parameter(zeros({1000}, {.dtype = kBF16})), b = parameter(zeros({24}));
  AdamW adamw({{"a", a}, {"b", b}}, {.memory = {.masters = Masters::f32, .states = {StateType::bf16, StateType::q8}}},
              Execution::loop);
  a.set_grad(zeros({1000}, {.dtype = kBF16}));
  b.set_grad(zeros({24}));
  const MemoryReport before = adamw.memory_report();
  adamw.step();
  const MemoryReport after = adamw.memory_report();
  for (const MemoryReport& report : {before, after}) {
    EXPECT_EQ(report.parameters, 2 * 1000 + 4 * 24);
    EXPECT_EQ(report.gradients, report.parameters);
    EXPECT_EQ(report.states.device, 2 * 1024 + (1000 + 4 * 4) + (24 + 4));
    EXPECT_EQ(report.masters.total(), 4 * 1000);
    EXPECT_EQ(report.copies, 0);
    EXPECT_EQ(report.steps[2].execution, Execution::fused);
    EXPECT_EQ(report.steps[2].intermediates, 0);
    EXPECT_EQ(report.steps[2].calls, 2) << "a dtype each";
    EXPECT_GT(report.steps[1].intermediates, 0);
    EXPECT_GT(report.steps[0].calls, report.steps[2].calls);
  }
  EXPECT_EQ(before.text(), after.text());
  EXPECT_NE(before.text().find(fmt::format("{:<13} {:>10}\n", "states", "3.1 kB")), std::string::npos) << before.text();
}

}  // namespace
}  // namespace lorry::optim::test
