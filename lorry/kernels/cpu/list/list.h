#pragma once

// Lists of tensors on the CPU. All entries together are one sequence of elements, divided evenly among threads whatever
// the entries' sizes.

#include <algorithm>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/list.h"

namespace lorry::kernels::cpu {

/// The number of elements worth waking a thread for.
inline constexpr int64_t kListGrain = 16'384;

/// Calls body(entry, begin, count) for runs that cover every element of every entry once. Runs begin at multiples of
/// `unit` elements of their entry.
template <class F>
void for_each_run(const List& list, F&& body, int64_t unit = 1) {
  const std::span<const ListEntry> entries = list.entries();
  if (list.strategy() == Strategy::per_tensor) {
    for (const ListEntry& entry : entries)
      lorry::cpu::parallel_for((entry.count + unit - 1) / unit, std::max<int64_t>(1, kListGrain / unit),
                               [&](int64_t begin, int64_t end) {
                                 if (begin < end)
                                   body(entry, begin * unit, std::min(end * unit, entry.count) - begin * unit);
                               });
    return;
  }
  const auto units = [&](const ListEntry& entry) { return (entry.count + unit - 1) / unit; };
  int64_t total = 0;
  for (const ListEntry& entry : entries) total += units(entry);
  // Each thread finds its share by itself, because a step that has begun to write must not allocate.
  lorry::cpu::parallel_for(total, std::max<int64_t>(1, kListGrain / unit), [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // the entry's first unit among all units
    for (const ListEntry& entry : entries) {
      const int64_t next = first + units(entry), from = std::max(begin, first), to = std::min(end, next);
      if (from < to)
        body(entry, (from - first) * unit, std::min((to - first) * unit, entry.count) - (from - first) * unit);
      if (next >= end) return;
      first = next;
    }
  });
}

}  // namespace lorry::kernels::cpu
