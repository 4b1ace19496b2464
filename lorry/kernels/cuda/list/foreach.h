#pragma once

// The interface of pointwise kernels over lists. foreach_kernels.h contains the kernels, foreach_rows.cu instantiates
// them in shares of the rows, foreach.cu chooses one. A row has one kernel per compute type and source; the stored
// types of the arrays are known at run time.

#include "lorry/formula/pointwise.h"
#include "lorry/kernels/cuda/list/list.h"
#include "lorry/kernels/list.h"

namespace lorry::kernels::cuda {

/// The elements of a tile; of a list of a few tensors, small tiles. With large tiles, such a list has slightly more
/// blocks than run at once, and the few that remain would run alone.
inline constexpr int kForeachTile = 4'096, kForeachSmallTile = 1'024;
inline constexpr size_t kForeachFew = 64;
inline constexpr uint64_t kForeachFewElements = uint64_t{1} << 26;

/// The number of neighbouring elements that a thread takes of every array: 16 bytes of 16-bit elements, and 32 bytes of
/// f32, in which these are computed.
template <class C>
inline constexpr int kForeachRun = sizeof(C) == 4 ? 8 : 2;

/// An operand that is not an array: a number, or values[step * word] of a dtype.
template <class C>
struct Uniform {
  C number;
  const void* values;  ///< null: use the number
  DType dtype;
  uint8_t step;

  void addresses(auto& visit) const { visit(values); }
};

/// The body of a call, without its formula. Array 0 is the result.
template <int kArity, class C>
struct ListPointwise {
  Uniform<C> uniforms[kArity];
  DType dtypes[1 + kArity];
  uint8_t sizes[1 + kArity];  ///< bytes per element
  uint8_t arrays;             ///< bit k: operand k is an array
  bool vectors;               ///< whether no stored type is wider than C, and the result is not an integer unless C is
  int tile;                   ///< elements
  const double* unless_nan;   ///< see kernels::ListPointwiseCall

  void addresses(auto& visit) const { visit(uniforms, unless_nan); }
};

/// The kernels of one row in one compute type: TileKernels with their types erased.
struct ForeachRowKernels {
  const void *arguments_4k = nullptr, *arguments_32k = nullptr, *table = nullptr;
};
struct ForeachRow {
  ForeachRowKernels f32, f64, i64;
  template <class C>
  const ForeachRowKernels& in() const {
    if constexpr (std::is_same_v<C, float>)
      return f32;
    else if constexpr (std::is_same_v<C, double>)
      return f64;
    else
      return i64;
  }
};

/// foreach_rows.cu is compiled in this many shares of the rows, so that no compilation takes long.
inline constexpr int kForeachShares = 8;
template <int kShare>
void fill_foreach_rows(ForeachRow* table);

}  // namespace lorry::kernels::cuda
