#pragma once

// The source of a kernel that steps a list by a recorded rule: the rule as a struct, so that the bodies of step.h and
// step_compressed.h are those of the rules that Lorry is built with.

#include <string>

#include "lorry/kernels/common/recorded_rule.h"

namespace lorry::kernels::cuda {

/// body: a type that is made of `Rule`; source: a template of list.h, such as "Table". The kernel is called `name`.
std::string emit_step(const RecordedRule& rule, const std::string& name, const std::string& body,
                      const std::string& source);

}  // namespace lorry::kernels::cuda
