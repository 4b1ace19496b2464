// Writing at computed positions, in parallel and in a fixed order.
//
// Two coordinates can have the same address only if they differ along a dimension in which the target's stride is 0 (a
// *bound* dimension). Dimensions along which the target's stride is not 0 and the index is constant are *columns*: all
// elements along them have the same position. The coordinates of the other dimensions, in row-major order, are the
// *orders*. Each order has a key, the address it writes to; orders with equal keys must be combined one after another.
//
//   assign   the last order of each key wins. If the number of keys allows a table, every order stores its number at
//            its key, and the largest number remains; otherwise keys are sorted. Then the winners are copied in words
//            of 16 bytes, as in `take`.
//   others   orders are sorted by key (stably). The first order of each key combines all orders of that key in
//            sequence, rounding like the CPU: no atomics, and the same bits for any grid.
//
// A few orders are compared with each other instead (put_few.cu, put_last.cu). Many short lines along one dimension
// need no keys (put_lines.h).
//
// If no bound dimension has more than one coordinate, no two orders have the same key, and nothing is sorted.

#include "lorry/kernels/cuda/indexing/put.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/indexing/indexing.h"
#include "lorry/kernels/cuda/indexing/put_lines.h"
#include "lorry/kernels/cuda/sort/radix.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;
constexpr int64_t kTile = kThreads * kEach;
/// The maximum number of orders sorted at once. Later chunks run after earlier ones, which keeps the order.
constexpr int64_t kChunk = int64_t{1} << 30;

unsigned tiles(int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); }

/// A layout of some of the dimensions.
Layout part(const Layout& layout, const FixedVector<int, kMaxRank>& dims) {
  Layout out;
  out.rank = dims.size();
  for (int i = 0; i < dims.size(); ++i) {
    out.sizes[i] = layout.sizes[dims[i]];
    out.strides[i] = layout.strides[dims[i]];
  }
  return out;
}

PutPlan plan(const PutArgs& args) {
  const Layout &target = args.target.layout, &source = args.source.layout, &index = args.index.layout;
  FixedVector<int, kMaxRank> orders, columns;
  bool bound = false, moving = false;
  for (int d = 0; d < target.rank; ++d) {
    if (target.sizes[d] == 1) continue;
    const bool column = target.strides[d] != 0 && index.strides[d] == 0;
    (column ? columns : orders).push_back(d);
    bound |= target.strides[d] == 0;
    moving |= target.strides[d] != 0 && !column;
  }
  const Layout ordered[] = {part(target, orders), part(source, orders), part(index, orders)};
  const Layout columned[] = {part(target, columns), part(source, columns)};
  // Without bound coordinates any order is correct, so the order in memory is used.
  PutPlan p{collapse(ordered, 3, !bound), collapse(columned, 2), bound, args.step, 1, 0, {}};
  p.count = p.orders.numel();
  // The key is an address if it depends on several dimensions. If it depends on the index only, the key is the index,
  // which has fewer bits.
  if (!moving) std::swap(p.key_step, p.address_step);
  p.nowhere = std::max<int64_t>(args.size - 1, 0) * p.key_step + 1;
  for (int d = 0; d < p.orders.rank; ++d) p.nowhere += (p.orders.sizes[d] - 1) * p.orders.strides[0][d];
  // The number of an order at each coordinate.
  p.numbers = target;
  int64_t stride = 1;
  for (int d = 0; d < target.rank; ++d) p.numbers.strides[d] = 0;
  for (int i = orders.size() - 1; i >= 0; --i) {
    p.numbers.strides[orders[i]] = stride;
    stride *= target.sizes[orders[i]];
  }
  return p;
}

/// The lines of a put, if it has lines and they take less time than sorting.
std::optional<PutLines> lines_of(const PutArgs& args) {
  const Layout &target = args.target.layout, &source = args.source.layout, &index = args.index.layout;
  FixedVector<int, kMaxRank> others;
  int along = -1;
  for (int d = 0; d < target.rank; ++d) {
    if (target.sizes[d] == 1) continue;
    if (target.strides[d] != 0) {
      if (index.strides[d] == 0) return {};  // a column
      others.push_back(d);
    } else {
      if (along >= 0) return {};
      along = d;
    }
  }
  if (along < 0 || args.rounds_once) return {};
  const Layout starts[] = {part(target, others), part(source, others), part(index, others)};
  const LineShape shape{starts[0].numel(), target.sizes[along], args.step, source.strides[along], index.strides[along]};
  // A warp takes a line: it must fit, be worth reading, and there must be many, unless they are short.
  const bool fits = args.size > 0 && args.size * size_of(args.target.dtype) <= kLineBytes && shape.count <= INT32_MAX;
  const bool pays = shape.length >= 4 && args.size <= 16 * shape.length && (shape.count >= 128 || shape.length <= 1024);
  if (!fits || !pays) return {};
  // Whole lines are written back, so none may have an element of another between its own.
  Layout whole = starts[0];
  whole.sizes[whole.rank] = args.size;
  whole.strides[whole.rank++] = args.step;
  if (whole.has_internal_overlap()) return {};
  return PutLines{collapse(starts, 3), shape};
}

void put_lines(const PutArgs& args, const PutLines& lines, Stream stream) {
  if (args.combine == Combine::add) return add_lines(args, lines, stream);
  if (args.combine != Combine::assign) return fold_lines(args, lines, stream);
  visit_word(size_of(args.target.dtype),
             [&]<class Word>(Type<Word>) { launch_lines<Word>(args, lines, Assigning<Word>{}, stream); });
}

/// Computes the keys of `count` orders from `first` on, and, if requested, their numbers and the table of winners.
template <class Key, class Index>
__global__ void __launch_bounds__(kThreads) find_keys(Key* keys, uint32_t* numbers, uint32_t* winners, int64_t first,
                                                      uint32_t count, OrderKeys<Key, Index> key_of) {
  lorry::cuda::begin_programmatic();
  // Blocks run from the last tile to the first: probably a later order has stored its number already, and there is
  // nothing to do.
  const uint32_t from = (gridDim.x - 1 - blockIdx.x) * static_cast<uint32_t>(kTile) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const uint32_t i = from + u * kThreads;
    if (i >= count) return;
    const Key key = key_of(static_cast<Index>(first + i));
    keys[i] = key;
    if (numbers != nullptr) numbers[i] = i;
    if (winners != nullptr && key != key_of.nowhere && *static_cast<volatile uint32_t*>(winners + key) < i + 1)
      atomicMax(winners + key, i + 1);
  }
}

/// wins[i]: whether order i has the largest number of its key.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    ask_winners(uint8_t* wins, const Key* keys, const uint32_t* winners, uint32_t count, Key nowhere) {
  lorry::cuda::begin_programmatic();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) wins[i] = keys[i] != nowhere && winners[keys[i]] == i + 1;
}

/// The same for sorted keys: the last order of each key wins.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    ask_sorted(uint8_t* wins, const Key* keys, const uint32_t* numbers, uint32_t count, Key nowhere) {
  lorry::cuda::begin_programmatic();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) wins[numbers[i]] = keys[i] != nowhere && (i + 1 == count || keys[i + 1] != keys[i]);
}

/// Operands of `offsets`: target, source, index, number of the order. Without `wins` every order wins.
template <class Word, class Index>
__global__ void __launch_bounds__(kThreads, kBlocks<Index>)
    put_words(Word* target, const Word* source, const int64_t* index, const uint8_t* wins, int64_t first,
              uint32_t count, Index n, int64_t step, StridedIndexer<4, Index> offsets, IndexBounds positions) {
  lorry::cuda::begin_programmatic();
  const Index start = static_cast<Index>(blockIdx.x) * static_cast<Index>(kTile) + threadIdx.x;
  Index at[kEach][4];
  int64_t position[kEach];
  uint8_t won[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    won[u] = 0;
    if (start + u * kThreads >= n) continue;
    offsets(start + u * kThreads, at[u]);
    position[u] = index[at[u][2]];
    const int64_t number = static_cast<int64_t>(at[u][3]) - first;
    if (wins == nullptr) {
      won[u] = 1;
    } else if (number >= 0 && number < count) {
      won[u] = wins[number];
    }
  }
  Word words[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    position[u] = won[u] ? positions(position[u]) : -1;
    if (position[u] >= 0) words[u] = source[at[u][1]];
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (position[u] >= 0) target[at[u][0] + position[u] * step] = words[u];
}

void move(const PutArgs& args, const PutPlan& p, const uint8_t* wins, int64_t first, int64_t count, Stream stream) {
  const PutWords words(args, p);
  const Iteration& it = words.it;
  const int64_t n = it.numel();
  visit_word(words.bytes, [&]<class Word>(Type<Word>) {
    visit_index(fits_narrow(it), [&]<class Index>(Type<Index>) {
      lorry::cuda::launch(stream, {tiles(n), kThreads}, put_words<Word, Index>, args.target.as<Word>(),
                          args.source.as<const Word>(), args.index.as<const int64_t>(), wins, first,
                          static_cast<uint32_t>(count), static_cast<Index>(n), words.step, StridedIndexer<4, Index>(it),
                          IndexBounds(args, stream));
    });
  });
}

/// Whether a table with an entry per key costs less than sorting: always up to 16 MB, above that in proportion to the
/// orders.
bool table_pays(const PutPlan& p) { return p.nowhere <= std::max<int64_t>(int64_t{1} << 22, 16 * p.count); }

/// put_all for few orders: one launch instead of those of a sort or a table.
void put_few(const PutArgs& args, const PutPlan& p, Stream stream) {
  if (args.combine == Combine::assign) {
    if (put_last(args, p, stream)) return;
    const Scratch wins(p.count, stream);
    find_few_winners(args, p, wins.as<uint8_t>(), stream);
    return move(args, p, wins.as<uint8_t>(), 0, p.count, stream);
  }
  const Scratch sorted(2 * p.count * int64_t{sizeof(uint32_t)}, stream);
  uint32_t *const keys = sorted.as<uint32_t>(), *const numbers = keys + p.count;
  sort_few(args, p, keys, numbers, stream);
  if (args.combine == Combine::add) return add_in_order(args, p, keys, numbers, 0, p.count, stream);
  fold_in_order(args, p, keys, numbers, 0, p.count, stream);
}

template <class Key, class Index>
void put_all(const PutArgs& args, const PutPlan& p, Stream stream) {
  const bool assign = args.combine == Combine::assign;
  const Key nowhere = static_cast<Key>(p.nowhere);
  const int bits = std::bit_width(static_cast<uint64_t>(p.nowhere));
  for (int64_t first = 0; first < p.count; first += kChunk) {
    const int64_t count = std::min(p.count - first, kChunk);
    const auto find = [&](Key* keys, uint32_t* numbers, uint32_t* winners) {
      lorry::cuda::launch(stream, {tiles(count), kThreads}, find_keys<Key, Index>, keys, numbers, winners, first,
                          static_cast<uint32_t>(count), OrderKeys<Key, Index>(args, p, stream));
    };
    const unsigned blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
    if (assign && table_pays(p)) {
      const Scratch keys(count * static_cast<int64_t>(sizeof(Key)), stream), winners(p.nowhere * 4, stream),
          wins(count, stream);
      lorry::cuda::fill_bytes(stream, winners.data(), 0, p.nowhere * 4);
      find(keys.as<Key>(), nullptr, winners.as<uint32_t>());
      lorry::cuda::launch(stream, {blocks, kThreads}, ask_winners<Key>, wins.as<uint8_t>(), keys.as<Key>(),
                          winners.as<uint32_t>(), static_cast<uint32_t>(count), nowhere);
      move(args, p, wins.as<uint8_t>(), first, count, stream);
      continue;
    }
    Pairs<Key> pairs(count, stream);
    find(pairs.keys(), pairs.values(), nullptr);
    if (p.meets) radix_sort(pairs, bits, stream);
    if (args.combine == Combine::add) {
      add_in_order(args, p, pairs.keys(), pairs.values(), first, count, stream);
    } else if (!assign) {
      fold_in_order(args, p, pairs.keys(), pairs.values(), first, count, stream);
    } else {
      const Scratch wins(count, stream);
      lorry::cuda::launch(stream, {blocks, kThreads}, ask_sorted<Key>, wins.as<uint8_t>(), pairs.keys(), pairs.values(),
                          static_cast<uint32_t>(count), nowhere);
      move(args, p, wins.as<uint8_t>(), first, count, stream);
    }
  }
}

}  // namespace

bool put_rounds_once(int64_t indices) { return indices <= kChunk; }

void put(const PutArgs& args, Stream stream) {
  if (args.source.numel() == 0) return;
  if (const std::optional<PutLines> lines = lines_of(args)) return put_lines(args, *lines, stream);
  const PutPlan p = plan(args);
  if (!p.meets && args.combine == Combine::assign) return move(args, p, nullptr, 0, 0, stream);
  if (p.meets && few(p)) return put_few(args, p, stream);
  if (narrow(p)) {
    put_all<uint32_t, uint32_t>(args, p, stream);
  } else {
    put_all<uint64_t, int64_t>(args, p, stream);
  }
}

}  // namespace lorry::kernels::cuda
