#pragma once

// Parts of the copy kernels (copy.cpp, transpose.cpp, join.cpp): moving elements between layouts.

#include <span>

#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"
#include "lorry/kernels/common/convert.h"

namespace lorry::kernels::cpu {

/// The address of an element, counted from the first.
inline char* at(const Array& x, int64_t offset) { return x.as<char>() + offset * size_of(x.dtype); }

/// The conversion for copies that are not whole runs. Truth values are written as 0 or 1.
inline Convert element_converter(DType from, DType to) {
  return converter(from, to == kBool && from == kBool ? kU8 : to);
}

/// The offsets of operands 0 and 1 at position r of the iteration over all dimensions except the innermost and
/// `except`.
void outer_offsets(const Iteration& it, int except, int64_t r, int64_t offsets[2]);

/// Copies `rows` rows of `bytes` bytes. The pitch is the distance in bytes between the beginnings of rows.
void move_rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, int64_t bytes, int64_t rows);

/// The dimension other than the innermost along which the source (operand 1) is contiguous; 0 if there is none, or if
/// the innermost one is as good.
int transposed_dimension(const Iteration& it);
/// Copies where the source is contiguous along dimension `other` and not along the innermost.
void copy_transposed(const Iteration& it, int other, const Array& to, const Array& from);

/// CopyKernels::join.
void join(const Array& to, std::span<const Array> from, Stream stream);

}  // namespace lorry::kernels::cpu
