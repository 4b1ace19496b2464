// Leases of an allocator's blocks.

#include "lorry/memory/lease.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "lorry/memory/memory.h"
#include "tests/support/sanitizer.h"

namespace lorry::memory::test {
namespace {

TEST(Leases, hold_a_released_block_until_they_end) {
  for (const int64_t bytes : {int64_t{64}, int64_t{5000}, int64_t{3} << 20, int64_t{30} << 20}) {
    const Pool pool(kCPU);
    void* const block = allocate(kCPU, bytes);
    Leases leases;
    leases.add(kCPU, static_cast<char*>(block) + bytes / 2, pool);
    leases.add(kCPU, block, pool);  // the same block
    EXPECT_EQ(leases.size(), 1u);
    EXPECT_TRUE(leases.intact());
    release(kCPU, block, bytes);
    EXPECT_FALSE(leases.intact());
    EXPECT_NE(leases.released().find("made by the caller"), std::string::npos) << leases.released();
    void* const other = allocate(kCPU, bytes);
    EXPECT_NE(other, block);
    const int64_t waiting = stats(kCPU).waiting;
    EXPECT_GE(waiting, bytes);
    leases.clear();
    EXPECT_LE(stats(kCPU).waiting, waiting - bytes);
    release(kCPU, other, bytes);
  }
}

TEST(Leases, that_ended_before_the_release_change_nothing) {
  const Pool pool(kCPU);
  const int64_t waiting = stats(kCPU).waiting;
  void* const block = allocate(kCPU, 640);
  {
    Leases leases;
    leases.add(kCPU, block, pool);
  }
  release(kCPU, block, 640);
  EXPECT_EQ(stats(kCPU).waiting, waiting);
  void* const next = allocate(kCPU, 640);
  EXPECT_TRUE(next == block || lorry::test::kAddressSanitizer);
  release(kCPU, next, 640);
}

TEST(Leases, move_all_at_once) {
  const Pool pool(kCPU);
  void *const a = allocate(kCPU, 640), *const b = allocate(kCPU, 640), *const c = allocate(kCPU, 640);
  Leases leases;
  leases.add(kCPU, a, pool), leases.add(kCPU, static_cast<char*>(a) + 64, pool), leases.add(kCPU, b, pool);
  leases.move(kCPU, std::vector<device::Move>{{a, 640, b}, {b, 640, a}}, pool);
  EXPECT_EQ(leases.size(), 2u);
  leases.move(kCPU, std::vector<device::Move>{{a, 640, c}, {b, 640, a}, {a, 640, b}}, pool);  // b is used no more
  EXPECT_EQ(leases.size(), 2u);
  release(kCPU, b, 640);
  EXPECT_TRUE(leases.intact());
  release(kCPU, c, 640);
  EXPECT_FALSE(leases.intact());
  leases.clear();
  release(kCPU, a, 640);
}

TEST(Leases, of_two_graphs_both_hold) {
  const Pool pool(kCPU);
  void* const block = allocate(kCPU, 640);
  Leases first, second;
  first.add(kCPU, block, pool), second.add(kCPU, block, pool);
  release(kCPU, block, 640);
  EXPECT_FALSE(first.intact() || second.intact());
  first.clear();
  void* const other = allocate(kCPU, 640);
  EXPECT_NE(other, block);
  second.clear();
  release(kCPU, other, 640);
}

TEST(Leases, ignore_their_own_pool_and_foreign_memory) {
  const Pool pool(kCPU);
  int mine = 0;
  Leases leases;
  leases.add(kCPU, &mine, pool);
  leases.add(kCPU, nullptr, pool);
  {
    const PoolScope scope(pool);
    void* const block = allocate(kCPU, 640);
    leases.add(kCPU, block, pool);
    release(kCPU, block, 640);
  }
  EXPECT_EQ(leases.size(), 0u);
  EXPECT_TRUE(leases.intact());
}

TEST(Leases, end_while_other_threads_release) {
  const Pool pool(kCPU);
  for (int round = 0; round < 200; ++round) {
    std::vector<void*> blocks;
    Leases leases;
    for (int i = 0; i < 20; ++i) {
      blocks.push_back(allocate(kCPU, 640));
      leases.add(kCPU, blocks.back(), pool);
    }
    std::thread other([&] {
      for (void* block : blocks) release(kCPU, block, 640);
    });
    leases.clear();
    other.join();
  }
  EXPECT_EQ(stats(kCPU).waiting, 0);
}

TEST(Pools, of_the_cpu_keep_their_memory_to_themselves) {
  const Pool pool(kCPU);
  void* own = nullptr;
  {
    const PoolScope scope(pool);
    own = allocate(kCPU, 640);
    release(kCPU, own, 640);
    void* const next = allocate(kCPU, 640);
    EXPECT_TRUE(next == own || lorry::test::kAddressSanitizer);
    release(kCPU, next, 640);
  }
  void* const other = allocate(kCPU, 640);
  EXPECT_NE(other, own);
  release(kCPU, other, 640);
}

}  // namespace
}  // namespace lorry::memory::test
