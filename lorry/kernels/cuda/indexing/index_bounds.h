#pragma once

// Converts an index to an offset and checks it; copies runs of elements as wide words.

#include "lorry/base/modes.h"
#include "lorry/device/cuda/device_assert.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/strided_indexer.h"
#include "lorry/kernels/indexing.h"

namespace lorry::kernels::cuda {

#ifdef __CUDACC__
/// Not inlined: an invalid index is rare, and kernels hold several indices at a time.
__device__ __noinline__ inline void report_outside(lorry::cuda::AssertSite site, int64_t index, int64_t low,
                                                   int64_t high) {
  site.report(lorry::cuda::DeviceAssert::index, index, low, high);
}
#endif

/// Converts and checks indices of one dimension.
struct IndexBounds {
  int64_t size;
  Negative negative;
  lorry::cuda::AssertSite site;

  template <class Args>
  IndexBounds(const Args& args, Stream stream) : IndexBounds(args.size, args.negative, stream) {}
  IndexBounds(int64_t size, Negative negative, Stream stream)
      : size(size), negative(negative), site(stream.device.index, running_or("indexing")) {}
  void addresses(auto& visit) const { visit(); }

#ifdef __CUDACC__
  /// Returns an index in [0, size), or -1 for an invalid index.
  __device__ __forceinline__ int64_t find(int64_t index) const {
    if (static_cast<uint64_t>(index) < static_cast<uint64_t>(size)) return index;
    return negative == Negative::wraps && index < 0 && index >= -size ? index + size : -1;
  }
  /// The same; reports an invalid index.
  __device__ __forceinline__ int64_t operator()(int64_t index) const {
    const int64_t position = find(index);
    if (position < 0 && !(index < 0 && negative == Negative::skipped))
      report_outside(site, index, negative == Negative::wraps ? -size : 0, size);
    return position;
  }
#endif
};

/// A word of 16 bytes.
struct alignas(16) Word16 {
  uint64_t at[2];
};

/// Merges the elements (of `bytes` bytes each) along the innermost dimension into words of up to 16 bytes, if operands
/// 0 and 1 (at `to` and `from`) are contiguous there and all other operands have stride 0. Rewrites sizes, strides and
/// `step` in words. Returns the bytes of a word.
inline int64_t widen(Iteration& it, int64_t bytes, const void* to, const void* from, int64_t& step) {
  if (it.strides[0][0] != 1 || it.strides[1][0] != 1) return bytes;
  for (int k = 2; k < it.operands; ++k)
    if (it.strides[k][0] != 0) return bytes;
  // A word's size must divide every address, stride and size, so their lowest common bit gives the largest possible
  // word.
  uint64_t all = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) |
                 static_cast<uint64_t>(it.sizes[0] * bytes) | static_cast<uint64_t>(step * bytes) | 16;
  for (int d = 1; d < it.rank; ++d)
    all |= static_cast<uint64_t>(it.strides[0][d] * bytes) | static_cast<uint64_t>(it.strides[1][d] * bytes);
  const int64_t word = static_cast<int64_t>(all & -all), ratio = word / bytes;
  if (ratio <= 1) return bytes;
  it.sizes[0] /= ratio;
  for (int k = 0; k < 2; ++k)
    for (int d = 1; d < it.rank; ++d) it.strides[k][d] /= ratio;
  step /= ratio;
  return word;
}

/// Blocks of 256 threads per multiprocessor of kernels that move such words, four per thread. For 16 bytes and narrow
/// indices that takes a limit on registers, without which the last few blocks of a table's look-up run alone.
template <class Index>
inline constexpr int kBlocks = sizeof(Index) == 4 ? 6 : 4;

/// Calls f(Type<Word>) with a type of `bytes` bytes.
template <class F>
void visit_word(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f(Type<uint8_t>{});
    case 2:
      return f(Type<uint16_t>{});
    case 4:
      return f(Type<uint32_t>{});
    case 8:
      return f(Type<uint64_t>{});
    default:
      return f(Type<Word16>{});
  }
}

/// Calls f(Type<Index>) with uint32_t if that can represent all positions and offsets, else int64_t.
template <class F>
void visit_index(bool narrow, F&& f) {
  if (narrow) return f(Type<uint32_t>{});
  f(Type<int64_t>{});
}

}  // namespace lorry::kernels::cuda
