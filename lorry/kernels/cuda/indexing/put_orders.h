#pragma once

// Combines all elements that are written to the same address, in order. The keys are sorted. An order whose key differs
// from the one before it is a *head*; it combines all orders of its key. put_add.cu adds; put_fold.cu multiplies and
// finds extremes.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/indexing/put.h"

namespace lorry::kernels::cuda {

inline constexpr unsigned kAll = ~0u;
inline constexpr int kWarps = 8;
inline constexpr int kThreads = 32 * kWarps;

/// The sorted orders. Operand 0 of `offsets` is the source.
template <class Key, class Index>
struct Orders {
  const Key* keys;
  const uint32_t* numbers;
  uint32_t count;
  Key nowhere;
  int64_t first;
  StridedIndexer<1, Index> offsets;

  void addresses(auto& visit) const { visit(keys, numbers); }

  __device__ bool head(uint32_t i) const {
    return i < count && keys[i] != nowhere && (i == 0 || keys[i - 1] != keys[i]);
  }
  /// The offset in the source of the order with this number.
  __device__ Index source(uint32_t number) const {
    Index at[1];
    offsets(static_cast<Index>(first + number), at);
    return at[0];
  }
};

/// The maximum number of orders that a lane combines by itself; and the number that a warp loads at once for one of its
/// lanes, in groups of 32.
inline constexpr uint32_t kAlone = 8;
inline constexpr int kGroups = 4;

/// Each lane takes a head; keys with more than a few orders are loaded by the whole warp. Operands of `columns`:
/// target, source; blockIdx.y counts columns from `first_column` on. Rule defines how an element is read and combined
/// with the result so far, and how results begin and end.
template <class T, class Rule, class Key, class Index>
__global__ void __launch_bounds__(kThreads)
    combine_elements(Stored<T>* target, const Stored<T>* source, Orders<Key, Index> orders, int64_t address_step,
                     Index first_column, StridedIndexer<2, Index> columns, Rule rule) {
  lorry::cuda::begin_programmatic();
  using Value = typename Rule::Value;
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kThreads + threadIdx.x;
  Index column[2];
  columns(first_column + static_cast<Index>(blockIdx.y), column);
  source += column[1];
  const bool head = orders.head(i);
  const Key key = head ? orders.keys[i] : orders.nowhere;
  Stored<T>* const to = head ? target + static_cast<int64_t>(key) * address_step + column[0] : nullptr;
  Value carried{};
  uint32_t next = i;
  bool more = head;
  if (head) {
    carried = rule.begin(to);
    do {
      rule.combine(carried, rule.read(source + orders.source(orders.numbers[next])));
      ++next;
      more = next < orders.count && orders.keys[next] == key;
    } while (more && next - i < kAlone);
  }
  for (unsigned waiting = __ballot_sync(kAll, more); waiting != 0; waiting &= waiting - 1) {
    const int leader = __ffs(static_cast<int>(waiting)) - 1;
    const Key wanted = __shfl_sync(kAll, key, leader);
    Value total = __shfl_sync(kAll, carried, leader);
    int length = 32;
    for (uint32_t start = __shfl_sync(kAll, next, leader); length == 32; start += 32 * kGroups) {
      Value come[kGroups];
      bool mine[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const uint32_t at = start + 32 * g + lane;
        mine[g] = at < orders.count && orders.keys[at] == wanted;
        come[g] = mine[g] ? rule.read(source + orders.source(orders.numbers[at])) : Value{};
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (length < 32) break;
        length = __popc(__ballot_sync(kAll, mine[g]));
        if (length == 32) {
#pragma unroll
          for (int k = 0; k < 32; ++k) rule.combine(total, __shfl_sync(kAll, come[g], k));
        } else {
          for (int k = 0; k < length; ++k) rule.combine(total, __shfl_sync(kAll, come[g], k));
        }
      }
    }
    if (static_cast<int>(lane) == leader) carried = total;
  }
  if (head) rule.end(carried, to);
}

/// Launches combine_elements for every column.
template <class T, class Key, class Index, class Rule>
void launch_elements(const PutArgs& args, const PutPlan& p, const Orders<Key, Index>& orders, const Rule& rule,
                     Stream stream) {
  constexpr int64_t kMostColumns = 65535;  // the maximum of a grid
  const StridedIndexer<2, Index> columns(p.columns);
  const int64_t width = p.columns.numel();
  for (int64_t first = 0; first < width; first += kMostColumns) {
    const dim3 grid((orders.count + kThreads - 1) / kThreads,
                    static_cast<unsigned>(std::min(width - first, kMostColumns)));
    lorry::cuda::launch(stream, {grid, kThreads}, combine_elements<T, Rule, Key, Index>, args.target.as<Stored<T>>(),
                        args.source.as<const Stored<T>>(), orders, p.address_step, static_cast<Index>(first), columns,
                        rule);
  }
}

/// The orders of a chunk, as a kernel's argument.
template <class Key, class Index>
Orders<Key, Index> sorted_orders(const PutPlan& p, const Key* keys, const uint32_t* numbers, int64_t first,
                                 int64_t count) {
  Iteration sources = p.orders;
  std::copy_n(p.orders.strides[1], p.orders.rank, sources.strides[0]);
  return {keys,
          numbers,
          static_cast<uint32_t>(count),
          static_cast<Key>(p.nowhere),
          first,
          StridedIndexer<1, Index>(sources)};
}

}  // namespace lorry::kernels::cuda
