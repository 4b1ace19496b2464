#pragma once

#include <cstdint>

namespace lorry::formula {

/// What a code is.
enum class CodeFormat : uint8_t {
  int8,  ///< (code - zero point) * scale; the code is a signed byte
  e4m3,  ///< 4 bits of exponent and 3 of mantissa, largest 448, no infinities; what is larger becomes 448
  e5m2   ///< 5 bits of exponent and 2 of mantissa, largest 57344; what is larger becomes an infinity
};

}  // namespace lorry::formula
