#include "lorry/optim/memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::optim {
namespace {

template <class E, size_t N>
E parse(const char* what, std::string_view text, const E (&all)[N]) {
  std::vector<std::string_view> names;
  for (const E one : all) {
    if (name(one) == text) return one;
    names.push_back(name(one));
  }
  raise<ValueError>("{}: unknown name; got '{}'; expected one of {}", what, text, fmt::join(names, ", "));
}

}  // namespace

Masters parse_masters(std::string_view text) {
  return parse("masters", text, {Masters::none, Masters::f32, Masters::split, Masters::stochastic});
}
Placement parse_placement(std::string_view text) {
  return parse("placement", text, {Placement::device, Placement::pinned, Placement::managed});
}

StateTypes parse_states(std::string_view text) {
  std::vector<StateType> types;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    types.push_back(parse("states", text.substr(begin, end - begin), {StateType::f32, StateType::bf16, StateType::q8}));
    begin = end + 1;
  }
  require<ValueError>(types.size() <= kMaxStates,
                      "states: more types than a rule has states; got '{}'; expected at most {}", text, kMaxStates);
  return {types[0], types.size() > 1 ? types[1] : types[0], types.back()};
}

std::string name(const StateTypes& types) {
  if (types == StateTypes(types[0])) return std::string(name(types[0]));
  return fmt::format("{},{},{}", name(types[0]), name(types[1]), name(types[2]));
}

}  // namespace lorry::optim
