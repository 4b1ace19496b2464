#pragma once

// Sorting 64-bit items by some of their bits. All functions keep the order of items that are equal in those bits, and
// use all threads for long lists.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/memory/allocate.h"

namespace lorry::kernels::cpu {

/// Temporary memory from the allocator's cache: the first use of new pages costs more than a pass over them.
class Items {
 public:
  explicit Items(int64_t count)
      : bytes_(count * 8), data_(static_cast<uint64_t*>(memory::allocate(Device(), bytes_))) {}
  ~Items() { memory::release(Device(), data_, bytes_); }
  Items(const Items&) = delete;
  Items& operator=(const Items&) = delete;
  uint64_t* data() const { return data_; }

 private:
  int64_t bytes_;
  uint64_t* data_;
};

/// Sorts n items by `bits` bits from bit `low` on. Both arrays are overwritten; returns the one that holds the result.
uint64_t* radix_sort(uint64_t* items, uint64_t* spare, int64_t n, int low, int bits);

/// The items that can be among the first k after such a sort, 0 < k <= n: at least k, and not many more.
struct Kept {
  uint64_t *items, *spare;
  int64_t count;
};
/// Both arrays are overwritten; the result is in one of them, the other is spare.
Kept keep_smallest(uint64_t* items, uint64_t* spare, int64_t n, int64_t k, int low, int bits);

/// Calls body(begin, end) for the runs of two or more items that are equal from bit `low` on. The body may change the
/// items of its run.
template <class F>
void for_each_run(const uint64_t* items, int64_t n, int low, F&& body) {
  constexpr int64_t kChunk = int64_t{1} << 14;
  const uint64_t limit = uint64_t{1} << low;
  const auto continues = [items, limit](int64_t i) { return (items[i] ^ items[i - 1]) < limit; };
  // A chunk has the runs that begin in it.
  std::vector<int64_t> first;
  first.reserve(static_cast<size_t>(n / kChunk) + 2);
  int64_t start = 0;
  for (int64_t chunk = 0; chunk < n; chunk += kChunk) {
    start = std::max(start, chunk);
    while (start > 0 && start < n && continues(start)) ++start;
    first.push_back(start);
  }
  first.push_back(n);
  lorry::cpu::parallel_for(static_cast<int64_t>(first.size()) - 1, 1, [&](int64_t from, int64_t to) {
    const int64_t end = first[static_cast<size_t>(to)];
    for (int64_t i = first[static_cast<size_t>(from)] + 1; i < end; ++i) {
      if (!continues(i)) continue;
      const int64_t begin = i - 1;
      while (++i < end && continues(i)) {
      }
      body(begin, i);
    }
  });
}

}  // namespace lorry::kernels::cpu
