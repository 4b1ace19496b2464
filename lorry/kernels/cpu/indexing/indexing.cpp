#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/walk.h"

namespace lorry::kernels::cpu {

void put(const PutArgs& args, Stream);  // put.cpp

namespace {
using lorry::cpu::for_each_chunk;
using lorry::cpu::parallel_for;

constexpr int64_t kGrain = int64_t{1} << 14;
constexpr int64_t kCountChunk = int64_t{1} << 16;

int64_t wrap(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

/// The layout without repeated dimensions: each index needs to be checked only once.
Layout distinct(Layout layout) {
  for (int d = 0; d < layout.rank; ++d)
    if (layout.strides[d] == 0 && layout.sizes[d] > 1) layout.sizes[d] = 1;
  return layout;
}

OutOfRange check(const Array& index, int64_t low, int64_t high, Stream) {
  const Layout once = distinct(index.layout);
  const Iteration it = collapse(&once, 1, false);
  if (once.numel() == 0) return {};
  const int64_t* const data = index.as<int64_t>();
  std::atomic<bool> outside{false};
  parallel_for(it.numel(), kGrain, [&](int64_t begin, int64_t end) {
    bool bad = false;
    walk(it, begin, end, [&](const int64_t* offset, int64_t count) {
      const int64_t* const from = data + offset[0];
      const int64_t stride = it.strides[0][0];
      for (int64_t i = 0; i < count; ++i) bad |= from[i * stride] < low || from[i * stride] >= high;
    });
    if (bad) outside.store(true, std::memory_order_relaxed);
  });
  if (!outside) return {};
  // Errors are rare. Find the first one in row-major order of the index as the caller gave it.
  const Iteration all = collapse(&index.layout, 1, false);
  OutOfRange found;
  int64_t position = 0;
  walk(all, 0, all.numel(), [&](const int64_t* offset, int64_t count) {
    for (int64_t i = 0; i < count && found.position < 0; ++i) {
      const int64_t value = data[offset[0] + i * all.strides[0][0]];
      if (value < low || value >= high) found = {position + i, value};
    }
    position += count;
  });
  return found;
}

void flatten(const Array& out, const IndexTerm* terms, int count, Stream) {
  int64_t* const to = out.as<int64_t>();
  for (int k = 0; k < count; ++k) {
    const IndexTerm& term = terms[k];
    const Layout layouts[] = {out.layout, term.index.layout};
    const Iteration it = collapse(layouts, 2, false);
    const int64_t* const from = term.index.as<int64_t>();
    parallel_for(it.numel(), kGrain, [&](int64_t begin, int64_t end) {
      walk(it, begin, end, [&](const int64_t* offset, int64_t run) {
        for (int64_t i = 0; i < run; ++i) {
          const int64_t value = wrap(from[offset[1] + i * it.strides[1][0]], term.size) * term.step;
          int64_t& sum = to[offset[0] + i * it.strides[0][0]];
          sum = k == 0 ? value : sum + value;
        }
      });
    });
  }
}

void take(const TakeArgs& args, Stream) {
  const Layout layouts[] = {args.out.layout, args.source.layout, args.index.layout};
  const Iteration it = collapse(layouts, 3);
  if (args.out.numel() == 0) return;
  const int64_t* const index = args.index.as<int64_t>();
  const int64_t to_stride = it.strides[0][0], from_stride = it.strides[1][0], index_stride = it.strides[2][0];
  visit_size(size_of(args.out.dtype), [&]<class Word>(Type<Word>) {
    parallel_for(it.numel(), kGrain, [&](int64_t begin, int64_t end) {
      walk(it, begin, end, [&](const int64_t* offset, int64_t count) {
        Word* const to = args.out.as<Word>() + offset[0];
        const Word* const from = args.source.as<Word>() + offset[1];
        const int64_t* const at = index + offset[2];
        if (index_stride != 0 || count == 1) {
          for (int64_t i = 0; i < count; ++i)
            to[i * to_stride] = from[i * from_stride + wrap(at[i * index_stride], args.size) * args.step];
          return;
        }
        const Word* const row = from + wrap(*at, args.size) * args.step;
        if (to_stride == 1 && from_stride == 1) {
          std::memcpy(to, row, static_cast<size_t>(count) * sizeof(Word));
        } else {
          for (int64_t i = 0; i < count; ++i) to[i * to_stride] = row[i * from_stride];
        }
      });
    });
  });
}

/// The type as which elements are read: a bool is a byte, and every byte but 0 is true.
template <class T>
using Bytes = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
bool is_nonzero(T value) {
  if constexpr (std::is_same_v<Accumulate<T>, T>) {
    return value != T(0);
  } else {
    return static_cast<float>(value) != 0.0f;
  }
}

/// The number of non-zero elements in each chunk of kCountChunk.
std::vector<int64_t> chunk_counts(const Array& x) {
  const int64_t n = x.numel();
  std::vector<int64_t> counts(static_cast<size_t>((n + kCountChunk - 1) / kCountChunk));
  visit(x.dtype, [&]<class T>(Type<T>) {
    const auto* const data = x.as<const Bytes<T>>();
    for_each_chunk(n, kCountChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
      int64_t count = 0;
      for (int64_t i = begin; i < end; ++i) count += is_nonzero(data[i]);
      counts[static_cast<size_t>(chunk)] = count;
    });
  });
  return counts;
}

int64_t count_nonzero(const Array& x, Stream) {
  int64_t total = 0;
  for (const int64_t count : chunk_counts(x)) total += count;
  return total;
}

/// Lists the coordinates of the non-zero elements of chunks, of which chunk k's first is number first[k] of all.
void list_nonzero(const NonzeroArgs& args, const std::vector<int64_t>& first) {
  const Array& x = args.x;
  const int rank = x.layout.rank;
  const int64_t rows = args.out.size(0);
  visit(x.dtype, [&]<class T>(Type<T>) {
    const auto* const data = x.as<const Bytes<T>>();
    for_each_chunk(x.numel(), kCountChunk, [&](int64_t chunk, int64_t begin, int64_t end) {
      int64_t row = first[static_cast<size_t>(chunk)];
      if (row >= rows) return;
      int64_t* to = args.out.as<int64_t>() + row * rank;
      for (int64_t i = begin; i < end && row < rows; ++i) {
        if (!is_nonzero(data[i])) continue;
        int64_t rest = i;
        for (int d = rank - 1; d > 0; --d) {
          to[d] = rest % x.size(d);
          rest /= x.size(d);
        }
        to[0] = rest;
        to += rank;
        ++row;
      }
    });
  });
}

void nonzero(const NonzeroArgs& args, Stream) {
  std::vector<int64_t> first = chunk_counts(args.x);
  int64_t total = 0;
  for (int64_t& count : first) total += std::exchange(count, total);
  if (args.count != nullptr) *args.count = total;
  if (args.out.numel() == 0) return;
  list_nonzero(args, first);
  int64_t* const out = args.out.as<int64_t>();
  std::fill(out + std::min(total, args.out.size(0)) * args.x.layout.rank, out + args.out.numel(), args.fill);
}

void repeat_positions(const Array& out, const Array& counts, Stream) {
  int64_t* to = out.as<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i) to = std::fill_n(to, counts.as<int64_t>()[i], i);
}

}  // namespace

const IndexingKernels& indexing_kernels() {
  static constexpr IndexingKernels kKernels{check, flatten, take, put, count_nonzero, nonzero, repeat_positions};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
