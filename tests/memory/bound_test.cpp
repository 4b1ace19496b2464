// What the caching allocator holds beyond what is live stays within a bound.

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lorry/memory/caching_allocator.h"
#include "tests/memory/simulated_device.h"
#include "tests/memory/units.h"
#include "tests/support/scale.h"

namespace lorry {
namespace {

using memory::Caching;
using memory::CachingAllocator;
using memory::Stats;
using test::Setting;
using test::SimulatedDevice;

constexpr int64_t kBound = 48 * kMB;
constexpr memory::Policy kHost{.unit = 64, .thread_budget = 256 << 10, .bound = kBound, .pages = {2 * kMB, 4096}};

/// How often random traces go round: LORRY_TEST_SCALE multiplies it.
int rounds(int usual) { return static_cast<int>(test::scaled(usual)); }

TEST(CacheBound, whatever_the_sizes_what_is_cached_stays_within_the_bound) {
  for (const uint32_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    SimulatedDevice device(4096 * kMB);
    CachingAllocator allocator(device.provider(), "simulated:0", Caching::on, kHost);
    const Stream stream = SimulatedDevice::stream(0);
    std::mt19937 random(seed);
    std::vector<std::pair<void*, int64_t>> held;
    int64_t live = 0, most_live = 50 * kMB;
    for (int i = 0; i < rounds(5000); ++i) {
      if (i % 700 == 0) most_live = static_cast<int64_t>(random() % 400) * kMB;
      while (live > most_live || (!held.empty() && random() % 5 < 2)) {
        std::swap(held[random() % held.size()], held.back());
        allocator.release(held.back().first, held.back().second);
        live -= held.back().second;
        held.pop_back();
      }
      const auto bytes = static_cast<int64_t>(
          std::exp2(static_cast<double>(random() % 2500) / 100));  // 1 byte to 32 MB, all magnitudes alike
      held.emplace_back(allocator.allocate(bytes, stream), bytes);
      live += bytes;
      device.use(stream, held.back().first, std::min<int64_t>(bytes, 10'000), i);
      const Stats stats = allocator.stats();
      ASSERT_LE(stats.reserved - stats.allocated, kBound + memory::ThreadBins::kSyncAbove);
      ASSERT_GE(stats.reserved, device.present()) << "a page in use is not counted";
    }
    EXPECT_GT(allocator.stats().system_requests, 10);
    for (const auto& [data, bytes] : held) allocator.release(data, bytes);
    allocator.empty_cache();
    EXPECT_EQ(allocator.stats().reserved, 0);
    EXPECT_EQ(device.taken(), 0);
  }
}

TEST(CacheBound, one_live_block_does_not_hold_the_pages_of_its_segment) {
  Setting s;
  s.allocator.set_cache_bound(30 * kMB);
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(s.allocate(2 * kMB, s.first));  // ten to a segment
  for (int i = 0; i < 100; ++i)
    if (i % 10 != 3) s.release(blocks[static_cast<size_t>(i)], 2 * kMB);
  EXPECT_EQ(s.allocator.stats().allocated, 20 * kMB);
  EXPECT_LE(s.allocator.stats().reserved, 50 * kMB);
  EXPECT_EQ(s.device.present(), s.allocator.stats().reserved);
  void* large = s.allocate(14 * kMB, s.first);  // from pages that were given back, of which all count again
  s.device.use(s.first, large, 14 * kMB, 1);
  EXPECT_GE(s.allocator.stats().reserved, s.device.present());
  EXPECT_LE(s.allocator.stats().reserved, 34 * kMB + 30 * kMB);
  s.release(large, 14 * kMB);
  for (int i = 3; i < 100; i += 10) s.release(blocks[static_cast<size_t>(i)], 2 * kMB);
  s.allocator.empty_cache();
  EXPECT_EQ(s.device.taken(), 0);
}

TEST(CacheBound, a_lowered_bound_is_met_at_once_and_memory_within_it_is_kept) {
  Setting s;
  EXPECT_EQ(s.allocator.set_cache_bound(100 * kMB), INT64_MAX);
  for (int i = 0; i < 3; ++i) s.release(s.allocate((20 + 10 * i) * kMB, s.first), (20 + 10 * i) * kMB);
  EXPECT_EQ(s.allocator.stats().reserved, 90 * kMB);
  EXPECT_EQ(s.allocator.set_cache_bound(50 * kMB), 100 * kMB);
  EXPECT_LE(s.allocator.stats().reserved, 50 * kMB);
  EXPECT_GT(s.allocator.stats().reserved, 0);
  s.allocator.set_cache_bound(0);
  EXPECT_EQ(s.device.present(), 0);
}

// Every walk over the blocks asks first whether the stream is captured, and nothing else here does.

TEST(CacheBound, a_walk_waits_for_a_sixteenth_of_the_bound_where_little_can_go_back) {
  SimulatedDevice device(4096 * kMB);
  CachingAllocator allocator(device.provider(), "simulated:0", Caching::on, {.pages = {32 * kMB, 32 * kMB}});
  const Stream stream = SimulatedDevice::stream(0);
  constexpr int64_t kPiece = 2 * kMB;  // smaller than a page: out of reach when its neighbours live
  std::vector<void*> pieces;
  for (int i = 0; i < 300; ++i) pieces.push_back(allocator.allocate(kPiece, stream));
  for (size_t i = 0; i < pieces.size(); i += 2) allocator.release(pieces[i], kPiece);
  const Stats fragmented = allocator.stats();
  const int64_t out_of_reach = fragmented.reserved - fragmented.allocated;
  ASSERT_EQ(out_of_reach, 300 * kMB);
  constexpr int64_t kLittle = 12 * kMB;
  allocator.set_cache_bound(out_of_reach + kLittle / 2);  // between seven eighths of the bound and the bound
  const int64_t questions = device.capture_questions(), requests = allocator.stats().system_requests;
  for (int i = 0; i < 100; ++i) allocator.release(allocator.allocate(kLittle, stream), kLittle);
  EXPECT_LE(device.capture_questions() - questions, 1);
  EXPECT_LE(allocator.stats().system_requests - requests, 2);
  const Stats after = allocator.stats();
  EXPECT_LE(after.reserved - after.allocated, (out_of_reach + kLittle / 2) * 17 / 16);
  for (size_t i = 1; i < pieces.size(); i += 2) allocator.release(pieces[i], kPiece);
}

TEST(CacheBound, a_capture_does_not_make_every_release_look_what_can_go_back) {
  Setting s;
  constexpr int64_t kBlock = 2 * kMB, kCapturedBound = 64 * kMB;
  s.allocator.set_cache_bound(kCapturedBound);
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(s.allocate(kBlock, s.first));
  s.device.capture(s.first, true);
  const int64_t questions = s.device.capture_questions();
  for (void* block : blocks) s.release(block, kBlock);
  EXPECT_LE(s.device.capture_questions() - questions, 200 * kBlock / (kCapturedBound / 16));
  EXPECT_EQ(s.allocator.stats().reserved, 200 * kBlock) << "nothing goes back during a capture";
  s.device.capture(s.first, false);
  s.allocator.set_cache_bound(kCapturedBound);
  EXPECT_LE(s.allocator.stats().reserved, kCapturedBound);
}

TEST(CacheBound, discarded_pages_are_not_used_again_beyond_what_the_system_has) {
  Setting s(60 * kMB);
  void* low = s.allocate(15 * kMB, s.first);
  s.release(low, 15 * kMB);
  void* pin = s.allocate(kMB + 1, s.first);  // at the beginning of the segment
  ASSERT_EQ(pin, low);
  s.allocator.empty_cache();  // the rest of it goes
  void* other = s.allocate(50 * kMB, s.first);
  EXPECT_THROW(s.allocate(12 * kMB, s.first), OutOfMemory);
  s.release(other, 50 * kMB);
  void* again = s.allocate(12 * kMB, s.first);
  s.release(again, 12 * kMB);
  s.release(pin, kMB + 1);
}

}  // namespace
}  // namespace lorry
