#pragma once

// Lists of tensors on the CPU: runs of all entries laid end to end, shared evenly among the team whatever their sizes.

#include <algorithm>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/list.h"

namespace lorry::kernels::cpu {

/// Elements that repay waking a thread.
inline constexpr int64_t kListGrain = 16'384;

/// Calls body(entry, begin, count) for runs that cover every element of every entry once. Runs begin at multiples of `unit` elements
/// of their entry.
template <class F>
void for_each_run(const List& list, F&& body, int64_t unit = 1) {
  const std::span<const ListEntry> entries = list.entries();
  if (list.strategy() == Strategy::per_tensor) {
    for (const ListEntry& entry : entries)
      lorry::cpu::parallel_for((entry.count + unit - 1) / unit, std::max<int64_t>(1, kListGrain / unit), [&](int64_t begin, int64_t end) {
        if (begin < end) body(entry, begin * unit, std::min(end * unit, entry.count) - begin * unit);
      });
    return;
  }
  std::vector<int64_t> ends(entries.size());  // in units
  int64_t total = 0;
  for (size_t e = 0; e < entries.size(); ++e) ends[e] = total += (entries[e].count + unit - 1) / unit;
  lorry::cpu::parallel_for(total, std::max<int64_t>(1, kListGrain / unit), [&](int64_t begin, int64_t end) {
    auto e = static_cast<size_t>(std::ranges::upper_bound(ends, begin) - ends.begin());
    for (int64_t from = begin; from < end; ++e) {
      const ListEntry& entry = entries[e];
      const int64_t to = std::min(end, ends[e]), first = ends[e] - (entry.count + unit - 1) / unit;
      if (from < to) body(entry, (from - first) * unit, std::min((to - first) * unit, entry.count) - (from - first) * unit);
      from = std::max(from, to);
    }
  });
}

}  // namespace lorry::kernels::cpu
