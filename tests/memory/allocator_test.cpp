#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "lorry/base/modes.h"
#include "lorry/memory/cpu_allocator.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace lorry {
namespace {

using memory::CpuAllocator;

TEST(Allocator, size_classes_hold_their_requests_and_waste_at_most_a_fifth) {
  int before = -1;
  for (int64_t bytes = 1; bytes < (int64_t{1} << 40); bytes += 1 + bytes / 97) {
    const int c = CpuAllocator::class_of(bytes);
    ASSERT_GE(c, before);
    ASSERT_LT(c, CpuAllocator::kClasses);
    ASSERT_GE(CpuAllocator::bytes_of(c), bytes);
    ASSERT_EQ(CpuAllocator::class_of(CpuAllocator::bytes_of(c)), c);
    if (bytes > 1024) {
      ASSERT_LE(static_cast<double>(CpuAllocator::bytes_of(c) - bytes), 0.2 * static_cast<double>(CpuAllocator::bytes_of(c)));
    }
    before = c;
  }
}

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
    EXPECT_NE(text.find(fmt::format("free {} (largest free block ", s.reserved - s.allocated)), std::string::npos) << text;
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

}  // namespace
}  // namespace lorry
