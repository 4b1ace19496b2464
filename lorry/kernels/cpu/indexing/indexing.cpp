#include "lorry/kernels/cpu/indexing/indexing.h"

#include <algorithm>
#include <atomic>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/walk.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {
using lorry::cpu::parallel_for;

constexpr int64_t kGrain = int64_t{1} << 14;

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
    // The sign bit shows an index outside: of its distance to low, or of that to the last. No comparison, because
    // old processors have none for vectors of 64-bit numbers. Unsigned, because a distance may exceed 2^63.
    uint64_t signs = 0;
    walk(it, begin, end, [&](const int64_t* offset, int64_t count) {
      const int64_t* const from = data + offset[0];
      const int64_t stride = it.strides[0][0];
      const auto look = [&](int64_t value) {
        signs |= static_cast<uint64_t>(value) - static_cast<uint64_t>(low);
        signs |= static_cast<uint64_t>(high - 1) - static_cast<uint64_t>(value);
      };
      if (stride == 1) {
        for (int64_t i = 0; i < count; ++i) look(from[i]);
      } else {
        for (int64_t i = 0; i < count; ++i) look(from[i * stride]);
      }
    });
    if (signs >> 63 != 0) outside.store(true, std::memory_order_relaxed);
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

void repeat_positions(const Array& out, const Array& counts, Stream) {
  int64_t* to = out.as<int64_t>();
  for (int64_t i = 0; i < counts.numel(); ++i) to = std::fill_n(to, counts.as<int64_t>()[i], i);
}

}  // namespace

const IndexingKernels& indexing_kernels() {
  static constexpr IndexingKernels kKernels{.check = check,
                                            .flatten = flatten,
                                            .take = take,
                                            .put = put,
                                            .count_nonzero = count_nonzero,
                                            .nonzero = nonzero,
                                            .repeat_positions = repeat_positions,
                                            .take_checked = take_checked,
                                            .put_checked = put_checked};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
