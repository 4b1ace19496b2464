#include "lorry/kernels/cpu/sort/radix.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/sort/radix_runs.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_radix_runs(RadixRuns& runs))

const RadixRuns& radix_runs() {
  static const RadixRuns kRuns = [] {
    RadixRuns runs;
    LORRY_SIMD_CHOOSE(fill_radix_runs)(runs);
    return runs;
  }();
  return kRuns;
}

namespace {

/// A list of items, cut into chunks that threads count and move independently. The result does not depend on the cut.
struct Chunks {
  explicit Chunks(int64_t n)
      : n(n), count(std::clamp<int64_t>(n >> 15, 1, lorry::cpu::threads())), size((n + count - 1) / count) {}

  /// Calls body(chunk, begin, end) for each chunk.
  template <class F>
  void each(F&& body) const {
    lorry::cpu::for_each_chunk(n, size, body);
  }

  int64_t n, count, size;
};

/// The number of passes that takes the least time. A pass goes over the items and over a count for each digit.
int passes_for(const Chunks& chunks, int bits) {
  constexpr int kWidest = 11;  // of wider digits, the counts and the pages that items move to exceed the caches
  int best = 0;
  int64_t least = INT64_MAX;
  for (int passes = (bits + kWidest - 1) / kWidest; passes <= bits && passes > 0; ++passes) {
    const int64_t cost = passes * (2 * chunks.size + (chunks.count << ((bits + passes - 1) / passes)));
    if (cost < least) best = passes, least = cost;
  }
  return best;
}

}  // namespace

uint64_t* radix_sort(uint64_t* items, uint64_t* spare, int64_t n, int low, int bits) {
  const Chunks chunks(n);
  const int passes = passes_for(chunks, bits);
  std::vector<int64_t> counts;
  for (int pass = 0, from = 0; pass < passes; ++pass) {
    const int to = bits * (pass + 1) / passes;
    const Digit digit{low + from, to - from};
    from = to;
    counts.assign(static_cast<size_t>(chunks.count) << digit.bits, 0);
    chunks.each([&](int64_t c, int64_t begin, int64_t end) {
      radix_runs().count(items + begin, end - begin, digit, counts.data() + (c << digit.bits));
    });
    int64_t at = 0;
    const int64_t digits = int64_t{1} << digit.bits;
    bool all_agree = false;
    for (int64_t d = 0; d < digits; ++d) {
      const int64_t before = at;
      for (int64_t c = 0; c < chunks.count; ++c) {
        int64_t& count = counts[static_cast<size_t>(c * digits + d)];
        at += std::exchange(count, at);
      }
      all_agree |= at - before == n;
    }
    if (all_agree) continue;
    chunks.each([&](int64_t c, int64_t begin, int64_t end) {
      radix_runs().move(items + begin, end - begin, digit, counts.data() + c * digits, spare);
    });
    std::swap(items, spare);
  }
  return items;
}

// Each round looks at a digit, from the top, of the items whose upper bits may be those of the last of the first k.
Kept keep_smallest(uint64_t* items, uint64_t* spare, int64_t n, int64_t k, int low, int bits) {
  std::vector<int64_t> counts, first;
  uint64_t last = 0;  // the upper bits of the last of the first k items
  while (bits > 0 && n > k + k / 2) {
    const int width = std::min(bits, std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(n))) - 2, 4, 10));
    bits -= width;
    last <<= width;
    const Chunks chunks(n);
    const Above above{low + bits, static_cast<int64_t>(last)};
    counts.assign(static_cast<size_t>(chunks.count) << width, 0);
    chunks.each([&](int64_t c, int64_t begin, int64_t end) {
      radix_runs().count_above(items + begin, end - begin, above, counts.data() + (c << width));
    });
    // Where the items of each chunk go that are at most the last.
    first.assign(static_cast<size_t>(chunks.count) + 1, 0);
    int64_t total = 0;
    for (size_t digit = 0;; ++digit, ++last) {
      for (int64_t c = 0; c < chunks.count; ++c) {
        const int64_t count = counts[(static_cast<size_t>(c) << width) + digit];
        first[static_cast<size_t>(c) + 1] += count;
        total += count;
      }
      if (total >= k) break;
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    chunks.each([&](int64_t c, int64_t begin, int64_t) {
      const int64_t to = first[static_cast<size_t>(c)], count = first[static_cast<size_t>(c) + 1] - to;
      radix_runs().keep(items + begin, spare + to, count, low + bits, last);
    });
    n = total;
    std::swap(items, spare);
  }
  return {items, spare, n};
}

}  // namespace lorry::kernels::cpu
