// The fused kernels against the formula run as a scalar loop: the same rule, another execution, the same bits.

#include "lorry/device/cpu/team.h"
#include "lorry/formula/clip.h"
#include "tests/optim/lists.h"

namespace lorry::optim::test {
namespace {

/// Counts around registers, blocks and tiles, empties among them.
const std::vector<int64_t> kCounts = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 1023, 1025, 0, 16'385, 5};

/// The parameter of an entry as it is stepped: joined with its master.
template <class C, class T>
std::vector<C> params_of(const Spec& spec, const kernels::ListEntry& entry, const void* masters) {
  std::vector<C> params(static_cast<size_t>(entry.count));
  for (size_t i = 0; i < params.size(); ++i) {
    params[i] = static_cast<C>(static_cast<const T*>(entry.at[0])[i]);
    if (spec.masters == MasterKind::f32) params[i] = static_cast<C>(static_cast<const float*>(masters)[i]);
    if (spec.masters == MasterKind::split)
      params[i] = static_cast<C>(std::bit_cast<float>(
          formula::joined(static_cast<const uint16_t*>(entry.at[0])[i], static_cast<const uint16_t*>(masters)[i])));
  }
  return params;
}

/// Writes the parameter and its master; `key`: of stochastic rounding.
template <class T, class C, class Key>
void store_params(const Spec& spec, const kernels::ListEntry& entry, void* masters, const std::vector<C>& params,
                  const Key& key) {
  if (spec.masters == MasterKind::stochastic)
    return store({params.begin(), params.end()}, StateType::bf16, true, key, entry.at[0]);
  for (size_t i = 0; i < params.size(); ++i) {
    static_cast<T*>(entry.at[0])[i] = T(params[i]);
    if (spec.masters == MasterKind::f32) static_cast<float*>(masters)[i] = static_cast<float>(params[i]);
    if (spec.masters == MasterKind::split) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(params[i])), upper = formula::upper_half(bits);
      static_cast<uint16_t*>(entry.at[0])[i] = static_cast<uint16_t>(upper);
      static_cast<uint16_t*>(masters)[i] = static_cast<uint16_t>(formula::lower_half(bits, upper));
    }
  }
}

/// One step of a list on the CPU, element by element. C: the type of computation.
template <class C, class Rule>
void step_by_scalars(Steppable<Rule>& x, double factor, bool zero_grads) {
  constexpr int kStates = Rule::kStates;
  const kernels::List& list = x.list();
  auto* const hyper_blocks = x.template typed<C>();
  const Spec& spec = x.spec();
  const bool skips = std::isnan(factor);
  const auto with_types = [&](const auto& f) {
    visit_floating(spec.dtype,
                   [&]<class T>(Type<T> type) { spec.wide_grads ? f(type, Type<float>()) : f(type, type); });
  };
  with_types([&]<class T, class G>(Type<T>, Type<G>) {
    for (const kernels::ListEntry& entry : list.entries()) {
      const auto n = static_cast<size_t>(entry.count);
      auto* const grad = static_cast<G*>(entry.at[1]);
      void* const masters = spec.has_master() ? entry.at[2 + kStates] : nullptr;
      const auto& hyper_block = hyper_blocks[entry.word];
      const auto key = [&](int array) {
        return formula::rounding_key(x.kSeed, entry.number, static_cast<uint32_t>(array), hyper_block.next.steps);
      };
      if (!skips) {
        std::vector<C> params = params_of<C, T>(spec, entry, masters), states[kStates > 0 ? kStates : 1];
        for (int k = 0; k < kStates; ++k) {
          if (spec.f64()) {
            states[k].assign(static_cast<C*>(entry.at[2 + k]), static_cast<C*>(entry.at[2 + k]) + n);
          } else {
            const std::vector<float> values =
                loaded(spec.states[k], formula::is_signed<Rule>(k), entry.at[2 + k], entry.count);
            states[k].assign(values.begin(), values.end());
          }
        }
        for (size_t i = 0; i < n; ++i) {
          C own[kStates > 0 ? kStates : 1];
          for (int k = 0; k < kStates; ++k) own[k] = states[k][i];
          Rule()(params[i], static_cast<C>(grad[i]) * formula::multiplier(static_cast<C>(factor)), own,
                 hyper_block.hyper);
          for (int k = 0; k < kStates; ++k) states[k][i] = own[k];
        }
        for (int k = 0; k < kStates; ++k) {
          if (spec.f64())
            std::copy(states[k].begin(), states[k].end(), static_cast<C*>(entry.at[2 + k]));
          else
            store({states[k].begin(), states[k].end()}, spec.states[k], formula::is_signed<Rule>(k), key(1 + k),
                  entry.at[2 + k]);
        }
        store_params<T>(spec, entry, masters, params, key(0));
      }
      if (zero_grads) std::fill(grad, grad + n, G(0));
    }
  });
  if (!skips)
    for (int c = 1; c < Steppable<Rule>::kHyperBlocks; ++c) hyper_blocks[c].advance();
}

template <class Rule>
void step_by_scalars(Steppable<Rule>& x, double factor, bool zero_grads) {
  x.spec().f64() ? step_by_scalars<double>(x, factor, zero_grads) : step_by_scalars<float>(x, factor, zero_grads);
}

template <class Rule>
void expect_the_formula(const Spec& spec, int variant, Strategy strategy) {
  SCOPED_TRACE(fmt::format("{}, variant {}, {}", Rule::kName, variant, spec.text()));
  Steppable<Rule> fused(kCPU, spec, kCounts, variant, strategy), scalar(kCPU, spec, kCounts, variant);
  for (size_t s = 0; s < std::size(kCourse); ++s) {
    const Doing& doing = kCourse[s];
    for (Steppable<Rule>* x : {&fused, &scalar}) prepare(*x, s);
    fused.step(doing.factor ? &*doing.factor : nullptr, doing.zero_grads);
    step_by_scalars(scalar, doing.factor.value_or(1), doing.zero_grads);
    if (!same(fused, scalar, s)) return;
  }
}

TEST(OptimKernel, fused_steps_give_the_bits_of_the_scalar_formula) {
  formula::Rules::each([]<class Rule>() {
    for (const Spec& spec : kSpecs)
      for (int variant = 0; variant < kVariants && spec.fits(Rule::kStates); ++variant)
        expect_the_formula<Rule>(spec, variant, variant == 0 ? Strategy::automatic : Strategy::per_tensor);
  });
}

TEST(OptimKernel, the_number_of_threads_changes_no_bit) {
  const int before = cpu::threads();
  const std::vector<int64_t> counts = {40'001, 0, 3, 16'385, 70'000, 1};
  formula::Rules::each([&]<class Rule>() {
    for (const Spec& spec : {kSpecs[0], kSpecs[6], kSpecs[17], kSpecs[18]}) {
      Steppable<Rule> one(kCPU, spec, counts, 1);
      cpu::set_threads(1);
      one.new_gradients(1), one.step();
      for (const int threads : {2, 3, 7}) {
        cpu::set_threads(threads);
        Steppable<Rule> other(kCPU, spec, counts, 1);
        other.new_gradients(1), other.step();
        EXPECT_TRUE(same(other, one, 0)) << Rule::kName << " by " << threads << " threads";
      }
    }
  });
  cpu::set_threads(before);
}

TEST(OptimKernel, hyper_blocks_refresh_and_advance_as_the_formula_says) {
  formula::Rules::each([]<class Rule>() {
    for (const Spec& spec : {kSpecs[0], kSpecs[1]}) {
      const auto expect = [&]<class C>(Type<C>) {
        Steppable<Rule> x(kCPU, spec, {1}, 0);
        auto expected = x.template hyper_blocks<C>();
        const auto same_blocks = [&](const char* what) {
          const auto got = x.template hyper_blocks<C>();
          for (size_t c = 0; c < got.size(); ++c) {
            EXPECT_EQ(0, std::memcmp(&got[c].progress, &expected[c].progress, sizeof(got[c].progress)))
                << Rule::kName << ", block " << c << " " << what;
            formula::ProgressOf<Rule> next = expected[c].progress;
            std::vector<C> numbers[2];
            formula::cast_hyper<C>(Rule::advance(next, expected[c].settings)).template map<C>([&](C v) {
              return numbers[0].emplace_back(v);
            });
            got[c].hyper.template map<C>([&](C v) { return numbers[1].emplace_back(v); });
            EXPECT_EQ(numbers[0], numbers[1]) << Rule::kName << ", block " << c << " " << what;
          }
        };
        same_blocks("when set");
        const double nan = NAN, half = 0.5;
        for (const double* factor : {static_cast<const double*>(nullptr), &half, &nan}) {
          x.advance(factor);
          for (const size_t running : {1u, 2u})
            if (factor != &nan) Rule::advance(expected[running].progress, expected[running].settings);
          same_blocks("when it advanced");
        }
        auto settings = settings_of<Rule>(1);
        settings.lr = 0.5;
        x.set({{2, true, &settings, nullptr}, {3, true, nullptr, &expected[1].progress}});
        expected[2].settings = settings, expected[3].progress = expected[1].progress;
        same_blocks("when set again");
        x.advance(nullptr);
        for (const size_t running : {1u, 2u, 3u}) Rule::advance(expected[running].progress, expected[running].settings);
        same_blocks("when all ran");
      };
      spec.f64() ? expect(Type<double>{}) : expect(Type<float>{});
    }
  });
}

TEST(OptimKernel, amsgrad_keeps_the_largest_and_a_nan) {
  using Rule = formula::AdamW<true>;
  float param[3] = {1, 1, 1}, grad[3] = {1, 0, NAN}, states[3][3] = {};
  const DType dtypes[] = {kF32, kF32, kF32, kF32, kF32};
  kernels::List list(kCPU, dtypes);
  list.add({{param, grad, states[0], states[1], states[2]}, 3});
  formula::HyperBlock<Rule, float> hyper_block{.settings = {}, .progress = {}, .next = {}, .hyper = {}, .running = 1};
  hyper_block.refresh();
  for (int step = 0; step < 2; ++step) {
    kernels::backend(kCPU).optim->rules.of<Rule>().f32.step(
        &hyper_block, {.list = list, .first_block = 0, .block_count = 1}, current_stream(kCPU));
    grad[0] = 0;
  }
  EXPECT_LT(states[1][0], states[2][0]) << "the mean of squares fell, its largest value stayed";
  EXPECT_EQ(states[2][1], 0);
  EXPECT_TRUE(std::isnan(states[2][2]) && std::isnan(param[2]));
}

}  // namespace
}  // namespace lorry::optim::test
