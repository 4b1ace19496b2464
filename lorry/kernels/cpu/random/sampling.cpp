// Sampling that orders or searches: permutations and multinomial draws.

#include <algorithm>
#include <bit>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/cpu/random/random_tile.h"
#include "lorry/kernels/cpu/sort/radix.h"
#include "lorry/kernels/random.h"

namespace lorry::kernels::cpu {
using lorry::cpu::parallel_for;
namespace {

/// Word i of 64 bits. The first word of 32 bits is its low half.
uint64_t word_at(const uint32_t* words, int64_t i) {
  return static_cast<uint64_t>(words[2 * i + 1]) << 32 | words[2 * i];
}

/// The 64-bit word of element i, in a draw of two words per element.
uint64_t word64(RandomKey key, int64_t i) {
  return word_at(formula::random_block(key, static_cast<uint64_t>(i) / 2).word, i & 1);
}

double unit64(RandomKey key, int64_t i) {
  const uint64_t word = word64(key, i);
  return formula::unit_f64(static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32));
}

}  // namespace

// An item holds the upper bits of a word above the index. Words are uniform, so few of them are equal in more bits than
// an index has. The radix sort compares no more than that; the few are then ordered by all their bits.
void permutation(const Array& out, RandomKey key, Stream) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const int index_bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1)));
  const int sorted_bits = std::min(index_bits + 6, 64 - index_bits), low = 64 - sorted_bits;
  const uint64_t index_mask = (uint64_t{1} << index_bits) - 1;
  const Items spare(n);
  auto* const to = out.as<uint64_t>();
  constexpr int64_t kTile = kTileWords / 2;
  parallel_for((n + kTile - 1) / kTile, 16, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kTileWords];
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTile, count = std::min(kTile, n - first);
      const int64_t units = (count + 2 * kWordsUnit - 1) / (2 * kWordsUnit);
      random_words(key, static_cast<uint64_t>(first / 2), words, units * kWordsUnit);
      for (int64_t i = 0; i < count; ++i)
        to[first + i] = (word_at(words, i) & ~index_mask) | static_cast<uint64_t>(first + i);
    }
  });
  uint64_t* const sorted = radix_sort(to, spare.data(), n, low, sorted_bits);
  for_each_run(sorted, n, low, [&](int64_t begin, int64_t end) {
    std::sort(sorted + begin, sorted + end, [&](uint64_t a, uint64_t b) {
      if (((a ^ b) & ~index_mask) != 0) return a < b;
      const auto i = static_cast<int64_t>(a & index_mask), j = static_cast<int64_t>(b & index_mask);
      const uint64_t x = word64(key, i), y = word64(key, j);
      return x != y ? x < y : i < j;
    });
  });
  parallel_for(n, int64_t{1} << 15, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = sorted[i] & index_mask;
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
