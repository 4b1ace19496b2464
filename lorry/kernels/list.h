#pragma once

// Kernels over lists of tensors: pointwise operators and norms.

#include <limits>
#include <span>

#include "lorry/device/stream.h"
#include "lorry/formula/list_sums.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/list.h"

namespace lorry::kernels {

// ---- foreach --------------------------------------------------------------------------------------------------------

// Pointwise operators over lists of tensors: every row of formula/pointwise.def, with the bits of its kernel for one
// tensor.

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

/// The list's arrays: the result, then one an operand, null for those that are none. Each is the result itself or
/// shares no memory with any result of the list.
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

// ---- list_norm ------------------------------------------------------------------------------------------------------

// Norms over whole lists of tensors, in one pass: of each tensor, of all together, and what a step then does to
// gradients of that norm. A norm reads every element once.
//
// Sums are f64, in an order that depends on the counts alone and is the same on every device:
//   tile    4,096 elements from the start of an entry on (the last has fewer). Element i is added to sum i % 128, in
//   turn; the 128 sums
//           are joined in halves: k with k + 64, then k with k + 32, and so on.
//   group   1,024 tiles, of all entries of all lists laid end to end; their sums are treated as a tile's elements are.
//   total   all groups, treated in the same way. An entry's own norm is that of a list of this entry alone.
// Elements of f16, bf16 and f32 are widened exactly, and so are the squares of these.

/// What is added up: a row of formula/list.def, or powers.
using formula::NormOrder;

/// What is left to do when the common norm is known; formula/clip.h says how. Addresses are of the lists' device, so
/// that nothing waits.
struct NormEnd {
  double max_norm = std::numeric_limits<double>::infinity();  ///< to clip to
  const double* scale = nullptr;  ///< of the loss: gradients are to be divided by it; null: 1
  bool skip_nonfinite = false;    ///< the factor of a norm that is not finite is NaN
  double* factor = nullptr;       ///< what gradients are to be multiplied by, infinite for NaN; null: not asked for
};

struct ListNormCall {
  std::span<const List* const> lists;  ///< of one array each, floating, of one device; a list is used for norms alone
  NormOrder order = NormOrder::two;
  double p = 2;  ///< of NormOrder::power
  /// The total before its root is taken and the end applied, which somebody else may add to before finish: the sum of
  /// |x|^p, or the largest |x|; null: not asked for.
  double* sum = nullptr;
  double* total = nullptr;       ///< the norm of all elements, divided by end.scale; null: not asked for
  double* per_tensor = nullptr;  ///< the norm of every entry, lists laid end to end; null: not asked for
  NormEnd end;
};

/// What norm does after the sum of all elements, which is read from the lists' device.
struct NormFinishCall {
  const double* sum;
  NormOrder order = NormOrder::two;
  double p = 2;             ///< of NormOrder::power
  double* total = nullptr;  ///< as ListNormCall's
  NormEnd end;
};

struct ListNormKernels {
  /// The factor and the total are there after one launch a dtype; norms of entries take one more.
  void (*norm)(const ListNormCall& call, const Stream& stream) = nullptr;
  /// The same total and factor from the sum alone.
  void (*finish)(const NormFinishCall& call, const Stream& stream) = nullptr;
  /// Multiplies every element of a list of one array by formula::multiplier of *factor, rounded to the type that it is
  /// computed in (f32 for 16-bit elements). Nothing is written when that is 1.
  void (*scale)(const List& list, const double* factor, const Stream& stream) = nullptr;
};

inline constexpr int64_t kNormTile = 4'096, kNormGroup = 1'024;

}  // namespace lorry::kernels
