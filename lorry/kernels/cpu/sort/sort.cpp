// Sorting by integer keys. Every value is mapped to an unsigned integer of its width (32 or 64 bits) with the required
// order, so one radix sort (one comparison sort for short rows) serves all types and both directions.

#include "lorry/kernels/sort.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

template <class Key>
struct Item {
  Key key;
  uint32_t index;
};
template <>
struct Item<uint64_t> {
  uint64_t key;
  int64_t index;
};

/// The key of a value: a < b exactly if key(a) < key(b). NaN is above everything, and -0 equals 0.
template <class T>
auto key_of(T value) {
  using C = Accumulate<T>;
  if constexpr (std::is_floating_point_v<C>) {
    using Key = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
    constexpr Key kSign = Key(1) << (8 * sizeof(C) - 1);
    const C v = static_cast<C>(value);
    if (v != v) return ~Key(0);
    const Key bits = std::bit_cast<Key>(v + C(0));  // -0 becomes 0
    return bits & kSign ? static_cast<Key>(~bits) : static_cast<Key>(bits | kSign);
  } else if constexpr (sizeof(T) == 8) {
    return static_cast<uint64_t>(value) ^ (uint64_t(1) << 63);
  } else {
    return static_cast<uint32_t>(static_cast<int32_t>(value)) ^ (uint32_t(1) << 31);
  }
}

/// Radix sort, least significant byte first. A byte that all keys share is skipped after its histogram.
template <class Key>
void radix_sort(std::vector<Item<Key>>& items, std::vector<Item<Key>>& spare) {
  constexpr int kBytes = sizeof(Key);
  std::array<std::array<int64_t, 256>, kBytes> counts{};
  for (const auto& item : items)
    for (int b = 0; b < kBytes; ++b) ++counts[b][item.key >> (8 * b) & 255];
  spare.resize(items.size());
  for (int b = 0; b < kBytes; ++b) {
    auto& count = counts[b];
    if (count[items[0].key >> (8 * b) & 255] == static_cast<int64_t>(items.size())) continue;
    int64_t at = 0;
    for (int64_t& c : count) at += std::exchange(c, at);
    for (const auto& item : items) spare[count[item.key >> (8 * b) & 255]++] = item;
    items.swap(spare);
  }
}

template <class Key>
void sort_items(std::vector<Item<Key>>& items, std::vector<Item<Key>>& spare) {
  constexpr size_t kShort = 256;
  if (items.size() > kShort) return radix_sort(items, spare);
  std::sort(items.begin(), items.end(),
            [](const auto& a, const auto& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; });
}

/// Calls take(items, row) with the sorted items of each row, smallest key first.
template <class T, class F>
void for_each_row(const Array& x, bool descending, F&& take) {
  using Key = decltype(key_of(T()));
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1, rows = n ? x.numel() / n : 0;
  lorry::cpu::parallel_for(rows, std::max<int64_t>(1, 2048 / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    std::vector<Item<Key>> items, spare;
    for (int64_t r = begin; r < end; ++r) {
      const T* row = x.as<const T>() + r * n;
      items.resize(n);
      for (int64_t i = 0; i < n; ++i) {
        const Key key = key_of(row[i]);
        items[i] = {descending ? static_cast<Key>(~key) : key, static_cast<decltype(Item<Key>::index)>(i)};
      }
      take(items, spare, row, r);
    }
  });
}

template <class T, class Items>
void write(const Array& values, const Array& indices, const Items& items, const T* row, int64_t r, int64_t k) {
  for (int64_t i = 0; i < k; ++i) {
    values.as<T>()[r * k + i] = row[items[i].index];
    indices.as<int64_t>()[r * k + i] = items[i].index;
  }
}

void sort(const Array& values, const Array& indices, const Array& x, bool descending, const Stream&) {
  const int64_t n = x.layout.rank ? x.size(x.layout.rank - 1) : 1;
  visit(x.dtype, [&]<class T>(Type<T>) {
    for_each_row<T>(x, descending, [&](auto& items, auto& spare, const T* row, int64_t r) {
      sort_items(items, spare);
      write(values, indices, items, row, r, n);
    });
  });
}

void topk(const Array& values, const Array& indices, const Array& x, bool largest, const Stream&) {
  const int64_t k = values.layout.rank ? values.size(values.layout.rank - 1) : 1;
  if (k == 0) return;
  visit(x.dtype, [&]<class T>(Type<T>) {
    for_each_row<T>(x, largest, [&](auto& items, auto& spare, const T* row, int64_t r) {
      const auto before = [](const auto& a, const auto& b) {
        return a.key != b.key ? a.key < b.key : a.index < b.index;
      };
      if (k < static_cast<int64_t>(items.size())) {
        std::nth_element(items.begin(), items.begin() + k, items.end(), before);
        items.resize(k);
        std::sort(items.begin(), items.end(), before);
      } else {
        sort_items(items, spare);
      }
      write(values, indices, items, row, r, k);
    });
  });
}

int64_t unique(const Array& values, const Array& inverse, const Array& counts, const Array& sorted, const Array& order,
               const Stream&) {
  const int64_t n = sorted.numel();
  int64_t found = 0;
  visit(sorted.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const T* from = sorted.as<const T>();
    for (int64_t i = 0, start = 0; i < n; ++i) {
      if (i == 0 || static_cast<C>(from[i]) != static_cast<C>(from[i - 1])) {
        values.as<T>()[found++] = from[i];
        start = i;
      }
      if (inverse.data) inverse.as<int64_t>()[order.as<const int64_t>()[i]] = found - 1;
      if (counts.data) counts.as<int64_t>()[found - 1] = i - start + 1;
    }
  });
  return found;
}

}  // namespace

const SortKernels& sort_kernels() {
  static constexpr SortKernels kKernels{sort, topk, unique};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
