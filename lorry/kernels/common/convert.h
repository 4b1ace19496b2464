#pragma once

// Conversions between any two element types. To a narrower float rounds to nearest even (from f64 by way of f32); to
// bool is "not zero"; from a float to an integer cuts off the fraction, takes NaN as 0, stops at the limits of i64, and
// then keeps the low bits that fit, as integers do among themselves.

#include <cstdint>

#include "lorry/layout/dtype.h"

namespace lorry::kernels {

/// Converts n elements, `stride` elements apart; a stride of 0 repeats one. `to` and `from` are the same run or do not
/// overlap.
using Convert = void (*)(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n);

/// The function for two types, for the instruction set of this process.
Convert converter(DType from, DType to);

using ConvertTable = Convert[kDTypeCount][kDTypeCount];

}  // namespace lorry::kernels
