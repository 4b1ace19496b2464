#pragma once

// Kernels over lists of tensors: pointwise operators and norms.

#include <limits>
#include <span>

#include "lorry/device/stream.h"
#include "lorry/formula/list_folds.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/list.h"

namespace lorry::kernels {

// ---- foreach --------------------------------------------------------------------------------------------------------

// Pointwise operators over lists of tensors: every row of formula/pointwise.def. They give the bits of the kernel for
// one tensor.

/// An operand:
///   array    a tensor per entry: the list's next array
///   number   one number of the host, of dtype kF64 or kI64
///   values   numbers in the list's memory, of any dtype: entry e reads values[step * word of e]
struct ListOperand {
  enum class Kind : uint8_t { array, number, values };
  Kind kind = Kind::array;
  DType dtype = kF64;
  uint8_t step = 0;  ///< 0: the same number for all entries; 1: one per entry
  union {
    double real = 0;
    int64_t whole;
    const void* values;
  };
};

/// The arrays of the list are the result, then one per operand (null for operands that are not arrays). An operand
/// array is the result itself or shares no memory with any result of the list.
struct ListPointwiseCall {
  Pointwise op;
  DType compute;  ///< kF32, kF64 or kI64: operands are converted to it, the result from it
  int arity;
  const List& list;
  ListOperand in[4];
  /// A number on the device. If it is NaN, the call writes nothing. Null: the call always writes.
  const double* unless_nan = nullptr;
};

struct ForeachKernels {
  void (*pointwise)(const ListPointwiseCall& call, const Stream& stream) = nullptr;
  /// formula::Blend of three operands in kF32 or kF64; call.op is ignored.
  void (*blend)(const ListPointwiseCall& call, const Stream& stream) = nullptr;
  /// Copies the second array of each entry to the first, which may have another dtype.
  void (*copy)(const List& list, const Stream& stream) = nullptr;
  /// Sets every element of a list of one array to the number at `value`, of type `dtype`, in host memory.
  void (*fill)(const List& list, const void* value, DType dtype, const Stream& stream) = nullptr;
};

// ---- list_norm ------------------------------------------------------------------------------------------------------

// Norms over whole lists of tensors, which read every element once: the norm of each tensor, the norm of all together,
// and the factor by which a step then scales gradients.
//
// Sums are f64. Their order depends on the element counts only and is the same on every device:
//   tile    4,096 elements of an entry; the last tile of an entry may have fewer. Element i is added to sum i % 128, in
//           order. Then the 128 sums are added in halves: k and k + 64, then k and k + 32, and so on.
//   group   1,024 tiles, counted through all entries of all lists. The sums of the tiles are added like the elements of
//           a tile.
//   total   all groups, added in the same way. The norm of one entry is the norm of a list with this entry only.
// Widening f16, bf16 and f32 to f64 is exact, and so are the squares.

/// The kind of norm: a row of formula/list.def, or a power.
using formula::NormOrder;

/// What follows the norm of all tensors: scaling and clipping, see formula/clip.h. Addresses are on the lists' device,
/// so the host does not wait.
struct NormEnd {
  double max_norm = std::numeric_limits<double>::infinity();  ///< the norm to clip to
  const double* scale = nullptr;  ///< the loss scale, by which gradients are divided; null: 1
  bool skip_nonfinite = false;    ///< if the norm is not finite, the factor is NaN
  /// written: the factor for gradients; infinity means NaN (formula::multiplier); null: not needed
  double* factor = nullptr;
};

struct ListNormCall {
  /// lists of one floating array each, on one device; other kernels may use them if they have the same tile and
  /// alignment, and workspaces with keys of their own
  std::span<const List* const> lists;
  NormOrder order = NormOrder::two;
  double p = 2;  ///< of NormOrder::power
  /// Written: the sum of |x|^p, or the largest |x|, before the root and the end; a caller may add to it before
  /// `finish`. Null: not needed.
  double* sum = nullptr;
  double* total = nullptr;       ///< written: the norm of all elements divided by end.scale; null: not needed
  double* per_tensor = nullptr;  ///< written: the norm of every entry, list after list; null: not needed
  NormEnd end;
};

/// The part of `norm` that follows the sum of all elements. The sum is read on the lists' device.
struct NormFinishCall {
  const double* sum;
  NormOrder order = NormOrder::two;
  double p = 2;             ///< of NormOrder::power
  double* total = nullptr;  ///< as in ListNormCall
  NormEnd end;
};

struct ListNormKernels {
  /// Takes one launch per dtype, and one more for the norms of entries.
  void (*norm)(const ListNormCall& call, const Stream& stream) = nullptr;
  /// Computes total and factor from the sum.
  void (*finish)(const NormFinishCall& call, const Stream& stream) = nullptr;
  /// Multiplies every element of a list of one array by formula::multiplier(*factor), rounded to the type of
  /// computation (f32 for 16-bit elements). Writes nothing if that is 1.
  void (*scale)(const List& list, const double* factor, const Stream& stream) = nullptr;
};

inline constexpr int64_t kNormTile = 4'096, kNormGroup = 1'024;

}  // namespace lorry::kernels
