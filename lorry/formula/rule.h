#pragma once

// What an optimizer's rule is: a struct that says how one parameter moves, once, for every execution and device.
//
//   struct Momentum {
//     static constexpr const char* kName = "momentum";
//     static constexpr int kStates = 1;                                   // arrays as large as the parameter
//     static constexpr const char* kStateNames[] = {"momentum_buffer"};
//     static constexpr unsigned kNotNegative = 0b0;                       // optional: bit k is set for a state that is
//                                                                         // never below zero: better 8-bit codes
//
//     struct Settings { double lr = 1e-3, momentum = 0.9; };              // what a user sets: numbers, then flags
//     static constexpr Setting<Settings> kSettings[] = {                  // optional: numbers that may change
//         {"lr", &Settings::lr}, {"momentum", &Settings::momentum}};      // between steps, by name; else lr alone
//     struct Progress { double steps = 0; };                              // what is carried from step to step:
//                                                                         // doubles, steps first
//     static constexpr const char* kProgressNames[] = {"step"};
//
//     template <class V> struct Hyper {                                   // what a step reads: numbers of one type,
//                                                                         // then flags
//       V lr, momentum;
//       template <class To, class F> LORRY_INLINE Hyper<To> map(const F& f) const { return {f(lr), f(momentum)}; }
//     };
//     static LORRY_INLINE Hyper<double> advance(Progress& p, const Settings& s) {
//       p.steps += 1;
//       return {s.lr, s.momentum};
//     }
//     static LORRY_INLINE double first_state(int, const Settings&) { return 0; }
//     static const char* conflict(const Settings& s);                     // optional: what is wrong with settings that
//                                                                         // contradict each other; null: nothing
//
//     template <class V, class H> LORRY_INLINE void operator()(V& param, V grad, V* states, const H& h) const {
//       states[0] = h.momentum * states[0] + grad;
//       param = param - h.lr * states[0];
//     }
//   };
//
// The update uses only + - * / sqrt abs, comparisons and select, which are rounded once, so that all executions give
// the same bits on every device; `advance` also fma. A choice among values is a select, never an if. Settings,
// progress and numbers live in a HyperBlock on the device, which advances by itself when a step is done: the host
// may not know how many steps were skipped. Hence a flag depends on settings alone, and a choice that depends on the
// step is a number and a select. A setting may lie in a tensor, whose value the host does not know: of a number in
// kSettings a flag may ask only whether it is 0, and both ways are prepared. Powers such as beta^t are running
// products in Progress: pow rounds differently on every platform (power.h has one that does not).

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "lorry/formula/scalar.h"

namespace lorry::formula {

template <class R>
using SettingsOf = typename R::Settings;
template <class R>
using ProgressOf = typename R::Progress;
template <class R, class V>
using HyperOf = typename R::template Hyper<V>;

/// Hyper-parameters of another type, each number rounded once.
template <class To, class H>
LORRY_INLINE auto cast_hyper(const H& hyper) {
  return hyper.template map<To>([](const auto& x) { return To(x); });
}

/// Parameters of one group that have made the same steps, on the device. `hyper` is that of the next step. C is the
/// type in which they are computed: float or double.
template <class Rule, class C>
struct HyperBlock {
  SettingsOf<Rule> settings;
  ProgressOf<Rule> progress;  ///< of the steps done
  ProgressOf<Rule> next;      ///< when the next step is done too
  HyperOf<Rule, C> hyper;
  int32_t running;  ///< 0: its parameters take no part in the next step

  /// What the next step reads.
  LORRY_INLINE const HyperOf<Rule, C>& numbers() const { return hyper; }
  /// How many steps will have been made after the next one.
  LORRY_INLINE double next_steps() const { return next.steps; }

  /// After a change of settings or progress.
  LORRY_INLINE void refresh() {
    next = progress;
    hyper = cast_hyper<C>(Rule::advance(next, settings));
  }
  /// The next step is done.
  LORRY_INLINE void advance() {
    if (!running) return;
    progress = next;
    refresh();
  }
};

/// What to write into a hyper block.
template <class Rule>
struct HyperBlockChange {
  int32_t block = 0;
  bool running = true;
  const SettingsOf<Rule>* settings = nullptr;  ///< null: those that it has
  const ProgressOf<Rule>* progress = nullptr;  ///< null: likewise
};

/// Which values a setting may have.
enum class Domain : uint8_t {
  finite,
  not_negative,   ///< and finite
  positive,       ///< and finite
  below_one,      ///< [0, 1): a share such as beta
  unit_interval,  ///< [0, 1]
  inside_unit,    ///< (0, 1)
  above_one,      ///< and finite
};

/// A number among a rule's settings, which may change between steps.
template <class Settings>
struct Setting {
  using Number = double Settings::*;  // nvcc puts parentheses around a member of this type, which is a warning
  const char* name;
  Number number;
  Domain domain = Domain::not_negative;
};

/// A rule's settings that may change; of one that does not list them its lr.
template <class Rule>
struct SettingList {
  static constexpr Setting<SettingsOf<Rule>> kOnlyLr = {"lr", &SettingsOf<Rule>::lr};
  static constexpr std::span<const Setting<SettingsOf<Rule>>> all() {
    if constexpr (requires { Rule::kSettings; })
      return Rule::kSettings;
    else
      return {&kOnlyLr, 1};
  }
};

/// Changes number `setting` of SettingList in a hyper block in host memory.
template <class Rule, class C>
void set_number(HyperBlock<Rule, C>& block, int setting, double value) {
  block.settings.*SettingList<Rule>::all()[static_cast<size_t>(setting)].number = value;
  block.refresh();
}

/// Whether state k of a rule may be negative.
template <class Rule>
constexpr LORRY_INLINE bool is_signed(int k) {
  if constexpr (requires { Rule::kNotNegative; })
    return !(Rule::kNotNegative >> k & 1);
  else
    return true;
}

/// Calls f(integral_constant<k>) for every state, for code that needs to know which when it is compiled.
template <class Rule, class F>
LORRY_INLINE void for_states(const F& f) {
  [&]<size_t... k>(std::index_sequence<k...>) { (f(std::integral_constant<int, k>()), ...); }
  (std::make_index_sequence<Rule::kStates>());
}

template <class Rule>
inline constexpr int kProgressCount = static_cast<int>(sizeof(ProgressOf<Rule>) / sizeof(double));

namespace detail {

/// How many numbers the rule's Hyper has, and how many flags, which are bools behind them; negative: it has members of
/// other types. With bytes in place of numbers it has no gaps.
template <int kCount>
struct Bytes {
  unsigned char at[kCount];
};
template <class Rule>
inline constexpr int kHyperNumbers = sizeof(HyperOf<Rule, Bytes<2>>) - sizeof(HyperOf<Rule, Bytes<1>>);
template <class Rule>
inline constexpr int kHyperFlags = alignof(HyperOf<Rule, Bytes<1>>) == 1
                                       ? static_cast<int>(sizeof(HyperOf<Rule, Bytes<1>>)) - kHyperNumbers<Rule>
                                       : -1;

/// The members of a Hyper with flags, by their order.
template <class Rule>
struct HyperParts {
  double numbers[kHyperNumbers<Rule>];
  bool flags[kHyperFlags<Rule>];
};

/// The parts of a hyper block, in bytes from its start. Only for code that is generated at run time from a recording of
/// the rule and cannot name the block's type; all other code uses HyperBlock.
struct HyperBlockLayout {
  int64_t bytes = 0;       ///< from one block to the next
  int64_t hyper = 0;       ///< the numbers of the rule's Hyper
  int numbers = 0;         ///< how many of them
  int flags = 0;           ///< bools behind the numbers
  int64_t next_steps = 0;  ///< the steps made when the next one is done
};
template <class Rule, class C>
HyperBlockLayout layout_of() {
  const HyperBlock<Rule, C> block{};
  const auto offset = [&](const auto& part) {
    return reinterpret_cast<const char*>(&part) - reinterpret_cast<const char*>(&block);
  };
  return {.bytes = sizeof(block),
          .hyper = offset(block.hyper),
          .numbers = kHyperNumbers<Rule>,
          .flags = kHyperFlags<Rule>,
          .next_steps = offset(block.next.steps)};
}

}  // namespace detail

}  // namespace lorry::formula
