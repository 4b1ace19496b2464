#pragma once

// Pointwise operators over lists of tensors: every row of formula/pointwise.def, with the bits of its kernel for one tensor.

#include "lorry/device/stream.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/list.h"

namespace lorry::kernels {

/// An operand of a row:
///   array    a tensor an entry: the list's next array
///   number   one number of the host, of dtype kF64 or kI64
///   values   numbers in the list's memory, of any dtype: that of an entry is values[step * word]
struct ListOperand {
  enum class Kind : uint8_t { array, number, values };
  Kind kind = Kind::array;
  DType dtype = kF64;
  uint8_t step = 0;  ///< 0: the same for all entries; 1: one an entry
  union {
    double real = 0;
    int64_t whole;
    const void* values;
  };
};

/// The list's arrays: the result, then one an operand, null for those that are none. Each is the result itself or shares no memory with
/// any result of the list.
struct ListPointwiseCall {
  Pointwise op;
  DType compute;  ///< kF32, kF64 or kI64: operands are converted to it, the result from it
  int arity;
  const List& list;
  ListOperand in[4];
  /// A number on the device: where it is NaN, the call writes nothing. Null: it always writes.
  const double* unless_nan = nullptr;
};

struct ForeachKernels {
  void (*pointwise)(const ListPointwiseCall& call, const Stream& stream) = nullptr;
  /// formula::Blend of three operands in kF32 or kF64; the call's row does not count.
  void (*blend)(const ListPointwiseCall& call, const Stream& stream) = nullptr;
  /// The second of a list's two arrays to the first, which may be of another dtype.
  void (*copy)(const List& list, const Stream& stream) = nullptr;
  /// Every element of a list's one array becomes the number at `value`, of type `dtype`, in host memory.
  void (*fill)(const List& list, const void* value, DType dtype, const Stream& stream) = nullptr;
};

}  // namespace lorry::kernels
