#include "lorry/memory/caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "lorry/base/modes.h"
#include "lorry/base/waits.h"
#include "tests/memory/simulated_device.h"
#include "tests/memory/units.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

using memory::Caching;
using memory::CachingAllocator;
using memory::Stats;
using test::Setting;
using test::SimulatedDevice;

TEST(CachingAllocator, size_classes_hold_their_requests_and_are_the_least_sizes_of_their_bins) {
  for (int64_t bytes = 1; bytes <= memory::kSmall; ++bytes) {
    const int c = memory::small_class(bytes);
    ASSERT_LT(c, memory::kSmallClasses);
    const int64_t size = memory::small_class_bytes(c);
    ASSERT_GE(size, bytes);
    ASSERT_EQ(size % memory::kLeastUnit, 0);
    ASSERT_EQ(memory::small_class(size), c);
    if (bytes > 1024) {
      ASSERT_LE(5 * (size - bytes), size);
    }
    for (int64_t unit = memory::kLeastUnit; unit <= 512; unit *= 2) {
      const int64_t units = (bytes + unit - 1) / unit * unit;
      ASSERT_EQ(memory::small_class_bytes(memory::small_class(units)) % unit, 0) << bytes << " in units of " << unit;
    }
  }
  for (int c = 0; c < memory::kSmallClasses; ++c) {
    const int64_t size = memory::small_class_bytes(c);
    if (size > memory::kLeastUnit) {
      ASSERT_LT(memory::FreeBlocks::bin_of(size - memory::kLeastUnit), memory::FreeBlocks::bin_of(size));
    }
  }
}

TEST(CachingAllocator, nothing_is_null_and_nonsense_is_out_of_memory) {
  Setting s;
  EXPECT_EQ(s.allocate(0, s.first), nullptr);
  s.release(nullptr, 0);
  EXPECT_THROW(s.allocate(-1, s.first), OutOfMemory);
  EXPECT_THROW(s.allocate(INT64_MAX, s.first), OutOfMemory);
}

TEST(CachingAllocator, a_released_block_is_reused_on_its_stream_at_once_and_is_aligned) {
  for (const bool misaligned : {false, true}) {
    Setting s(1024 * kMB, Caching::on, misaligned);
    for (const int64_t bytes : {int64_t{1}, int64_t{512}, int64_t{5000}, kMB, kMB + 1, 9 * kMB, 10 * kMB, 50 * kMB}) {
      void* a = s.allocate(bytes, s.first);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 512, 0u);
      s.device.use(s.first, a, bytes, 1);
      s.release(a, bytes);
      void* b = s.allocate(bytes, s.first);
      EXPECT_EQ(a, b) << bytes;
      s.device.use(s.first, b, bytes, 2);
      s.release(b, bytes);
    }
  }
}

TEST(CachingAllocator, another_stream_takes_a_free_segment_only_after_an_event) {
  for (const int64_t bytes : {int64_t{3000}, 3 * kMB, 30 * kMB}) {
    Setting s;
    void* a = s.allocate(bytes, s.first);
    s.device.use(s.first, a, bytes, 1);
    s.release(a, bytes);
    std::thread([&] {  // leaves no bins behind
      void* b = s.allocate(bytes, s.second);
      EXPECT_NE(a, b);
      s.device.use(s.second, b, bytes, 2);
      s.release(b, bytes);
    })
        .join();
    s.allocator.empty_cache();  // hands in this thread's small blocks
    a = s.allocate(bytes, s.first);
    s.device.use(s.first, a, bytes, 3);
    s.release(a, bytes);
    for (auto& bins : memory::t_cache.bins)
      if (bins.owner == &s.allocator) s.allocator.hand_in(bins);
    void* const b = s.allocate(bytes, s.second);  // offers the first stream's segment, and takes one from the system
    EXPECT_NE(a, b);
    s.device.advance(s.first, 1);
    const int64_t requests = s.allocator.stats().system_requests;
    void* c = nullptr;
    std::vector<void*> filled;  // until the second stream's own memory is used up
    do filled.push_back(c = s.allocate(bytes, s.second));
    while (c != a && s.allocator.stats().system_requests == requests);
    EXPECT_EQ(c, a);
    s.device.use(s.second, c, bytes, 4);
    for (void* data : filled) s.release(data, bytes);
    s.release(b, bytes);
  }
}

TEST(CachingAllocator, a_stream_may_take_back_what_it_offered) {
  Setting s;
  void* a = s.allocate(30 * kMB, s.first);
  s.device.use(s.first, a, 30 * kMB, 1);
  s.release(a, 30 * kMB);
  void* b = s.allocate(30 * kMB, s.second);
  EXPECT_EQ(s.device.events_in_use(), 1);
  EXPECT_EQ(s.allocate(30 * kMB, s.first), a);
  EXPECT_EQ(s.device.events_in_use(), 0);
  s.device.finish_all();
  void* c = s.allocate(30 * kMB, s.second);
  EXPECT_NE(c, a);
  for (void* data : {a, b, c}) s.release(data, 30 * kMB);
}

TEST(CachingAllocator, a_noted_use_on_another_stream_delays_reuse_until_its_event) {
  for (const int64_t bytes : {int64_t{3000}, 3 * kMB}) {
    Setting s;
    void* a = s.allocate(bytes, s.first);
    s.allocator.record_stream(a, s.second);
    s.allocator.record_stream(a, s.second);
    s.allocator.record_stream(a, s.first);  // its own: nothing to note
    s.device.use(s.second, a, bytes, 1);
    s.release(a, bytes);
    EXPECT_EQ(s.allocator.stats().allocated, 0);
    EXPECT_GE(s.allocator.stats().waiting, bytes);
    EXPECT_EQ(s.device.events_in_use(), 1);
    void* b = s.allocate(bytes, s.first);
    EXPECT_NE(a, b);
    s.device.use(s.first, b, bytes, 2);
    s.device.advance(s.second, 1);
    s.allocator.poll();
    EXPECT_EQ(s.allocator.stats().waiting, 0);
    EXPECT_EQ(s.device.events_in_use(), 0);
    EXPECT_EQ(s.allocate(bytes, s.first), a);
    s.release(a, bytes);
    s.release(b, bytes);
  }
}

TEST(CachingAllocator, memory_of_others_is_not_noted) {
  Setting s;
  int outside = 0;
  s.allocator.record_stream(&outside, s.second);
  char* a = static_cast<char*>(s.allocate(3000, s.first));
  s.allocator.record_stream(a + 512, s.second);
  s.release(a, 3000);
  EXPECT_EQ(s.allocator.stats().waiting, 0);
}

TEST(CachingAllocator, a_capture_records_no_events_and_gives_nothing_back) {
  Setting s(64 * kMB);
  void* a = s.allocate(20 * kMB, s.first);
  void* cached = s.allocate(20 * kMB, s.first);
  s.allocator.record_stream(a, s.second);
  s.release(cached, 20 * kMB);
  s.device.capture(s.second, true);
  s.release(a, 20 * kMB);
  EXPECT_EQ(s.device.events_in_use(), 0);
  EXPECT_THROW(s.allocate(50 * kMB, s.first), OutOfMemory);
  EXPECT_EQ(s.device.taken(), 40 * kMB);
  s.device.capture(s.second, false);
  void* b = s.allocate(50 * kMB, s.first);
  s.release(b, 50 * kMB);
}

TEST(CachingAllocator, blocks_merge_back_to_whole_segments) {
  for (const bool misaligned : {false, true}) {
    Setting s(8192 * kMB, Caching::on, misaligned);
    std::mt19937 random(5);
    std::vector<std::pair<void*, int64_t>> blocks;
    for (int i = 0; i < 3000; ++i) {
      const int64_t bytes = 1 + static_cast<int64_t>(random() % (i % 10 == 0 ? 12 * kMB : i % 3 == 0 ? kMB : 20'000));
      blocks.emplace_back(s.allocate(bytes, s.first), bytes);
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (const auto& [data, bytes] : blocks) s.release(data, bytes);
    EXPECT_EQ(s.allocator.stats().allocated, 0);
    EXPECT_EQ(s.allocator.stats().live_blocks, 0);
    s.allocator.empty_cache();
    EXPECT_EQ(s.allocator.stats().reserved, 0);
    EXPECT_EQ(s.allocator.stats().segments, 0);
    EXPECT_EQ(s.device.pieces(), 0);
  }
}

TEST(CachingAllocator, small_requests_share_segments_and_large_ones_split_them) {
  Setting s;
  std::vector<void*> small, medium;
  for (int i = 0; i < 4096; ++i) small.push_back(s.allocate(512, s.first));
  EXPECT_EQ(s.device.taken(), 2 * kMB);
  for (int i = 0; i < 10; ++i) medium.push_back(s.allocate(2 * kMB, s.first));
  EXPECT_EQ(s.device.taken(), 22 * kMB);
  void* own = s.allocate(33 * kMB, s.first);
  EXPECT_EQ(s.device.taken(), 22 * kMB + 34 * kMB);
  s.release(own, 33 * kMB);
  void* part = s.allocate(12 * kMB, s.first);
  void* rest = s.allocate(20 * kMB, s.first);
  EXPECT_EQ(s.device.taken(), 22 * kMB + 34 * kMB);
  for (void* data : small) s.release(data, 512);
  for (void* data : medium) s.release(data, 2 * kMB);
  s.release(part, 12 * kMB);
  s.release(rest, 20 * kMB);
}

TEST(CachingAllocator, a_steady_state_asks_the_system_for_nothing) {
  Setting s;
  const auto round = [&] {
    std::vector<std::pair<void*, int64_t>> blocks;
    for (int64_t bytes = 100; bytes < 40 * kMB; bytes = bytes * 3 / 2)
      blocks.emplace_back(s.allocate(bytes, s.first), bytes);
    for (const auto& [data, bytes] : blocks) s.release(data, bytes);
  };
  round();
  const int64_t requests = s.allocator.stats().system_requests;
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(s.allocator.stats().system_requests, requests);
}

TEST(CachingAllocator, a_private_pool_keeps_its_memory_and_goes_as_a_whole) {
  Setting s;
  const uint32_t pool = s.allocator.make_pool();
  const auto inside = [&](const auto& body) {
    memory::detail::t_pool = {.device = {&s.allocator, pool}};
    body();
    memory::detail::t_pool = {};
  };
  void *small = nullptr, *large = nullptr, *held = nullptr;
  inside([&] {
    small = s.allocate(3000, s.first);
    large = s.allocate(30 * kMB, s.first);
    held = s.allocate(30 * kMB, s.first);
  });
  s.release(small, 3000);
  s.release(large, 30 * kMB);
  void* outside_small = s.allocate(3000, s.first);
  void* outside_large = s.allocate(30 * kMB, s.first);
  EXPECT_NE(outside_small, small);
  EXPECT_NE(outside_large, large);
  s.release(outside_small, 3000);
  s.release(outside_large, 30 * kMB);
  s.allocator.empty_cache();
  EXPECT_EQ(s.device.taken(), 62 * kMB) << "the pool's memory stays, free or not";
  inside([&] {
    EXPECT_EQ(s.allocate(3000, s.first), small);
    EXPECT_EQ(s.allocate(30 * kMB, s.first), large);
  });
  s.release(small, 3000);
  s.release(large, 30 * kMB);
  s.allocator.release_pool(pool);
  EXPECT_EQ(s.device.taken(), 30 * kMB) << "what a tensor still holds stays";
  s.release(held, 30 * kMB);
  EXPECT_EQ(s.device.taken(), 0);
}

TEST(CachingAllocator, a_pool_in_force_has_a_part_for_the_device_and_one_for_pinned_memory) {
  Setting device, pinned, other;
  memory::detail::t_pool = {.device = {&device.allocator, device.allocator.make_pool()},
                            .pinned = {&pinned.allocator, pinned.allocator.make_pool()}};
  void* inside[3];
  int i = 0;
  for (Setting* s : {&device, &pinned, &other}) {
    inside[i] = s->allocate(3000, s->first);
    s->release(inside[i++], 3000);
  }
  memory::detail::t_pool = {};
  EXPECT_NE(device.allocate(3000, device.first), inside[0]);
  EXPECT_NE(pinned.allocate(3000, pinned.first), inside[1]);
  EXPECT_EQ(other.allocate(3000, other.first), inside[2]) << "which has no pool in force";
}

TEST(CachingAllocator, a_private_pool_may_end_while_its_blocks_wait_for_another_stream) {
  Setting s;
  const uint32_t pool = s.allocator.make_pool();
  memory::detail::t_pool = {.device = {&s.allocator, pool}};
  void* a = s.allocate(3000, s.first);
  memory::detail::t_pool = {};
  s.allocator.record_stream(a, s.second);
  s.device.use(s.second, a, 3000, 1);
  s.release(a, 3000);
  s.allocator.release_pool(pool);
  EXPECT_EQ(s.device.taken(), 2 * kMB);
  s.device.finish_all();
  s.allocator.poll();
  EXPECT_EQ(s.device.taken(), 0);
}

TEST(CachingAllocator, short_of_memory_it_gives_back_what_is_free_and_waits_for_what_will_be) {
  Setting s(100 * kMB);
  void* other = s.allocate(40 * kMB, s.second);
  void* noted = s.allocate(40 * kMB, s.first);
  s.allocator.record_stream(noted, s.second);
  s.device.use(s.second, noted, 40 * kMB, 1);
  s.device.use(s.second, other, 40 * kMB, 2);
  s.release(other, 40 * kMB);
  s.release(noted, 40 * kMB);
  void* a = s.allocate(90 * kMB, s.first);
  s.device.use(s.first, a, 90 * kMB, 3);
  EXPECT_EQ(s.allocator.stats().retries, 1);
  s.release(a, 90 * kMB);
}

TEST(CachingAllocator, waits_for_the_device_are_told_when_the_allocator_can_be_used_again) {
  Setting s(100 * kMB);
  std::vector<events::Wait> told;
  const events::Handler before = events::set_handler([&](const events::Event& event) {
    told.push_back(event.wait);
    s.release(s.allocate(64, s.first), 64);  // would hang if the lock were held
  });
  s.release(s.allocate(60 * kMB, s.first), 60 * kMB);
  s.allocator.empty_cache();
  EXPECT_EQ(told, std::vector{events::Wait::memory});
  told.clear();
  s.release(s.allocate(60 * kMB, s.first), 60 * kMB);
  s.release(s.allocate(80 * kMB, s.first), 80 * kMB);
  EXPECT_EQ(told, std::vector{events::Wait::out_of_memory});
  events::set_handler(before);
}

TEST(CachingAllocator, a_forbidden_wait_for_memory_throws_and_the_next_call_works) {
  Setting s(100 * kMB);
  s.release(s.allocate(60 * kMB, s.first), 60 * kMB);
  const Running running("matmul");
  {
    const waits::RuleScope rule({.policy = waits::Policy::forbid});
    const std::string text = test::message<SynchronisationError>([&] { s.allocate(80 * kMB, s.first); });
    EXPECT_TRUE(text.starts_with("matmul: the host would wait for the device because the device's memory is full"))
        << text;
    s.release(s.allocate(50 * kMB, s.first), 50 * kMB);
    s.allocator.empty_cache();  // waits and must not fail
  }
  EXPECT_EQ(s.allocator.stats().reserved, 0);
  s.release(s.allocate(80 * kMB, s.first), 80 * kMB);
}

TEST(CachingAllocator, out_of_memory_names_operator_request_figures_and_the_ten_largest_and_the_next_call_works) {
  Setting s(100 * kMB);
  t_operator = "hoarder";
  std::vector<std::pair<void*, int64_t>> held;
  for (int64_t i = 1; i <= 12; ++i) held.emplace_back(s.allocate(i * 1024, s.first), i * 1024);
  t_operator = nullptr;
  void* big = s.allocate(40 * kMB, s.first);
  t_operator = "matmul";
  const std::string text = test::message<OutOfMemory>([&] { s.allocate(200 * kMB, s.first); });
  t_operator = nullptr;
  EXPECT_NE(text.find("matmul: out of memory on simulated:0; requested 209715200 bytes"), std::string::npos) << text;
  const Stats stats = s.allocator.stats();
  EXPECT_NE(text.find(fmt::format("allocated {}, reserved {}, free {} (largest free block ", stats.allocated,
                                  stats.reserved, stats.reserved - stats.allocated)),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("largest live blocks: 41943040 bytes by the caller, 12288 bytes by hoarder, "), std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), ','), 2 + 9) << "ten blocks are named: " << text;
  void* next = s.allocate(30 * kMB, s.first);
  EXPECT_NE(next, nullptr);
  s.release(next, 30 * kMB);
  s.release(big, 40 * kMB);
  for (const auto& [data, bytes] : held) s.release(data, bytes);
}

TEST(CachingAllocator, ten_thousand_times_out_of_memory_loses_nothing) {
  Setting s(64 * kMB);
  void* kept = s.allocate(1000, s.first);
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_THROW(s.allocate((65 + i % 100) * kMB, s.first), OutOfMemory);
    void* a = s.allocate(40 * kMB, s.first);
    s.release(a, 40 * kMB);
  }
  s.release(kept, 1000);
  EXPECT_EQ(s.allocator.stats().allocated, 0);
}

TEST(CachingAllocator, a_limit_frees_the_cache_before_it_refuses) {
  Setting s;
  s.allocator.set_limit(32 * kMB);
  void* a = s.allocate(24 * kMB, s.first);
  EXPECT_THROW(s.allocate(24 * kMB, s.first), OutOfMemory);
  void* small = s.allocate(6 * kMB, s.first);  // a shared segment would pass the limit, the request alone does not
  s.release(small, 6 * kMB);
  s.release(a, 24 * kMB);
  void* b = s.allocate(31 * kMB, s.second);
  EXPECT_NE(b, nullptr);
  s.release(b, 31 * kMB);
  s.allocator.set_limit(0);
  void* c = s.allocate(100 * kMB, s.first);
  s.release(c, 100 * kMB);
}

TEST(CachingAllocator, statistics_and_snapshot_follow_allocations) {
  Setting s;
  t_operator = "linear";
  void* a = s.allocate(1000, s.first);
  void* b = s.allocate(3 * kMB, s.first);
  t_operator = nullptr;
  Stats stats = s.allocator.stats();
  EXPECT_EQ(stats.allocated, 1024 + 3 * kMB);
  EXPECT_EQ(stats.live_blocks, 2);
  EXPECT_EQ(stats.reserved, 22 * kMB);
  EXPECT_EQ(stats.segments, 2);
  EXPECT_EQ(stats.system_requests, 2);
  const auto live = s.allocator.snapshot();
  ASSERT_EQ(live.size(), 2u);
  EXPECT_EQ(live[0].bytes, 3 * kMB);
  EXPECT_STREQ(live[1].made_by, "linear");
  s.release(b, 3 * kMB);
  s.release(a, 1000);
  stats = s.allocator.stats();
  EXPECT_EQ(stats.allocated, 0);
  EXPECT_EQ(stats.peak_allocated, 1024 + 3 * kMB);
  EXPECT_DOUBLE_EQ(stats.fragmentation(), 1.0);
  EXPECT_TRUE(s.allocator.snapshot().empty());
  s.allocator.reset_peak();
  EXPECT_EQ(s.allocator.stats().peak_allocated, 0);
}

TEST(CachingAllocator, poison_fills_what_is_released_and_finds_a_write_after_it) {
  Setting s(1024 * kMB, Caching::poison);
  auto* a = static_cast<unsigned char*>(s.allocate(3000, s.first));
  std::memset(a, 1, 3000);
  s.release(a, 3000);
  for (int i = 0; i < 3000; ++i) ASSERT_EQ(a[i], CachingAllocator::kPoison);
  void* b = s.allocate(3000, s.first);
  EXPECT_NE(a, b) << "a quarantined block was handed out";
  s.release(b, 3000);
  s.allocator.empty_cache();
  t_operator = "culprit";
  a = static_cast<unsigned char*>(s.allocate(5000, s.first));
  t_operator = nullptr;
  s.release(a, 5000);
  a[4000] = 0;
  s.allocator.empty_cache();
  const std::string text = test::message<Error>([&] { s.allocate(100, s.first); });
  EXPECT_NE(text.find("written after its release"), std::string::npos) << text;
  EXPECT_NE(text.find("5120 bytes made by culprit"), std::string::npos) << text;
  void* next = s.allocate(100, s.first);
  s.release(next, 100);
  for (int i = 0; i < 100; ++i) s.release(s.allocate(12 * kMB, s.first), 12 * kMB);
  EXPECT_LE(s.allocator.stats().reserved, CachingAllocator::kQuarantine + 40 * kMB) << "the quarantine has a bound";
}

TEST(CachingAllocator, direct_gives_every_block_its_own_memory_of_the_exact_size) {
  Setting s(1024 * kMB, Caching::direct);
  for (const int64_t bytes : {int64_t{1}, int64_t{3000}, 3 * kMB + 1}) {
    void* a = s.allocate(bytes, s.first);
    EXPECT_EQ(s.device.taken(), bytes);
    EXPECT_EQ(s.allocator.stats().allocated, bytes);
    s.allocator.record_stream(a, s.second);
    s.device.use(s.second, a, bytes, 1);
    s.release(a, bytes);
    EXPECT_EQ(s.device.taken(), 0);
    EXPECT_EQ(s.device.events_in_use(), 0);
  }
  EXPECT_THROW(s.allocate(2000 * kMB, s.first), OutOfMemory);
}

TEST(CachingAllocator, a_thread_hands_in_its_blocks_when_it_ends_and_when_the_cache_is_emptied) {
  Setting s;
  std::thread([&] { s.release(s.allocate(3000, s.first), 3000); }).join();
  EXPECT_EQ(s.allocator.stats().allocated, 0);
  s.allocator.empty_cache();
  EXPECT_EQ(s.device.taken(), 0);
  s.release(s.allocate(3000, s.first), 3000);
  std::thread([&] { s.allocator.empty_cache(); }).join();
  EXPECT_EQ(s.device.taken(), 2 * kMB);
  s.release(s.allocate(3 * kMB, s.first), 3 * kMB);  // any call of this thread's
  std::thread([&] { s.allocator.empty_cache(); }).join();
  EXPECT_EQ(s.device.taken(), 0);
}

TEST(CachingAllocator, more_streams_than_a_thread_keeps_bins_for_work_too) {
  Setting s;
  for (int round = 0; round < 3; ++round)
    for (int i = 0; i < 20; ++i) {
      const Stream stream = SimulatedDevice::stream(i);
      void* a = s.allocate(3000, stream);
      s.device.use(stream, a, 3000, 100 * round + i);
      s.release(a, 3000);
    }
  EXPECT_EQ(s.allocator.stats().live_blocks, 0);
  s.allocator.empty_cache();
  EXPECT_EQ(s.device.taken(), 0);
}

}  // namespace
}  // namespace lorry
