// The CUDA allocator on a GPU. Work is made of copies: a long one within the device delays what follows it on its
// stream, short ones from and to page-locked memory write and read patterns, so that memory handed out too early shows
// as a foreign pattern.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "lorry/device/device.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/memory.h"
#include "tests/memory/units.h"
#include "tests/support/message.h"

namespace lorry {
namespace {

constexpr Device kCuda{DeviceType::cuda, 0};

class CudaAllocator : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::available(DeviceType::cuda)) GTEST_SKIP() << device::why_absent(DeviceType::cuda);
  }
};

/// Keeps a stream busy: about 0.13 ms a round at 4 TB/s.
class Delay {
 public:
  Delay() : data_(memory::allocate(kCuda, 2 * kBytes)) { device::synchronize(kCuda); }
  ~Delay() {
    device::synchronize(kCuda);
    memory::release(kCuda, data_, 2 * kBytes);
  }
  void on(Stream stream, int rounds) const {
    for (int i = 0; i < rounds; ++i)
      device::copy(data_, kCuda, static_cast<char*>(data_) + kBytes, kCuda, kBytes, stream);
  }

 private:
  static constexpr int64_t kBytes = 256 * kMB;
  void* data_;
};

/// Patterns of 8 bytes at the head and the tail of blocks.
class Patterns {
 public:
  static constexpr int64_t kWords = 256;

  void write(void* data, int64_t bytes, uint64_t value, Stream stream) {
    const int64_t n = span(bytes);
    auto* host = static_cast<uint64_t*>(memory::allocate_pinned(n));
    std::fill_n(host, n / 8, value);
    device::copy(data, kCuda, host, kCPU, n, stream);
    device::copy(static_cast<char*>(data) + bytes - n, kCuda, host, kCPU, n, stream);
    memory::record_pinned(host, stream);
    memory::release_pinned(host, n);
  }
  /// Reads now, on the stream; verify() looks at what came.
  void read(const void* data, int64_t bytes, uint64_t value, Stream stream) {
    const int64_t n = span(bytes);
    auto* host = static_cast<uint64_t*>(memory::allocate_pinned(2 * n));
    device::copy(host, kCPU, data, kCuda, n, stream);
    device::copy(host + n / 8, kCPU, static_cast<const char*>(data) + bytes - n, kCuda, n, stream);
    pending_.push_back({host, 2 * n, value});
  }
  void verify() {
    device::synchronize(kCuda);
    for (const auto& [host, bytes, value] : pending_) {
      int64_t wrong = 0;
      for (int64_t i = 0; i < bytes / 8; ++i) wrong += host[i] != value;
      EXPECT_EQ(wrong, 0) << "of " << bytes / 8 << " words of tenancy " << value << "; the first is " << host[0];
      memory::release_pinned(host, bytes);
    }
    pending_.clear();
  }
  size_t pending() const { return pending_.size(); }

 private:
  static int64_t span(int64_t bytes) { return std::min(bytes, kWords * 8); }
  struct Read {
    uint64_t* host;
    int64_t bytes;
    uint64_t value;
  };
  std::vector<Read> pending_;
};

TEST_F(CudaAllocator, blocks_are_aligned_and_a_device_that_does_not_exist_is_named) {
  for (const int64_t bytes : {int64_t{1}, int64_t{1000}, kMB, 3 * kMB, 40 * kMB}) {
    void* a = memory::allocate(kCuda, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
    memory::release(kCuda, a, bytes);
  }
  EXPECT_EQ(memory::allocate(kCuda, 0), nullptr);
  for (const int8_t index : {int8_t{-1}, static_cast<int8_t>(device::count(DeviceType::cuda)), int8_t{127}}) {
    const std::string text = test::message<DeviceError>([&] { memory::allocate({DeviceType::cuda, index}, 100); });
    EXPECT_NE(text.find("allocate: no device cuda:"), std::string::npos) << text;
  }
}

TEST_F(CudaAllocator, the_device_holds_more_than_the_allocator_counts) {
  void* a = memory::allocate(kCuda, 64 * kMB);
  const memory::Stats stats = memory::stats(kCuda);
  EXPECT_GE(stats.reserved, stats.allocated);
  EXPECT_GT(memory::device_use(kCuda), stats.reserved) << "the context itself takes memory";
  memory::release(kCuda, a, 64 * kMB);
  memory::empty_cache(kCuda);
}

TEST_F(CudaAllocator, what_another_stream_still_reads_is_not_handed_out) {
  const Delay delay;
  Patterns patterns;
  const OwnedStream other(kCuda);
  const Stream home = current_stream(kCuda);
  const Event written(kCuda);
  for (const int64_t bytes : {int64_t{4096}, 3 * kMB}) {
    for (uint64_t round = 1; round <= 20; ++round) {
      void* a = memory::allocate(kCuda, bytes);
      patterns.write(a, bytes, round, home);
      written.record(home);
      written.block(other);
      delay.on(other, 4);
      patterns.read(a, bytes, round, other);
      memory::record_stream(kCuda, a, other);
      memory::release(kCuda, a, bytes);
      void* b = memory::allocate(kCuda, bytes);
      EXPECT_NE(a, b);
      patterns.write(b, bytes, 1000 + round, home);
      memory::release(kCuda, b, bytes);
    }
    patterns.verify();
  }
}

TEST_F(CudaAllocator, random_traces_on_several_streams_keep_every_pattern) {
  const Delay delay;
  const OwnedStream owned[] = {OwnedStream(kCuda), OwnedStream(kCuda, -1), OwnedStream(kCuda)};
  const Stream streams[] = {current_stream(kCuda), owned[0], owned[1], owned[2]};
  struct Held {
    void* data;
    int64_t bytes;
    uint64_t tenancy;
    Stream home;
  };
  uint64_t tenancies = 0;
  for (uint32_t seed = 0; seed < 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    const Event event(kCuda);
    Patterns patterns;
    std::vector<Held> held;
    for (int i = 0; i < 6000; ++i) {
      const Stream stream = streams[below(4)];
      const StreamScope scope(stream);
      if (held.size() < 80 && below(100) < 55) {
        const int64_t kind = below(20);
        const int64_t bytes = 8 * (1 + below(kind == 0 ? 4 * kMB : kind < 4 ? kMB / 2 : kind < 10 ? 20'000 : 500));
        Held h{memory::allocate(kCuda, bytes), bytes, ++tenancies, stream};
        if (below(20) == 0) delay.on(stream, 1);
        patterns.write(h.data, bytes, h.tenancy, stream);
        held.push_back(h);
      } else if (!held.empty()) {
        const auto at = static_cast<size_t>(below(static_cast<int64_t>(held.size())));
        const Held h = held[at];
        if (below(3) == 0) {
          event.record(h.home);
          event.block(stream);
          memory::record_stream(kCuda, h.data, stream);
          if (below(4) == 0) delay.on(stream, 1);
          patterns.read(h.data, h.bytes, h.tenancy, stream);
        }
        patterns.read(h.data, h.bytes, h.tenancy, h.home);
        memory::release(kCuda, h.data, h.bytes);
        held[at] = held.back();
        held.pop_back();
      }
      if (below(1500) == 0) memory::empty_cache(kCuda);
      if (patterns.pending() > 500) patterns.verify();
    }
    for (const Held& h : held) memory::release(kCuda, h.data, h.bytes);
    patterns.verify();
  }
}

TEST_F(CudaAllocator, threads_share_streams_and_end) {
  const int64_t live = memory::stats(kCuda).live_blocks;
  const OwnedStream shared(kCuda);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&shared, t] {
      Patterns patterns;
      const StreamScope scope(t % 2 == 0 ? Stream(shared) : Stream{kCuda});
      const Stream stream = current_stream(kCuda);
      for (uint64_t i = 0; i < 500; ++i) {
        const int64_t bytes = 8 * static_cast<int64_t>(1 + (i * 7919 + t) % 200'000);
        void* a = memory::allocate(kCuda, bytes);
        patterns.write(a, bytes, 1000 * t + i, stream);
        patterns.read(a, bytes, 1000 * t + i, stream);
        memory::release(kCuda, a, bytes);
      }
      patterns.verify();
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(memory::stats(kCuda).live_blocks, live);
}

TEST_F(CudaAllocator, more_than_the_device_has_is_refused_and_the_next_call_works) {
  const std::string text = test::message<OutOfMemory>([] { memory::allocate(kCuda, int64_t{1} << 42); });
  const std::string wanted = test::as_on_the_cpu("allocate: out of memory on cuda:0; requested 4398046511104 bytes");
  EXPECT_NE(text.find(wanted), std::string::npos) << text;
  Patterns patterns;
  void* a = memory::allocate(kCuda, 4096);
  patterns.write(a, 4096, 7, current_stream(kCuda));
  patterns.read(a, 4096, 7, current_stream(kCuda));
  patterns.verify();
  memory::release(kCuda, a, 4096);
}

TEST_F(CudaAllocator, ten_thousand_times_out_of_memory_each_followed_by_a_call_that_works) {
  memory::empty_cache(kCuda);
  Patterns patterns;
  const Stream stream = current_stream(kCuda);
  memory::set_limit(kCuda, memory::stats(kCuda).reserved + 64 * kMB);
  for (uint64_t i = 0; i < 10'000 && !HasFailure(); ++i) {
    EXPECT_THROW(memory::allocate(kCuda, (65 + static_cast<int64_t>(i % 50)) * kMB), OutOfMemory);
    const int64_t bytes = i % 10 == 0 ? 30 * kMB : 4096;
    void* a = memory::allocate(kCuda, bytes);
    patterns.write(a, bytes, i, stream);
    patterns.read(a, bytes, i, stream);
    memory::release(kCuda, a, bytes);
    if (patterns.pending() == 500) patterns.verify();
  }
  memory::set_limit(kCuda, 0);
  patterns.verify();
}

TEST_F(CudaAllocator, a_private_pool_gives_its_memory_back_when_it_ends) {
  memory::empty_cache(kCuda);
  const int64_t before = memory::stats(kCuda).reserved;
  {
    const memory::Pool pool(kCuda);
    const memory::PoolScope scope(pool);
    memory::release(kCuda, memory::allocate(kCuda, 40 * kMB), 40 * kMB);
    memory::release(kCuda, memory::allocate(kCuda, 4000), 4000);
  }
  memory::empty_cache(kCuda);  // for poison, which delays the way back
  EXPECT_EQ(memory::stats(kCuda).reserved, before);
}

TEST_F(CudaAllocator, a_private_pool_has_pinned_memory_of_its_own) {
  constexpr int64_t kBytes = 64 << 10;
  const auto take_and_release = [] {
    void* const data = memory::allocate_pinned(kBytes);
    memory::release_pinned(data, kBytes);
    return data;
  };
  take_and_release();
  const memory::Pool first(kCuda), second(kCuda);
  const auto of = [&](const memory::Pool& pool) {
    const memory::PoolScope scope(pool);
    return take_and_release();
  };
  void *const a = of(first), *const b = of(second), *const c = take_and_release();
  EXPECT_NE(a, b);
  EXPECT_NE(a, c);
  EXPECT_NE(b, c);
  EXPECT_EQ(of(first), a);
  EXPECT_EQ(of(second), b);
}

TEST_F(CudaAllocator, pinned_memory_that_a_copy_still_uses_is_not_handed_out) {
  const Delay delay;
  const OwnedStream stream(kCuda);
  constexpr int64_t kBytes = 64 << 10;
  void* target = memory::allocate(kCuda, kBytes);
  device::synchronize(kCuda);
  void* a = memory::allocate_pinned(kBytes);
  std::memset(a, 1, kBytes);
  delay.on(stream, 40);
  device::copy(target, kCuda, a, kCPU, kBytes, stream);
  memory::record_pinned(a, stream);
  memory::release_pinned(a, kBytes);
  void* b = memory::allocate_pinned(kBytes);
  EXPECT_NE(a, b);
  std::memset(b, 2, kBytes);
  stream.synchronize();
  void* c = memory::allocate_pinned(2 * kMB);  // this thread's bins have none: asks which events have passed
  std::vector<void*> taken;
  do taken.push_back(memory::allocate_pinned(kBytes));
  while (taken.back() != a && taken.size() < 64);
  EXPECT_EQ(taken.back(), a) << "the block never came back";
  std::vector<unsigned char> got(static_cast<size_t>(kBytes));
  device::copy(got.data(), kCPU, target, kCuda, kBytes, stream);
  stream.synchronize();
  EXPECT_EQ(std::count(got.begin(), got.end(), 1), kBytes);
  memory::release_pinned(b, kBytes);
  memory::release_pinned(c, 2 * kMB);
  for (void* data : taken) memory::release_pinned(data, kBytes);
  memory::release(kCuda, target, kBytes);
}

TEST(PinnedMemory, works_where_there_is_no_gpu_too) {
  void* a = memory::allocate_pinned(1000);
  std::memset(a, 1, 1000);
  memory::record_pinned(a, current_stream(kCPU));
  memory::release_pinned(a, 1000);
  EXPECT_EQ(memory::allocate_pinned(0), nullptr);
  const memory::Pool pool(kCPU);
  const memory::PoolScope scope(pool);
  memory::release(kCPU, memory::allocate(kCPU, 1000), 1000);
}

}  // namespace
}  // namespace lorry
