// Sampling that orders or searches: permutations and multinomial draws.

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/random.h"

namespace lorry::kernels::cpu {
using lorry::cpu::parallel_for;
namespace {

/// The 64-bit word of element i, in a draw of two words per element.
uint64_t word64(RandomKey key, int64_t i) {
  const formula::Words4 words = formula::random_block(key, static_cast<uint64_t>(i) / 2);
  const int at = 2 * static_cast<int>(i & 1);
  return static_cast<uint64_t>(words.word[at + 1]) << 32 | words.word[at];
}

double unit64(RandomKey key, int64_t i) {
  const uint64_t word = word64(key, i);
  return formula::unit_f64(static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32));
}

}  // namespace

// The words are uniform, so their upper bits distribute them over buckets of nearly equal size, in order. Each bucket
// fits the cache and is sorted separately.
void permutation(const Array& out, RandomKey key, Stream) {
  struct Keyed {
    uint64_t word;
    int64_t index;
    bool operator<(const Keyed& other) const { return word != other.word ? word < other.word : index < other.index; }
  };
  constexpr int64_t kBucket = 1024;
  const int64_t n = out.numel();
  const int bits = n <= kBucket ? 1 : std::bit_width(static_cast<uint64_t>(n / kBucket));
  const int shift = 64 - bits;
  std::vector<Keyed> drawn(static_cast<size_t>(n)), dealt(static_cast<size_t>(n));
  parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) drawn[static_cast<size_t>(i)] = {word64(key, i), i};
  });
  std::vector<int64_t> first(static_cast<size_t>(1 << bits) + 1);
  for (const Keyed& k : drawn) ++first[(k.word >> shift) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (const Keyed& k : drawn) dealt[static_cast<size_t>(next[k.word >> shift]++)] = k;
  parallel_for(int64_t{1} << bits, 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const auto from = dealt.begin() + first[static_cast<size_t>(b)],
                 to = dealt.begin() + first[static_cast<size_t>(b) + 1];
      std::sort(from, to);
      std::transform(from, to, out.as<int64_t>() + first[static_cast<size_t>(b)],
                     [](const Keyed& k) { return k.index; });
    }
  });
}

void multinomial(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream) {
  const int64_t rows = out.size(0), draws = out.size(1), columns = weights.size(1);
  parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> score(static_cast<size_t>(columns));
    std::vector<int64_t> order(replacement ? 0 : static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      const double* const weight = weights.as<double>() + r * columns;
      int64_t* const to = out.as<int64_t>() + r * draws;
      if (replacement) {
        double sum = 0;
        int64_t last = 0;  // the last column with a positive weight: used if the product rounds up to the sum
        for (int64_t c = 0; c < columns; ++c) {
          if (weight[c] > 0) last = c;
          score[static_cast<size_t>(c)] = sum += weight[c];
        }
        for (int64_t k = 0; k < draws; ++k) {
          const double point = unit64(key, r * draws + k) * sum;
          to[k] = std::min<int64_t>(std::upper_bound(score.begin(), score.end(), point) - score.begin(), last);
        }
      } else {
        for (int64_t c = 0; c < columns; ++c) {
          const double u = unit64(key, r * columns + c) + 0x1p-54;  // never 0
          score[static_cast<size_t>(c)] = weight[c] > 0 ? -formula::log_unit(u) / weight[c] : HUGE_VAL;
          order[static_cast<size_t>(c)] = c;
        }
        std::partial_sort(order.begin(), order.begin() + draws, order.end(), [&](int64_t a, int64_t b) {
          const double x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
          return x != y ? x < y : a < b;
        });
        std::copy_n(order.begin(), draws, to);
      }
    }
  });
}

}  // namespace lorry::kernels::cpu
