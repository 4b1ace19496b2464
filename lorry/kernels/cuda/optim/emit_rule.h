#pragma once

// Makes the source of a kernel that steps a list by a recorded rule. The recording becomes a struct like those of
// formula/, and goes into the same kernel bodies (step.h, step_compressed.h).

#include <string>

#include "lorry/kernels/common/recorded_rule.h"

namespace lorry::kernels::cuda {

/// body: the text of a kernel body's type, such as "StepUniform<Rule, float>". source: a template of list.h, such as
/// "Table". name: of the kernel.
std::string emit_step(const RecordedRule& rule, const std::string& name, const std::string& body,
                      const std::string& source);

}  // namespace lorry::kernels::cuda
