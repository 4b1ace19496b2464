#pragma once

#include <string_view>

#include "lorry/base/error.h"

namespace lorry::optim {

/// How a step runs. All ways give the same bits.
///   loop       tensor by tensor, a kernel for each operation of the formula; needs memory for the intermediate results
///              of one tensor
///   foreach    a kernel for each operation over lists of all parameters; needs memory for the intermediate results of
///              all of them
///   fused      one kernel over all parameters, without intermediate results
///   compiled   the same, made from a recording of the rule's update: on a CPU by operations over blocks that stay in
///              the first cache, on a GPU by a kernel that is generated and compiled before the first step
///   automatic  fused
enum class Execution { automatic, loop, foreach, fused, compiled };

constexpr std::string_view name(Execution e) {
  constexpr std::string_view kNames[] = {"automatic", "loop", "foreach", "fused", "compiled"};
  return kNames[static_cast<int>(e)];
}

/// The execution called `text`. Throws ValueError that lists the names.
inline Execution parse_execution(std::string_view text) {
  for (const Execution e :
       {Execution::automatic, Execution::loop, Execution::foreach, Execution::fused, Execution::compiled})
    if (name(e) == text) return e;
  raise<ValueError>("execution: unknown name; got '{}'; expected automatic, loop, foreach, fused or compiled", text);
}

}  // namespace lorry::optim
