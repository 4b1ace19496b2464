// The distinct values of a row. Its keys are sorted, along with positions if these are needed to find the elements
// again, or for the inverse. Then those that differ from the one before are numbered in one pass (prefix.h). Of many
// elements the host first reads the range of the keys: a sort takes a pass for every 8 bits that this has.

#include "lorry/kernels/cuda/sort/unique.h"

#include <algorithm>
#include <bit>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/host_readback.h"
#include "lorry/kernels/cuda/common/prefix.h"
#include "lorry/kernels/cuda/sort/keys.h"
#include "lorry/kernels/cuda/sort/radix.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = kPrefixThreads;
constexpr int kEach = 4;
constexpr int kTile = kThreads * kEach;

/// The least key and the greatest key, or bounds of them.
struct Range {
  uint64_t least, greatest;

  int bits() const { return static_cast<int>(std::bit_width(greatest - least)); }
};

// ---- the range of the keys ------------------------------------------------------------------------------------------

constexpr int kRangeThreads = 512, kRangeEach = 8;
/// For fewer elements, the wait costs more than the passes that it saves.
constexpr int64_t kWorthRange = int64_t{1} << 17;

__device__ __forceinline__ Range joined(const Range& a, const Range& b) {
  return {min(a.least, b.least), max(a.greatest, b.greatest)};
}

/// Each block writes the range of its part.
template <class Key>
__global__ void __launch_bounds__(kRangeThreads) find_ranges(Range* ranges, Keys<Key> keys, int64_t n) {
  lorry::cuda::begin_programmatic();
  __shared__ Range warps[kRangeThreads / 32];
  Range range{UINT64_MAX, 0};
  constexpr int64_t kPart = kRangeThreads * kRangeEach;
  for (int64_t first = blockIdx.x * kPart + threadIdx.x; first < n; first += gridDim.x * kPart) {
    uint32_t at[kRangeEach];
    Key key[kRangeEach];
#pragma unroll
    for (int u = 0; u < kRangeEach; ++u) at[u] = static_cast<uint32_t>(min(first + u * kRangeThreads, n - 1));
    keys.read(0, at, key);
#pragma unroll
    for (int u = 0; u < kRangeEach; ++u) range = joined(range, {key[u], key[u]});
  }
  const auto join_warp = [&](int lanes) {
    for (int step = lanes / 2; step > 0; step /= 2)
      range = joined(range, {__shfl_xor_sync(~0u, range.least, step), __shfl_xor_sync(~0u, range.greatest, step)});
  };
  join_warp(32);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = range;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  range = warps[threadIdx.x % (kRangeThreads / 32)];
  join_warp(kRangeThreads / 32);
  if (threadIdx.x == 0) ranges[blockIdx.x] = range;
}

/// The greatest key of a dtype; of NaN, if it is floating.
uint64_t greatest_key(DType dtype) { return ~uint64_t{0} >> (64 - key_bits(dtype)); }

/// Waits for the device, if there are many elements.
template <class Key>
Range range_of(const Keys<Key>& keys, int64_t n, Stream stream) {
  if (n < kWorthRange) return {0, greatest_key(keys.dtype)};
  const auto blocks = static_cast<int>(
      std::min<int64_t>((n + kRangeThreads * kRangeEach - 1) / (kRangeThreads * kRangeEach), HostReadback::kWords / 2));
  HostReadback readback(stream);
  lorry::cuda::launch(stream, {static_cast<unsigned>(blocks), kRangeThreads}, find_ranges<Key>,
                      reinterpret_cast<Range*>(readback.words()), keys, n);
  const auto* const ranges = reinterpret_cast<const Range*>(readback.wait());
  Range all = ranges[0];
  for (int b = 1; b < blocks; ++b)
    all = {std::min(all.least, ranges[b].least), std::max(all.greatest, ranges[b].greatest)};
  return all;
}

// ---- numbering ------------------------------------------------------------------------------------------------------

/// The outputs; inverse and starts (where each distinct value begins) may be null.
struct Results {
  void* values;
  int64_t* inverse;
  int64_t* starts;
  int64_t* found;

  void addresses(auto& visit) const { visit(values, inverse, starts, found); }
};

/// Sorted keys, less the least one, as Sorted.
template <class Sorted>
struct Row {
  const Sorted* keys;
  const uint32_t* order;  ///< positions in x; null: elements are made from their keys
  const void* x;
  DType dtype;
  uint64_t least;  ///< the bits of an element are (key + least) ^ sign
  uint64_t sign;
  Sorted nan;  ///< the key of NaN, if has_nan; each NaN is a distinct value
  bool has_nan;

  void addresses(auto& visit) const { visit(keys, order, x); }

#ifdef __CUDACC__
  __device__ bool begins(int64_t i) const {
    const Sorted key = keys[i];
    return i == 0 || key != keys[i - 1] || (has_nan && key == nan);
  }
  __device__ void copy_to(void* values, int64_t rank, int64_t i) const {
    if (order != nullptr) return copy_element(values, rank, x, order[i], dtype);
    const uint64_t bits = (keys[i] + least) ^ sign;
    copy_element(values, rank, &bits, 0, dtype);  // its low bytes
  }
#endif
};

template <class Sorted, class Key>
__global__ void __launch_bounds__(kThreads)
    read_keys(Sorted* to, uint32_t* positions, Keys<Key> keys, Key least, int64_t n) {
  lorry::cuda::begin_programmatic();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  to[i] = static_cast<Sorted>(keys(i) - least);
  if (positions != nullptr) positions[i] = static_cast<uint32_t>(i);
}

template <class Sorted>
__global__ void __launch_bounds__(kThreads) number_values(Results results, Row<Sorted> row, int64_t n, Tiles tiles) {
  lorry::cuda::begin_programmatic();
  __shared__ int64_t start;
  const int64_t tile = tiles.take(), origin = tile * kTile + threadIdx.x;
  bool head[kEach];
  uint64_t counts = 0, all;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int64_t i = origin + u * kThreads;
    head[u] = i < n && row.begins(i);
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u) counts |= static_cast<uint64_t>(head[u]) << (16 * u);
  const uint64_t before = block_prefix(counts, all);
  uint32_t total = 0, ranks[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    ranks[u] = total + count_at(before, u);
    total += count_at(all, u);
  }
  if (threadIdx.x < 32) {
    const uint64_t earlier = tiles.before(tile, total);
    if (threadIdx.x == 0) start = static_cast<int64_t>(earlier);
  }
  __syncthreads();
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int64_t i = origin + u * kThreads;
    if (i >= n) continue;
    const int64_t rank = start + ranks[u];  // of the next head, this element included
    if (head[u]) {
      row.copy_to(results.values, rank, i);
      if (results.starts != nullptr) results.starts[rank] = i;
    }
    if (results.inverse != nullptr) results.inverse[row.order[i]] = head[u] ? rank : rank - 1;
    if (i == n - 1) *results.found = head[u] ? rank + 1 : rank;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_values(int64_t* counts, const int64_t* starts, int64_t found, int64_t n) {
  lorry::cuda::begin_programmatic();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < found) counts[i] = (i + 1 < found ? starts[i + 1] : n) - starts[i];
}

/// Numbers the values of a sorted row. Waits for the device; returns how many there are.
template <class Sorted>
int64_t number(const Array& values, const Array& inverse, const Array& counts, const Row<Sorted>& row, int64_t n,
               Stream stream) {
  const int64_t tiles = (n + kTile - 1) / kTile;
  HostReadback readback(stream);
  const Scratch starts(counts.data == nullptr ? 0 : n * static_cast<int64_t>(sizeof(int64_t)), stream);
  const TileMemory memory(tiles, stream);
  const Results results{values.data, inverse.as<int64_t>(), starts.as<int64_t>(), readback.words()};
  lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, number_values<Sorted>, results, row, n,
                      memory.tiles());
  const int64_t found = *readback.wait();
  if (counts.data != nullptr)
    lorry::cuda::launch(stream, {static_cast<unsigned>((found + kThreads - 1) / kThreads), kThreads}, count_values,
                        counts.as<int64_t>(), starts.as<const int64_t>(), found, n);
  return found;
}

/// Sorts the keys of x as Sorted, and numbers the values.
template <class Sorted, class Key>
int64_t sort_and_number(const Array& values, const Array& inverse, const Array& counts, const Array& x,
                        const Range& range, Stream stream) {
  const int64_t n = x.numel();
  const Keys<Key> keys(x, false);
  const uint64_t nan = greatest_key(x.dtype);
  const bool is_signed = visit(x.dtype, []<class T>(Type<T>) { return std::is_signed_v<T>; });
  Row<Sorted> row{.x = x.data,
                  .dtype = x.dtype,
                  .least = range.least,
                  .sign = is_signed ? uint64_t{1} << (key_bits(x.dtype) - 1) : 0,
                  .nan = static_cast<Sorted>(nan - range.least),
                  .has_nan = is_floating(x.dtype) && range.greatest == nan};
  const auto read = [&](Sorted* to, uint32_t* positions) {
    lorry::cuda::launch(stream, {static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads},
                        read_keys<Sorted, Key>, to, positions, keys, static_cast<Key>(range.least), n);
  };
  // Different elements of whole numbers have different keys; but 0 and -0, and bytes that are true, do not.
  if (is_integral(x.dtype) && inverse.data == nullptr) {
    const Scratch memory(2 * n * static_cast<int64_t>(sizeof(Sorted)), stream);
    Sorted* const first = memory.as<Sorted>();
    read(first, nullptr);
    row.keys = radix_sort(first, first + n, n, range.bits(), stream);
    return number(values, inverse, counts, row, n, stream);
  }
  Pairs<Sorted> pairs(n, stream);
  read(pairs.keys(), pairs.values());
  radix_sort(pairs, range.bits(), stream);
  row.keys = pairs.keys(), row.order = pairs.values();
  return number(values, inverse, counts, row, n, stream);
}

}  // namespace

int64_t unique(const Array& values, const Array& inverse, const Array& counts, const Array& x, const Stream& stream) {
  if (x.numel() == 0) return 0;
  return visit_key(x.dtype, [&]<class Key>(Type<Key>) {
    const Range range = range_of(Keys<Key>(x, false), x.numel(), stream);
    return range.bits() <= 32 ? sort_and_number<uint32_t, Key>(values, inverse, counts, x, range, stream)
                              : sort_and_number<Key, Key>(values, inverse, counts, x, range, stream);
  });
}

}  // namespace lorry::kernels::cuda
