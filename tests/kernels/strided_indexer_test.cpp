// From positions to offsets as CUDA kernels do it, against plain division: the same functions, compiled for the host.

#include "lorry/kernels/cuda/common/strided_indexer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "lorry/kernels/cuda/common/narrow.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int64_t kMost = INT32_MAX;

TEST(offsets, division_by_multiplication_is_exact_to_31_bits) {
  std::mt19937_64 random(1);
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= 2000; ++d) divisors.push_back(d);
  for (int bit = 1; bit < 31; ++bit)
    for (const int64_t near : {-1, 0, 1}) divisors.push_back((int64_t{1} << bit) + near);
  for (int64_t d = kMost - 20; d <= kMost; ++d) divisors.push_back(d);
  for (int i = 0; i < 2000; ++i) divisors.push_back(1 + static_cast<int64_t>(random() % kMost));
  for (const int64_t d : divisors) {
    const Divider divide(d);
    std::vector<int64_t> positions = {0, 1, d - 1, d, kMost / d * d - 1, kMost / d * d, kMost - 1, kMost};
    for (int i = 0; i < 50; ++i) {
      const auto n = static_cast<int64_t>(random() % (uint64_t{1} << (1 + random() % 31)));
      for (const int64_t position : {n, n / d * d, n / d * d + d - 1}) positions.push_back(position);
    }
    for (const int64_t n : positions) {
      if (n > kMost) continue;
      ASSERT_EQ(divide(static_cast<uint32_t>(n)), static_cast<uint32_t>(n / d)) << n << " / " << d;
    }
  }
}

/// Sizes whose product stays near `numel`, and strides of any kind: broadcast, permuted, with gaps.
template <int kOperands>
Iteration random_iteration(std::mt19937_64& random, int rank, double numel) {
  Iteration it;
  it.operands = kOperands;
  it.rank = rank;
  for (int d = 0; d < rank; ++d) {
    const double share =
        d + 1 == rank ? numel : std::max(1.0, std::pow(numel, static_cast<double>(random() % 100) / 100));
    it.sizes[d] = std::max<int64_t>(1, static_cast<int64_t>(share));
    numel /= static_cast<double>(it.sizes[d]);
    for (int k = 0; k < kOperands; ++k)
      it.strides[k][d] = random() % 4 == 0 ? 0 : static_cast<int64_t>(random() % 1000);
  }
  return it;
}

template <int kOperands, class Index>
void compare(const Iteration& it, std::mt19937_64& random) {
  const StridedIndexer<kOperands, Index> offsets(it);
  const int64_t n = it.numel();
  for (int i = 0; i < 200; ++i) {
    const int64_t position = i == 0 ? 0 : i == 1 ? n - 1 : static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    Index got[kOperands];
    offsets(static_cast<Index>(position), got);
    int64_t rest = position, expected[kOperands] = {};
    for (int d = 0; d < it.rank; ++d) {
      for (int k = 0; k < kOperands; ++k) expected[k] += rest % it.sizes[d] * it.strides[k][d];
      rest /= it.sizes[d];
    }
    for (int k = 0; k < kOperands; ++k)
      ASSERT_EQ(static_cast<int64_t>(got[k]), expected[k]) << "operand " << k << " at " << position << " of " << n;
  }
}

TEST(offsets, of_every_rank_are_those_of_plain_arithmetic) {
  std::mt19937_64 random(2);
  for (int rank = 1; rank <= kMaxRank; ++rank) {
    for (int i = 0; i < 50; ++i) {
      const Iteration small = random_iteration<3>(random, rank, static_cast<double>(1 + random() % 1000000));
      if (fits_narrow(small)) compare<3, uint32_t>(small, random);
      compare<3, int64_t>(small, random);
      Iteration full = random_iteration<2>(random, rank, 2147483647.0);
      for (int d = 0; d < rank; ++d) full.strides[0][d] = d == 0 ? 1 : full.strides[0][d - 1] * full.sizes[d - 1];
      for (int d = 0; d < rank; ++d) full.strides[1][d] = 0;
      ASSERT_TRUE(fits_narrow(full));
      compare<2, uint32_t>(full, random);
      compare<2, int64_t>(random_iteration<2>(random, rank, 1e12), random);
    }
  }
}

TEST(offsets, what_needs_more_than_31_bits_is_said_so) {
  Iteration it;
  it.operands = 2;
  it.rank = 1;
  it.sizes[0] = kMost;
  it.strides[0][0] = 1, it.strides[1][0] = 0;
  EXPECT_TRUE(fits_narrow(it));
  it.sizes[0] = kMost + 1;
  EXPECT_FALSE(fits_narrow(it));
  it.sizes[0] = 2, it.strides[1][0] = kMost;
  EXPECT_TRUE(fits_narrow(it));
  it.strides[1][0] = kMost + 1;
  EXPECT_FALSE(fits_narrow(it));
}

TEST(offsets, narrow_parts_cover_an_iteration_once) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const Iteration it = random_iteration<2>(random, 1 + static_cast<int>(random() % kMaxRank), 2e10);
    // Sums over all elements of each operand's offset, which a part that is missing, doubled or misplaced would change.
    const auto sum = [](const Iteration& part, int k, int64_t start) {
      const auto n = static_cast<unsigned __int128>(part.numel());
      unsigned __int128 total = n * static_cast<unsigned __int128>(start);
      for (int d = 0; d < part.rank; ++d)
        total += n * static_cast<unsigned __int128>(part.sizes[d] - 1) *
                 static_cast<unsigned __int128>(part.strides[k][d]) / 2;
      return total;
    };
    int64_t covered = 0;
    unsigned __int128 sums[2] = {};
    for_each_narrow(it, [&](const Iteration& part, const int64_t* starts) {
      ASSERT_TRUE(fits_narrow(part));
      covered += part.numel();
      for (int k = 0; k < 2; ++k) sums[k] += sum(part, k, starts[k]);
    });
    EXPECT_EQ(covered, it.numel());
    for (int k = 0; k < 2; ++k) EXPECT_TRUE(sums[k] == sum(it, k, 0));
  }
}

}  // namespace
}  // namespace lorry::kernels::cuda
