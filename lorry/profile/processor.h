#pragma once

// Which processor this is: for reports, and because what was measured on one processor is not true of another.

#include <string>

namespace lorry::profile {

/// The model's name, such as "AMD EPYC 9654 96-Core Processor"; "unknown" if the system does not say.
std::string processor_name();

/// Highway's name of the best instruction set that this processor has and Highway has kernels for, such as "AVX3_DL".
std::string simd_name();

}  // namespace lorry::profile
