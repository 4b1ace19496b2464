#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "lorry/base/modes.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/process_memory.h"
#include "tests/memory/units.h"
#if defined(__has_feature)
#define LORRY_CLANG_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define LORRY_CLANG_THREAD_SANITIZER 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lorry {
namespace {

TEST(Allocator, blocks_are_aligned_and_nothing_is_null) {
  EXPECT_EQ(memory::allocate(kCPU, 0), nullptr);
  for (const int64_t bytes : {1, 63, 64, 65, 1000, 4096, 100'000, 5'000'000}) {
    void* block = memory::allocate(kCPU, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u);
    std::memset(block, 0xab, static_cast<size_t>(bytes));
    memory::release(kCPU, block, bytes);
  }
}

#if defined(__SANITIZE_ADDRESS__)
TEST(Allocator, the_byte_after_a_request_is_closed_to_address_sanitizer) {
  for (const int64_t bytes : {1, 20, 63, 64, 65, 1000, 1025, 4099, 100'000, 5'000'000}) {
    char* block = static_cast<char*>(memory::allocate(kCPU, bytes));
    EXPECT_FALSE(__asan_address_is_poisoned(block + bytes - 1)) << bytes;
    EXPECT_TRUE(__asan_address_is_poisoned(block + bytes)) << bytes;
    memory::release(kCPU, block, bytes);
  }
}
#endif

TEST(Allocator, a_steady_state_asks_the_system_for_nothing) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "blocks are not kept under AddressSanitizer";
#endif
  const auto round = [] {
    void* blocks[8];
    for (int i = 0; i < 8; ++i) blocks[i] = memory::allocate(kCPU, 1000 << i);
    for (int i = 0; i < 8; ++i) memory::release(kCPU, blocks[i], 1000 << i);
  };
  round();
  const int64_t requests = memory::stats(kCPU).system_requests;
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(memory::stats(kCPU).system_requests, requests);
}

// Lines 256 MB apart remove each other from the first-level caches of AMD's processors (memory/cpu_allocator.cpp).
TEST(Allocator, large_blocks_do_not_begin_multiples_of_256_mb_apart) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the system's allocator places blocks under AddressSanitizer";
#endif
  constexpr int64_t kApart = 256 << 20;
  std::vector<std::pair<uintptr_t, int64_t>> blocks;
  const auto take = [&](int64_t bytes) {
    blocks.emplace_back(reinterpret_cast<uintptr_t>(memory::allocate(kCPU, bytes)), bytes);
    for (size_t k = 0; k + 1 < blocks.size(); ++k)
      EXPECT_NE((blocks.back().first - blocks[k].first) % kApart, 0u)
          << k << " of " << blocks[k].second << ", " << blocks.size() - 1 << " of " << bytes;
  };
  const auto give_back_from = [&](size_t first) {
    for (; blocks.size() > first; blocks.pop_back())
      memory::release(kCPU, reinterpret_cast<void*>(blocks.back().first), blocks.back().second);
    memory::empty_cache(kCPU);
  };
  memory::empty_cache(kCPU);
  for (const int64_t bytes : {int64_t{16} << 20, int64_t{128} << 20, kApart}) {
    for (int64_t i = 0; i <= kApart / bytes; ++i)
      take(bytes);  // without gaps, the last would lie 256 MB from the first
    give_back_from(0);
  }
  // Four blocks of 30 MB and four of 34 take 256 MB. What is given back makes room for others: few are in use at once.
  for (int round = 0; round < 400; ++round) {
    take((round % 2 == 0 ? int64_t{30} : int64_t{34}) << 20);
    if (round % 16 == 15) give_back_from(3);
  }
  for (int i = 0; i < 60; ++i) take(int64_t{18} << 20);
  give_back_from(0);
}

TEST(Allocator, statistics_follow_allocations) {
  const memory::Stats before = memory::stats(kCPU);
  memory::reset_peak(kCPU);
  void* block = memory::allocate(kCPU, 3 << 20);
  const memory::Stats during = memory::stats(kCPU);
  EXPECT_GE(during.allocated, before.allocated + (3 << 20));
  EXPECT_GE(during.peak_allocated, during.allocated);
  EXPECT_EQ(during.live_blocks, before.live_blocks + 1);
  EXPECT_GE(during.reserved, during.allocated);
  memory::release(kCPU, block, 3 << 20);
  EXPECT_EQ(memory::stats(kCPU).allocated, before.allocated);
  EXPECT_GE(memory::stats(kCPU).peak_allocated, during.allocated);
}

TEST(Allocator, out_of_memory_names_the_operator_the_request_and_the_largest_blocks_and_the_next_call_works) {
  t_operator = "hoarder";
  void* held = memory::allocate(kCPU, 2 << 20);
  memory::release(kCPU, memory::allocate(kCPU, 3 << 20), 3 << 20);  // kept for reuse
  t_operator = "matmul";
  try {
    memory::allocate(kCPU, int64_t{1} << 50);
    ADD_FAILURE() << "a petabyte was allocated";
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("matmul: out of memory"), std::string::npos) << text;
    EXPECT_NE(text.find("1125899906842624"), std::string::npos) << text;
    EXPECT_NE(text.find("by hoarder"), std::string::npos) << text;
    const memory::Stats s = memory::stats(kCPU);
    EXPECT_NE(text.find(fmt::format("free {} (largest free block ", s.reserved - s.allocated)), std::string::npos)
        << text;
  }
  t_operator = nullptr;
  void* block = memory::allocate(kCPU, 100);
  EXPECT_NE(block, nullptr);
  memory::release(kCPU, block, 100);
  memory::release(kCPU, held, 2 << 20);
}

TEST(Allocator, a_limit_frees_the_cache_before_it_refuses) {
  memory::empty_cache(kCPU);
  const int64_t reserved = memory::stats(kCPU).reserved;
  memory::set_limit(kCPU, reserved + (8 << 20));
  void* a = memory::allocate(kCPU, 6 << 20);
  EXPECT_THROW(memory::allocate(kCPU, 6 << 20), OutOfMemory);
  memory::release(kCPU, a, 6 << 20);
  void* b = memory::allocate(kCPU, 5 << 20);  // fits only because the first block is given back
  EXPECT_NE(b, nullptr);
  memory::release(kCPU, b, 5 << 20);
  memory::set_limit(kCPU, 0);
}

TEST(Allocator, blocks_may_be_released_on_another_thread_and_threads_may_end) {
  const int64_t live = memory::stats(kCPU).live_blocks;
  std::vector<std::pair<void*, int64_t>> blocks;
  for (int64_t i = 1; i < 500; ++i) blocks.emplace_back(memory::allocate(kCPU, i * 37), i * 37);
  std::thread([&] {
    for (auto [data, bytes] : blocks) memory::release(kCPU, data, bytes);
  }).join();
  EXPECT_EQ(memory::stats(kCPU).live_blocks, live);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      for (int64_t i = 0; i < 2000; ++i) {
        const int64_t bytes = 1 + (i * 7919) % 200'000;
        void* p = memory::allocate(kCPU, bytes);
        std::memset(p, 1, static_cast<size_t>(std::min<int64_t>(bytes, 64)));
        memory::release(kCPU, p, bytes);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(memory::stats(kCPU).live_blocks, live);
}

/// A bound for a scope.
class Bound {
 public:
  explicit Bound(int64_t bytes) : before_(memory::set_cache_bound(kCPU, bytes)) {}
  ~Bound() { memory::set_cache_bound(kCPU, before_); }

 private:
  int64_t before_;
};

TEST(Allocator, training_steps_of_changing_batch_sizes_reserve_no_more_than_is_live_and_the_bound) {
  constexpr int64_t kCached = 64 * kMB;
  memory::empty_cache(kCPU);
  const Bound bound(kCached);
  std::mt19937 random(5);
  std::vector<std::pair<void*, int64_t>> parameters, activations;
  const auto make = [](auto& list, int64_t bytes) { list.emplace_back(memory::allocate(kCPU, bytes), bytes); };
  const auto let_go = [](auto& list) {
    for (; !list.empty(); list.pop_back()) memory::release(kCPU, list.back().first, list.back().second);
  };
  for (int i = 0; i < 16; ++i) make(parameters, 10 * kMB);
  for (int step = 0; step < 100; ++step) {
    const int64_t rows = 1 + static_cast<int64_t>(random() % 512);
    for (int layer = 0; layer < 12; ++layer)
      for (const int64_t width : {256, 768, 1024, 3072}) {
        make(activations, rows * width * 4);
        const memory::Stats stats = memory::stats(kCPU);
        ASSERT_LE(stats.reserved, stats.allocated + kCached + (64 << 10)) << "step " << step;
      }
    let_go(activations);
    const memory::Stats stats = memory::stats(kCPU);
    ASSERT_LE(stats.reserved, stats.allocated + kCached + (64 << 10)) << "step " << step;
  }
  let_go(parameters);
}

TEST(Allocator, contents_survive_whatever_else_goes_back_to_the_system_on_any_thread) {
  const Bound bound(4 * kMB);  // so that pages go back all the time
  const int64_t live = memory::stats(kCPU).live_blocks;
  struct Held {
    unsigned char* data;
    int64_t bytes;
    unsigned char value;
    bool intact() const {
      for (const int64_t at : {int64_t{0}, bytes / 3, bytes / 2, bytes - 1})
        if (data[at] != value) return false;
      return true;
    }
  };
  std::mutex mutex;
  std::vector<Held> shared;  // released by whichever thread finds them
  std::atomic<int> broken{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 3000; ++i) {
        const auto bytes =
            static_cast<int64_t>(std::exp2(static_cast<double>(random() % 2300) / 100));  // 1 byte to 8 MB
        Held made{static_cast<unsigned char*>(memory::allocate(kCPU, bytes)), bytes,
                  static_cast<unsigned char>(1 + random() % 255)};
        for (const int64_t at : {int64_t{0}, bytes / 3, bytes / 2, bytes - 1}) made.data[at] = made.value;
        Held old{};
        {
          const std::scoped_lock lock(mutex);
          shared.push_back(made);
          if (shared.size() > 60) {
            std::swap(shared[random() % shared.size()], shared.back());
            old = shared.back();
            shared.pop_back();
          }
        }
        if (old.data == nullptr) continue;
        broken += !old.intact();
        memory::release(kCPU, old.data, old.bytes);
      }
    });
  for (auto& t : threads) t.join();
  for (const Held& h : shared) {
    broken += !h.intact();
    memory::release(kCPU, h.data, h.bytes);
  }
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(memory::stats(kCPU).live_blocks, live);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !LORRY_CLANG_THREAD_SANITIZER
/// Ends the process with status 0 when `body` returns true although it may use only `room` bytes of address space more
/// than now.
template <class Body>
[[noreturn]] void end_within(int64_t room, const Body& body) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + room);
  setrlimit(RLIMIT_AS, &limit);
  std::exit(body() ? 0 : 1);
}

TEST(Allocator, a_process_short_of_address_space_gets_out_of_memory_and_goes_on) {
  const auto body = [] {
    for (int i = 0; i < 3; ++i) {
      try {
        memory::allocate(kCPU, 140 * kMB);
        return false;
      } catch (const OutOfMemory&) {
      }
      void* data = memory::allocate(kCPU, 60 * kMB);  // fits only when what was cached goes back
      std::memset(data, 1, 60 * kMB);
      memory::release(kCPU, data, 60 * kMB);
      std::vector<void*> pieces;
      try {
        for (;;) pieces.push_back(memory::allocate(kCPU, 5 * kMB));
      } catch (const OutOfMemory&) {
      }
      for (void* piece : pieces) memory::release(kCPU, piece, 5 * kMB);
      if (pieces.size() < 12) return false;
    }
    return true;
  };
  EXPECT_EXIT(end_within(100 * kMB, body), testing::ExitedWithCode(0), "");
}
#endif

TEST(Allocator, more_than_the_machine_has_is_out_of_memory_before_anything_is_touched) {
  const int64_t limit = memory::process_memory_limit();
  EXPECT_THROW(memory::allocate(kCPU, limit), OutOfMemory);  // the program itself holds some of it
  std::vector<void*> pieces;
  EXPECT_THROW(
      {
        for (;;) pieces.push_back(memory::allocate(kCPU, limit / 10));
      },
      OutOfMemory);
  EXPECT_LT(pieces.size(), 11u) << "memory that nobody has touched yet counts too";
  for (void* piece : pieces) memory::release(kCPU, piece, limit / 10);
  memory::empty_cache(kCPU);
}

}  // namespace
}  // namespace lorry
