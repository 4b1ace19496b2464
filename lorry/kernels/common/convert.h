#pragma once

// Conversions between any two element types. To a narrower float: rounds to nearest even (from f64 through f32). To
// bool: whether the value is not zero. From float to integer: truncates to i64 (NaN is 0, values outside i64 are
// clamped), then keeps the low bits that fit the type. From integer to a narrower integer: keeps the low bits.

#include <cstdint>

#include "lorry/layout/dtype.h"

namespace lorry::kernels {

/// Converts n elements, `stride` elements apart; a stride of 0 repeats one element. `to` and `from` are the same memory
/// or do not overlap.
using Convert = void (*)(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n);

/// The conversion function for two types, for this process's instruction set.
Convert converter(DType from, DType to);

using ConvertTable = Convert[kDTypeCount][kDTypeCount];

}  // namespace lorry::kernels
