// The distinct values of a sorted row.

#include <numeric>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/sort/keys.h"
#include "lorry/kernels/cpu/sort/unique.h"

namespace lorry::kernels::cpu {
namespace {

/// Whether a run of equal values begins at element i. All NaNs are distinct.
template <class T>
bool begins(const T* sorted, int64_t i) {
  const auto at = [&](int64_t j) { return static_cast<Accumulate<T>>(element(sorted, j)); };
  return i == 0 || at(i) != at(i - 1);
}

/// Chunks are independent: the first pass counts the runs that begin in each, the second writes them.
template <class T>
int64_t write_runs(const Array& values, const Array& inverse, const Array& counts, const Array& sorted,
                   const Array& order) {
  constexpr int64_t kChunk = int64_t{1} << 14;
  const int64_t n = sorted.numel();
  const T* const from = sorted.as<const T>();
  std::vector<int64_t> runs(static_cast<size_t>((n + kChunk - 1) / kChunk) + 1);
  lorry::cpu::for_each_chunk(n, kChunk, [&](int64_t c, int64_t begin, int64_t end) {
    int64_t found = 0;
    for (int64_t i = begin; i < end; ++i) found += begins(from, i);
    runs[static_cast<size_t>(c) + 1] = found;
  });
  std::partial_sum(runs.begin(), runs.end(), runs.begin());
  lorry::cpu::for_each_chunk(n, kChunk, [&](int64_t c, int64_t begin, int64_t end) {
    const int64_t first = runs[static_cast<size_t>(c)];
    int64_t found = first, start = begin;
    for (int64_t i = begin; i < end; ++i) {
      if (begins(from, i)) {
        if (counts.data && found > first) counts.as<int64_t>()[found - 1] = i - start;
        values.as<T>()[found++] = element(from, i);
        start = i;
      }
      if (inverse.data) inverse.as<int64_t>()[order.as<const int64_t>()[i]] = found - 1;
    }
    if (!counts.data || found == first) return;
    while (end < n && !begins(from, end)) ++end;  // the last run may go on in the next chunks
    counts.as<int64_t>()[found - 1] = end - start;
  });
  return runs.back();
}

}  // namespace

int64_t number_values(const Array& values, const Array& inverse, const Array& counts, const Array& sorted,
                      const Array& order) {
  return visit(sorted.dtype, [&]<class T>(Type<T>) { return write_runs<T>(values, inverse, counts, sorted, order); });
}

}  // namespace lorry::kernels::cpu
