// Sorting rows and finding their first elements. Short rows, and searches for few elements, use candidates and
// comparisons; all others pack a row into 64-bit items and use radix sort.

#include "lorry/kernels/sort.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/sort/key_runs.h"
#include "lorry/kernels/cpu/sort/radix.h"
#include "lorry/kernels/cpu/sort/unique.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_key_table(KeyTable& table))

namespace {

/// The functions for this process's instruction set.
template <class T>
const KeyRuns<T>& key_runs() {
  static const KeyTable kTable = [] {
    KeyTable table;
    LORRY_SIMD_CHOOSE(fill_key_table)(table);
    return table;
  }();
  return kTable;
}

using lorry::cpu::for_each_chunk;
using lorry::cpu::parallel_for;

/// The elements of one chunk of a long row, and the fewest elements for which a second thread is worth its start.
constexpr int64_t kChunk = int64_t{1} << 15, kGrain = int64_t{1} << 15;

// ---- few elements, by comparison ------------------------------------------------------------------------------------

/// Moves the first k of `count` items to the front, the last of them to place k - 1.
template <class Item>
void first_in_front(Item* items, int64_t count, int64_t k) {
  if (k == 1)
    std::swap(*items, *std::min_element(items, items + count));
  else if (k < count)
    std::nth_element(items, items + k - 1, items + count);
}

/// Writes the first k elements of [begin, end) in any order, or all if there are fewer. Returns their number. Compares
/// all elements with the last of the first k so far, which few of them precede.
template <class T>
int64_t find_first(const KeyRow<T>& row, int64_t begin, int64_t end, int64_t k, Candidate<KeyOf<T>>* to) {
  using Key = KeyOf<T>;
  const int64_t room = std::min(4 * k, end - begin) + Search<T>::kStep;
  const auto found = std::make_unique_for_overwrite<Candidate<Key>[]>(static_cast<size_t>(room));
  Search<T> search{row, begin, end, static_cast<Key>(~Key(0)), found.get(), 0, room};
  for (;;) {
    key_runs<T>().search(search);
    if (search.count <= k) break;
    first_in_front(search.found, search.count, k);
    search.count = k;
    const Key last = static_cast<Key>(search.found[k - 1] >> 32);
    if (search.at == end || last == 0) break;
    search.last = last - 1;  // of equal elements, the one found first goes first
  }
  std::copy_n(search.found, search.count, to);
  return search.count;
}

/// Writes the first k elements of a row, sorted.
template <class T>
void sort_first(const KeyRow<T>& row, int64_t n, int64_t k, Candidate<KeyOf<T>>* to) {
  if (n < 2 * kChunk) {
    find_first(row, 0, n, k, to);
  } else {
    std::vector<Candidate<KeyOf<T>>> found(static_cast<size_t>((n + kChunk - 1) / kChunk * k));
    int64_t count = 0;  // chunks before the last have more than k elements
    for_each_chunk(n, kChunk, [&](int64_t c, int64_t begin, int64_t end) {
      const int64_t here = find_first(row, begin, end, k, found.data() + c * k);
      if (end == n) count = c * k + here;
    });
    first_in_front(found.data(), count, k);
    std::copy_n(found.data(), k, to);
  }
  std::sort(to, to + k);
}

// ---- many elements, by radix sort -----------------------------------------------------------------------------------

/// The least and the greatest key of a row.
template <class T>
struct Bounds {
  KeyOf<T> least = ~KeyOf<T>(0), greatest = 0;
};

template <class T>
Bounds<T> bounds_of(const KeyRow<T>& row, int64_t n) {
  std::vector<Bounds<T>> parts(static_cast<size_t>((n + kChunk - 1) / kChunk));
  for_each_chunk(n, kChunk, [&](int64_t c, int64_t begin, int64_t end) {
    Bounds<T>& part = parts[static_cast<size_t>(c)];
    key_runs<T>().bounds(row, begin, end, part.least, part.greatest);
  });
  Bounds<T> all;
  for (const Bounds<T>& part : parts) all = {std::min(all.least, part.least), std::max(all.greatest, part.greatest)};
  return all;
}

/// Sorts the elements of n items, whose keys are equal above the `bits` bits that `packing` keeps.
template <class T>
void sort_run(const KeyRow<T>& row, const Packing& packing, uint64_t* items, uint64_t* spare, int64_t n, int bits) {
  constexpr int64_t kShort = 32;
  key_runs<T>().repack(items, row, packing, 0, n);
  if (n <= kShort) {
    std::sort(items, items + n);
  } else if (const uint64_t* const sorted = radix_sort(items, spare, n, packing.index_bits, bits); sorted != items) {
    std::copy_n(sorted, n, items);
  }
}

/// Sorts the first k > 0 elements of a row in items or in spare, with room for n each. Returns the items, whose low
/// `index_bits` bits are the indices.
template <class T>
const uint64_t* sort_packed(const KeyRow<T>& row, int64_t n, int64_t k, uint64_t* items, uint64_t* spare,
                            int index_bits) {
  const Bounds<T> bounds = bounds_of(row, n);
  const int bits = static_cast<int>(std::bit_width(uint64_t{bounds.greatest - bounds.least}));
  // With so many upper bits, few elements of most rows are equal in them. The lower bits order those.
  const int upper = std::min({bits, index_bits + 14, 64 - index_bits}), lower = bits - upper;
  const Packing first{bounds.least, lower, ~uint64_t{0}, index_bits},
      second{bounds.least, 0, (uint64_t{1} << lower) - 1, index_bits};
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { key_runs<T>().pack(items, row, first, begin, end); });
  const Kept kept = keep_smallest(items, spare, n, k, index_bits, upper);
  uint64_t* const sorted = radix_sort(kept.items, kept.spare, kept.count, index_bits, upper);
  if (lower > 0) {
    uint64_t* const other = sorted == kept.items ? kept.spare : kept.items;
    for_each_run(sorted, kept.count, index_bits, [&](int64_t begin, int64_t end) {
      sort_run(row, second, sorted + begin, other + begin, end - begin, lower);
    });
  }
  return sorted;
}

// ---- rows -----------------------------------------------------------------------------------------------------------

/// The first k elements of all rows.
template <class T>
void sort_rows(const Array& values, const Array& indices, const Array& x, int64_t k, bool descending) {
  using Key = KeyOf<T>;
  constexpr int64_t kShort = 64, kFew = 2048;
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1, rows = n ? x.numel() / n : 0;
  const bool by_comparison = n <= kShort || (k <= kFew && k <= n / 64);
  const int index_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  // Rows that are fewer than the threads, and long, are sorted one after the other by all threads.
  const bool together = rows < lorry::cpu::threads() && n >= 2 * kChunk;
  const int64_t grain = together ? rows : std::max<int64_t>(1, 2048 / std::max<int64_t>(1, n));
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    const int64_t few = by_comparison ? k : 0, packed = by_comparison ? 0 : n;
    const auto found = std::make_unique_for_overwrite<Candidate<Key>[]>(static_cast<size_t>(few));
    const Items spare(packed), more(k < n ? packed : 0);
    for (int64_t r = begin; r < end; ++r) {
      const KeyRow<T> row{x.as<const T>() + r * n, descending ? static_cast<Key>(~Key(0)) : Key(0)};
      T* const to = values.as<T>() + r * k;
      int64_t* const to_indices = indices.as<int64_t>() + r * k;
      const auto write = [&](const auto& index_at) {
        parallel_for(k, kGrain, [&](int64_t from, int64_t until) {
          for (int64_t i = from; i < until; ++i) {
            const int64_t index = index_at(i);
            to[i] = element(row.data, index);
            to_indices[i] = index;
          }
        });
      };
      if (by_comparison) {
        sort_first(row, n, k, found.get());
        write([&](int64_t i) { return static_cast<int64_t>(static_cast<uint32_t>(found[static_cast<size_t>(i)])); });
      } else {
        // The indices are written over the items.
        uint64_t* const items = k < n ? more.data() : reinterpret_cast<uint64_t*>(to_indices);
        const uint64_t* const sorted = sort_packed(row, n, k, items, spare.data(), index_bits);
        const uint64_t mask = (uint64_t{1} << index_bits) - 1;
        write([&](int64_t i) { return static_cast<int64_t>(sorted[i] & mask); });
      }
    }
  });
}

void sort(const Array& values, const Array& indices, const Array& x, bool descending, const Stream&) {
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1;
  visit(x.dtype, [&]<class T>(Type<T>) { sort_rows<T>(values, indices, x, n, descending); });
}

void topk(const Array& values, const Array& indices, const Array& x, bool largest, const Stream&) {
  const int64_t k = values.layout.rank ? values.size(values.layout.rank - 1) : 1;
  if (k == 0) return;
  visit(x.dtype, [&]<class T>(Type<T>) { sort_rows<T>(values, indices, x, k, largest); });
}

int64_t unique(const Array& values, const Array& inverse, const Array& counts, const Array& x, const Stream& stream) {
  const int64_t n = x.numel();
  const Items sorted_memory(n), order_memory(n);
  const Layout row = Layout::contiguous({n});
  const Array sorted{sorted_memory.data(), x.dtype, row}, order{order_memory.data(), kI64, row};
  sort(sorted, order, {x.data, x.dtype, row}, false, stream);
  return number_values(values, inverse, counts, sorted, order);
}

}  // namespace

const SortKernels& sort_kernels() {
  static constexpr SortKernels kKernels{sort, topk, unique};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
