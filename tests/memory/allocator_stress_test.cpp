// The caching allocator under random traces of several threads and streams.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "lorry/memory/caching_allocator.h"
#include "tests/memory/simulated_device.h"
#include "tests/memory/units.h"

namespace lorry {
namespace {

using memory::Caching;
using memory::CachingAllocator;
using memory::Stats;
using test::SimulatedDevice;

/// Threads (each with its streams) allocate, use, note, hand over and release at random, while the simulated device
/// lags.
class Stress {
 public:
  Stress(uint32_t seed, int64_t capacity, Caching caching, bool misaligned, const memory::Policy& policy)
      : seed_(seed), device_(capacity, misaligned), allocator_(device_.provider(), "simulated:0", caching, policy) {}

  void run(int threads, int rounds) {
    if (threads == 1) {
      Thread(*this, 0).run(rounds);
    } else {
      std::vector<std::thread> team;
      for (int t = 0; t < threads; ++t) team.emplace_back([this, t, rounds] { Thread(*this, t).run(rounds); });
      for (auto& t : team) t.join();
    }
    for (const Held& h : handed_over_) allocator_.release(h.data, h.bytes);
    const Stats stats = allocator_.stats();
    EXPECT_EQ(stats.allocated, 0);
    EXPECT_EQ(stats.live_blocks, 0);
    EXPECT_TRUE(allocator_.snapshot().empty());
    allocator_.empty_cache();
    EXPECT_EQ(allocator_.stats().reserved, 0);
    EXPECT_EQ(device_.taken(), 0);
    EXPECT_EQ(device_.events_in_use(), 0);
  }

 private:
  struct Held {
    void* data;
    int64_t bytes, tenancy;
    Stream home;
  };

  class Thread {
   public:
    Thread(Stress& all, int number) : all_(all), random_(all.seed_ * 97 + static_cast<uint32_t>(number)) {}

    void run(int rounds) {
      for (int i = 0; i < rounds && !testing::Test::HasFailure(); ++i) {
        const Stream stream = SimulatedDevice::stream(static_cast<int>(below(3)));  // streams are shared by the threads
        if (held_.size() < 60 && below(100) < 55) {
          if (!allocate(stream)) continue;
        } else if (!held_.empty()) {
          use_and_give_up_one(stream);
        }
        if (below(3) == 0) all_.device_.advance(stream, below(6));
        if (below(10) == 0) release_what_was_handed_over();
        if (below(500) == 0) all_.allocator_.empty_cache();
        if (below(700) == 0) {
          all_.allocator_.release_pool(pool_);
          pool_ = all_.allocator_.make_pool();
        }
        if (below(50) == 0) all_.allocator_.stats();
        if (below(200) == 0) all_.allocator_.snapshot();
      }
      for (const Held& h : held_) release(h);
      all_.allocator_.release_pool(pool_);
    }

   private:
    int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

    void release(const Held& h) {
      {
        const std::scoped_lock lock(all_.mutex_);
        all_.live_.erase(static_cast<const char*>(h.data));
      }
      all_.allocator_.release(h.data, h.bytes);
    }

    /// False where there was no memory: then all that this thread holds is released.
    bool allocate(const Stream& stream) {
      const int64_t kind = below(20);
      const int64_t bytes = 1 + below(kind == 0 ? 30 * kMB : kind < 4 ? 3 * kMB : kind < 10 ? 100'000 : 3000);
      Held h{nullptr, bytes, ++all_.tenancies_, stream};
      if (below(4) == 0) memory::detail::t_pool = {.device = {&all_.allocator_, pool_}};
      try {
        h.data = all_.allocator_.allocate(bytes, stream);
        memory::detail::t_pool = {};
      } catch (const OutOfMemory&) {
        memory::detail::t_pool = {};
        for (const Held& old : held_) release(old);
        held_.clear();
        return false;
      }
      const auto* low = static_cast<const char*>(h.data);
      {
        const std::scoped_lock lock(all_.mutex_);
        const auto next = all_.live_.lower_bound(low);
        EXPECT_TRUE(next == all_.live_.end() || next->first >= low + bytes) << "live blocks overlap";
        EXPECT_TRUE(next == all_.live_.begin() || std::prev(next)->second <= low) << "live blocks overlap";
        all_.live_[low] = low + bytes;
      }
      all_.device_.use(stream, h.data, bytes, h.tenancy);
      held_.push_back(h);
      return true;
    }

    void use_and_give_up_one(const Stream& stream) {
      const size_t at = static_cast<size_t>(below(static_cast<int64_t>(held_.size())));
      const Held h = held_[at];
      if (below(4) == 0) {
        all_.allocator_.record_stream(h.data, stream);
        all_.device_.join(stream, h.home);
        all_.device_.use(stream, h.data, h.bytes, h.tenancy);
      }
      held_[at] = held_.back();
      held_.pop_back();
      if (below(5) == 0) {
        const std::scoped_lock lock(all_.mutex_);
        all_.handed_over_.push_back(h);
      } else {
        release(h);
      }
    }

    void release_what_was_handed_over() {
      Held h{};
      {
        const std::scoped_lock lock(all_.mutex_);
        if (!all_.handed_over_.empty()) {
          h = all_.handed_over_.back();
          all_.handed_over_.pop_back();
        }
      }
      if (h.data != nullptr) release(h);
    }

    Stress& all_;
    std::mt19937 random_;
    std::vector<Held> held_;
    uint32_t pool_ = all_.allocator_.make_pool();
  };

  uint32_t seed_;
  SimulatedDevice device_;
  CachingAllocator allocator_;
  std::mutex mutex_;
  std::vector<Held> handed_over_;
  std::map<const char*, const char*> live_;  // the oracle against overlap of live blocks
  std::atomic<int64_t> tenancies_{0};
};

void stress(uint32_t seed, int threads, int rounds, int64_t capacity, Caching caching, bool misaligned,
            const memory::Policy& policy = {}) {
  SCOPED_TRACE(fmt::format("seed {}, {} threads, caching {}, misaligned {}", seed, threads, static_cast<int>(caching),
                           misaligned));
  Stress(seed, capacity, caching, misaligned, policy).run(threads, rounds);
}

TEST(CachingAllocator, random_traces_on_several_streams_never_share_memory_that_is_in_use) {
  for (uint32_t seed = 0; seed < 20 && !HasFailure(); ++seed) {
    stress(seed, 1, 4000, 2048 * kMB, Caching::on, seed % 4 == 3);
    stress(seed, 1, 4000, 150 * kMB, Caching::on, seed % 4 == 3);  // often short of memory
    stress(seed, 1, 4000, 400 * kMB, Caching::on, seed % 4 == 3, {.unit = 64, .bound = 10 * kMB});
  }
  stress(1, 1, 2000, 2048 * kMB, Caching::direct, false);
  stress(2, 1, 1000, 2048 * kMB, Caching::poison, false);
}

TEST(CachingAllocator, random_traces_of_several_threads_never_share_memory_that_is_in_use) {
  for (uint32_t seed = 0; seed < 5 && !HasFailure(); ++seed) {
    stress(seed, 4, 3000, 4096 * kMB, Caching::on, seed % 4 == 3);
    stress(seed, 4, 3000, 300 * kMB, Caching::on, seed % 4 == 3);
  }
}

}  // namespace
}  // namespace lorry
