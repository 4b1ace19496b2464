#pragma once

// Which states and masters an optimizer keeps beside its parameters, in how many bits, and where: the member `memory`
// of every optimizer's options.
//
//   optim::AdamW optimizer(params, {.lr = 6e-4, .memory = {.masters = Masters::split, .states = StateType::q8}});
//   optim::AdamW optimizer(params, {.memory = {.states = {StateType::bf16, StateType::q8},
//                                           .placement = Placement::pinned}});
//
// It is a choice between memory and precision. The same choice gives the same bits in every execution and on every
// device.

#include <string>
#include <string_view>

#include "lorry/device/choices.h"

namespace lorry::optim {

/// How many states a rule may have.
inline constexpr int kMaxStates = 3;

/// How a 16-bit parameter keeps steps that are smaller than its last bit. For f32 and f64 parameters all are `none`.
enum class Masters : uint8_t {
  none,        ///< it does not: such steps are rounded away
  f32,         ///< an f32 copy, the master, is stepped; the parameter is that, rounded, and writes to it are lost
  split,       ///< bf16 only: the parameter is the upper half of the master; the lower half is stored beside it
  stochastic,  ///< bf16 only: the parameter is rounded stochastically, so that small steps add up in the mean
};

/// Where states and masters are stored. For parameters on a CPU all are the same.
enum class Placement : uint8_t {
  device,   ///< beside the parameter
  pinned,   ///< in pinned host memory, which the device reaches over its link
  managed,  ///< in managed memory, whose pages move to the device or host that touches them
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

/// The types of a rule's states, in their order. The last type that is given applies to all further states.
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

/// The memory options of a group.
struct Memory {
  Masters masters = Masters::none;
  StateTypes states = {};
  Placement placement = Placement::device;
  uint64_t seed = 0;  ///< of stochastic rounding: of bf16 states and Masters::stochastic

  bool operator==(const Memory&) const = default;
};

}  // namespace lorry::optim
