#include "lorry/device/cpu/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lorry/base/error.h"

namespace lorry {
namespace {

/// Sets the size of the team for one test.
struct Threads {
  explicit Threads(int count) { cpu::set_threads(count); }
  ~Threads() { cpu::set_threads(before); }
  int before = cpu::threads();
};

TEST(Team, a_parallel_loop_visits_every_index_exactly_once) {
  for (const int threads : {1, 2, 3, 8}) {
    const Threads team(threads);
    for (const int64_t count : {0, 1, 2, 7, 1000, 100'003}) {
      std::vector<int> visits(static_cast<size_t>(count));
      cpu::parallel_for(count, 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int v) { return v == 1; }))
          << threads << " threads, " << count << " indices";
    }
  }
}

TEST(Team, what_a_loop_writes_is_seen_after_it) {
  // Quiet under ThreadSanitizer only where it sees the barrier at the loop's end.
  const Threads team(4);
  std::vector<int64_t> values(10'000);
  int64_t sum = 0;
  for (int round = 0; round < 20; ++round) {
    cpu::parallel_for(10'000, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i;
    });
    sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  }
  EXPECT_EQ(sum, 20LL * 9'999 * 10'000 / 2);
}

TEST(Team, chunks_do_not_depend_on_the_number_of_threads) {
  const auto chunks = [](int threads) {
    const Threads team(threads);
    std::vector<std::pair<int64_t, int64_t>> seen(8);
    cpu::for_each_chunk(1000, 128, [&](int64_t chunk, int64_t begin, int64_t end) {
      seen.at(static_cast<size_t>(chunk)) = {begin, end};
    });
    return seen;
  };
  const auto alone = chunks(1);
  EXPECT_EQ(alone.back(), (std::pair<int64_t, int64_t>{896, 1000}));
  EXPECT_EQ(chunks(2), alone);
  EXPECT_EQ(chunks(7), alone);
}

TEST(Team, an_exception_in_a_body_reaches_the_caller) {
  const Threads team(4);
  try {
    cpu::parallel_for(1000, 1, [](int64_t begin, int64_t) {
      if (begin > 0) throw std::runtime_error("from a worker");
    });
    FAIL() << "no exception";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "from a worker");
  }
}

TEST(Team, a_loop_inside_a_loop_runs_on_its_own_thread) {
  const Threads team(4);
  std::atomic<int64_t> sum = 0;
  cpu::parallel_for(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      cpu::parallel_for(100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
  });
  EXPECT_EQ(sum, 800);
}

TEST(Team, a_count_out_of_range_is_refused) {
  const int before = cpu::threads();
  EXPECT_THROW(cpu::set_threads(0), ValueError);
  EXPECT_THROW(cpu::set_threads(1025), ValueError);
  EXPECT_EQ(cpu::threads(), before);
}

}  // namespace
}  // namespace lorry
