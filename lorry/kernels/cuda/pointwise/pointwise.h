#pragma once

// The interface of pointwise kernels. Every row of formula/pointwise.def has two kernels per compute type:
//
//   contiguous   contiguous operands of one type (except for a bool result or condition of the row), numbers of the
//                host by value. One kernel per type that elements are commonly stored in. Accesses every operand once,
//                16 bytes at a time.
//   strided      everything else: strides, broadcasting, element types known at run time. If every operand is
//                contiguous along the innermost dimension, an access has as many elements as fill 16 bytes of the
//                compute type, else one.
//
// pointwise_kernels.h contains the kernels, pointwise_rows.cu instantiates them in shares of the rows, pointwise.cu
// chooses one.

#include "lorry/formula/pointwise.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels::cuda {

inline constexpr int kMaxArity = 4;
/// Threads of a block of either kernel.
inline constexpr int kPointwiseBlock = 256;

/// The arguments of a contiguous kernel. Addresses are those of the first aligned run of 16 bytes; fewer elements than
/// a run may be before it (head) and after the last run (tail).
template <int kArity, class C>
struct ContiguousCall {
  void* out;
  const void* in[kArity];  ///< null for a number
  C numbers[kArity];
  int64_t runs;
  int32_t head, tail;

  void addresses(auto& visit) const { visit(out, in); }
};

/// An operand of a strided kernel: the address of its first element.
struct StridedOperand {
  void* data = nullptr;  ///< null for a number
  DType dtype = kF32;
  uint8_t size = 4;  ///< bytes of an element

  StridedOperand() = default;
  StridedOperand(void* address, DType type) : data(address), dtype(type), size(static_cast<uint8_t>(size_of(type))) {}
  void addresses(auto& visit) const { visit(data); }
};

/// The arguments of a strided kernel.
template <int kArity, class C>
struct StridedCall {
  StridedOperand out;
  StridedOperand in[kArity];
  C numbers[kArity];
  uint32_t n;
  /// Whether at each multiple of kLanes, every operand has either an aligned vector access of kLanes elements or one
  /// repeated element.
  bool vectors;
  StridedIndexer<1 + kArity, uint32_t> offsets;

  void addresses(auto& visit) const { visit(out, in); }
};

/// The number of elements of a strided kernel's vector access.
template <class C>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(C));
/// The accesses of every operand in flight per thread, and the elements of a block.
inline constexpr int strided_groups(int arity) { return arity == 1 ? 4 : 2; }
template <int kArity, class C>
inline constexpr uint32_t kStridedTile = kPointwiseBlock* kLanes<C>* strided_groups(kArity);

/// The compute type of a stored type.
template <class T>
using ComputeOf = std::conditional_t<std::is_integral_v<T>, int64_t, Accumulate<T>>;

/// A row's kernels with their argument types erased: by stored type (null if there is none), and by compute type.
struct PointwiseRowKernels {
  const void* contiguous[kDTypeCount] = {};
  /// log2 of the 16-byte runs per block of the contiguous kernel
  uint8_t contiguous_shift[kDTypeCount] = {};
  const void *strided_f32 = nullptr, *strided_f64 = nullptr, *strided_i64 = nullptr;

  template <class C>
  const void* strided() const {
    return std::is_same_v<C, float> ? strided_f32 : std::is_same_v<C, double> ? strided_f64 : strided_i64;
  }
};

/// pointwise_rows.cu is compiled in this many shares of the rows, so that no compilation takes long.
inline constexpr int kPointwiseShares = 8;
template <int kShare>
void fill_pointwise_rows(PointwiseRowKernels* table);

}  // namespace lorry::kernels::cuda
