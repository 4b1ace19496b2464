#pragma once

// How pointwise kernels are called. Every row of formula/pointwise.def has two kernels for a compute type:
//
//   contiguous   contiguous operands of one type (the row's own exceptions aside: a result or a condition in bool),
//                numbers of the host by value. One for each type that elements are commonly stored in. Moves every
//                operand once, 16 bytes at a time.
//   strided      anything: strides, broadcasting, element types known at run time. Where every operand is contiguous
//                along the innermost dimension an access moves as many elements as fill 16 bytes of the compute type,
//                elsewhere one.
//
// pointwise_kernels.h holds the kernels, pointwise_rows.cu their instances in shares of the rows, pointwise.cu the
// choice.

#include "lorry/formula/pointwise.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels::cuda {

inline constexpr int kMaxArity = 4;
/// Threads of a block of either kernel.
inline constexpr int kPointwiseBlock = 256;

/// The arguments of a contiguous kernel. Addresses are those of the first run of 16 bytes of elements; up to a run of
/// elements lies before it (head) and behind the last (tail).
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
  /// Every operand is a vector access of kLanes elements, or one repeated, at each multiple of kLanes.
  bool vectors;
  StridedIndexer<1 + kArity, uint32_t> offsets;

  void addresses(auto& visit) const { visit(out, in); }
};

/// Elements that a strided kernel moves as one access.
template <class C>
inline constexpr int kLanes = 16 / static_cast<int>(sizeof(C));
/// Such accesses of every operand that a thread keeps in flight, and the elements of a block.
inline constexpr int strided_groups(int arity) { return arity == 1 ? 4 : 2; }
template <int kArity, class C>
inline constexpr uint32_t kStridedTile = kPointwiseBlock* kLanes<C>* strided_groups(kArity);

/// The type in which a stored type is computed.
template <class T>
using ComputeOf = std::conditional_t<std::is_same_v<T, bool>, int64_t, Accumulate<T>>;

/// A row's kernels, without their argument types: by storage type (null where there is none), and by compute type.
struct PointwiseRowKernels {
  const void* contiguous[kDTypeCount] = {};
  /// log2 of the runs of 16 bytes that a block of the contiguous kernel takes
  uint8_t contiguous_shift[kDTypeCount] = {};
  const void *strided_f32 = nullptr, *strided_f64 = nullptr, *strided_i64 = nullptr;

  template <class C>
  const void* strided() const {
    return std::is_same_v<C, float> ? strided_f32 : std::is_same_v<C, double> ? strided_f64 : strided_i64;
  }
};

/// pointwise_rows.cu is compiled in this many shares of the rows, so that no compilation is long.
inline constexpr int kPointwiseShares = 8;
template <int kShare>
void fill_pointwise_rows(PointwiseRowKernels* table);

}  // namespace lorry::kernels::cuda
