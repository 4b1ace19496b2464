#pragma once

#include <string_view>

#include "lorry/base/error.h"

namespace lorry::optim {

/// How a step runs. All executions give the same bits.
///   loop       one parameter after the other, a kernel for each operation of the rule; the intermediate results of one
///              parameter need memory
///   foreach    a kernel for each operation of the rule, over the list of all parameters; the intermediate results of
///              all parameters need memory
///   fused      one kernel over all parameters; intermediate results stay in registers
///   compiled   one kernel too, made from a recording of the rule: on a GPU it is generated and compiled before the
///              first step, on a CPU the recording runs over blocks that stay in the first-level cache
///   automatic  fused
enum class Execution { automatic, loop, foreach, fused, compiled };

constexpr std::string_view name(Execution e) {
  constexpr std::string_view kNames[] = {"automatic", "loop", "foreach", "fused", "compiled"};
  return kNames[static_cast<int>(e)];
}

/// The execution with this name. Throws ValueError that lists the names.
inline Execution parse_execution(std::string_view text) {
  for (const Execution e :
       {Execution::automatic, Execution::loop, Execution::foreach, Execution::fused, Execution::compiled})
    if (name(e) == text) return e;
  raise<ValueError>("execution: unknown name; got '{}'; expected automatic, loop, foreach, fused or compiled", text);
}

}  // namespace lorry::optim
