#pragma once

#include <cstdint>

namespace lorry::parallel {

/// How the elements of all ranks are joined.
enum class Reduction : uint8_t { sum, product, minimum, maximum };
/// "sum", ...
const char* name(Reduction reduction);

}  // namespace lorry::parallel
