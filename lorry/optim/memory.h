#pragma once

// What an optimizer keeps beside its parameters, as what, and where: the member `memory` of every optimizer's options.
//
//   optim::AdamW optimizer(params, {.lr = 6e-4, .memory = {.masters = Masters::split, .states = StateType::q8}});
//   optim::AdamW optimizer(params, {.memory = {.states = {StateType::bf16, StateType::q8},
//                                           .placement = Placement::pinned}});
//
// All of it is a choice of bytes against bits: the same one gives the same bits in every execution and on every device.

#include <string>
#include <string_view>

#include "lorry/device/choices.h"

namespace lorry::optim {

/// The most states of a rule.
inline constexpr int kMaxStates = 3;

/// What is kept of 16-bit parameters beside them. For f32 and f64 parameters, which lose no step, all are `none`.
enum class Masters : uint8_t {
  none,
  f32,         ///< a copy in f32, which is stepped
  split,       ///< for bf16: the lower half of that f32, whose upper half is the parameter
  stochastic,  ///< nothing, but a bf16 parameter is rounded stochastically: small steps add up in the mean
};

/// Where states and masters lie. For parameters on a CPU all are the same.
enum class Placement : uint8_t {
  device,   ///< beside the parameter
  pinned,   ///< in host memory that the device reaches over its link
  managed,  ///< in memory that moves to whoever touches it, page by page
};

constexpr std::string_view name(Masters masters) {
  constexpr std::string_view kNames[] = {"none", "f32", "split", "stochastic"};
  return kNames[static_cast<int>(masters)];
}
constexpr std::string_view name(Placement placement) {
  constexpr std::string_view kNames[] = {"device", "pinned", "managed"};
  return kNames[static_cast<int>(placement)];
}
using lorry::StateType;

/// The types of a rule's states, in their order; the last that is given is that of all that follow.
struct StateTypes {
  StateType each[kMaxStates];

  constexpr StateTypes(StateType all = StateType::f32) : StateTypes(all, all) {}
  constexpr StateTypes(StateType first, StateType rest) : StateTypes(first, rest, rest) {}
  constexpr StateTypes(StateType first, StateType second, StateType third) : each{first, second, third} {}
  constexpr StateType operator[](int k) const { return each[k]; }
  bool operator==(const StateTypes&) const = default;
};

/// "q8", or where they differ "bf16,q8,q8".
std::string name(const StateTypes& types);

/// The masters called `text`. Throws ValueError that lists the names.
Masters parse_masters(std::string_view text);
/// The placement called `text`. Throws ValueError that lists the names.
Placement parse_placement(std::string_view text);
/// The types called `text`: one for all, or several after commas. Throws ValueError that lists the names.
StateTypes parse_states(std::string_view text);

/// What a group keeps beside its parameters.
struct Memory {
  Masters masters = Masters::none;
  StateTypes states = {};
  Placement placement = Placement::device;
  uint64_t seed = 0;  ///< of stochastic rounding: of bf16 states and Masters::stochastic

  bool operator==(const Memory&) const = default;
};

}  // namespace lorry::optim
