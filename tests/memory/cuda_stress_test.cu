// Streams, events and caches under load on a GPU. Every tenancy of a block fills it with poison when it gets it and
// with a pattern of its own a while later, and readers on any stream compare after a delay. Memory that is handed out
// too early, or read before it is written, shows as a foreign pattern. The same traces with one fence left out must be
// caught: a test that sees nothing then would prove nothing.
//
// LORRY_TEST_SCALE multiplies the length of every trace.

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "lorry/device/cuda/launch.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/memory.h"
#include "lorry/memory/upload.h"
#include "tests/support/on_cuda.h"
#include "tests/support/scale.h"

namespace lorry {
namespace {

using test::kGPU;

constexpr uint32_t kPoison = 0xdeadbeef;

__global__ void spin(int64_t cycles) {
  lorry::cuda::begin_programmatic();
  const int64_t start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void fill(uint32_t* words, int64_t count, uint32_t value) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    words[i] = value;
}

__global__ void compare(const uint32_t* words, int64_t count, uint32_t value, unsigned long long* wrong) {
  lorry::cuda::begin_programmatic();
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    if (words[i] != value) atomicAdd(wrong, 1ull);
}

/// What a trace leaves out.
enum class Missing { nothing, record_stream, event, record_pinned };

struct Block {
  void* data;
  int64_t bytes;
  uint32_t tenancy;
  Stream home;

  int64_t words() const { return bytes / 4; }
};

/// Enqueues work on blocks, and counts what readers found wrong.
class Work {
 public:
  explicit Work(Missing missing)
      : missing_(missing), wrong_(static_cast<unsigned long long*>(memory::allocate(kGPU, 8))), event_(kGPU) {
    cuda::fill_bytes(current_stream(kGPU), wrong_, 0, 8);
    current_stream(kGPU).synchronize();
  }
  ~Work() { memory::release(kGPU, wrong_, 8); }
  Work(const Work&) = delete;

  static void delay(Stream stream, int64_t microseconds) { cuda::launch(stream, {1, 1}, spin, 1'700 * microseconds); }

  /// A new tenancy, on the current stream.
  Block take(int64_t bytes, uint32_t tenancy, int64_t microseconds) const {
    const Stream home = current_stream(kGPU);
    const Block b{memory::allocate(kGPU, bytes), bytes, tenancy, home};
    cuda::launch(home, {8, 256}, fill, static_cast<uint32_t*>(b.data), b.words(), kPoison);
    if (microseconds > 0) delay(home, microseconds);
    cuda::launch(home, {8, 256}, fill, static_cast<uint32_t*>(b.data), b.words(), tenancy);
    return b;
  }
  /// From pinned memory that the host gives back and takes again at once.
  Block take_from_host(int64_t bytes, uint32_t tenancy, int64_t microseconds) const {
    const Stream home = current_stream(kGPU);
    const Block b{memory::allocate(kGPU, bytes), bytes, tenancy, home};
    if (microseconds > 0) delay(home, microseconds);
    const auto fill_host = [&](void* host, uint32_t value) {
      std::fill_n(static_cast<uint32_t*>(host), b.words(), value);
    };
    if (missing_ == Missing::record_pinned) {
      void* const host = memory::allocate_pinned(bytes);
      fill_host(host, tenancy);
      device::copy(b.data, kGPU, host, kCPU, bytes, home);
      memory::release_pinned(host, bytes);
      void* const next = memory::allocate_pinned(bytes);
      fill_host(next, kPoison);
      memory::release_pinned(next, bytes);
    } else {
      std::vector<uint32_t> host(static_cast<size_t>(b.words()), tenancy);
      memory::upload(b.data, kGPU, host.data(), bytes, home);
      fill_host(host.data(), kPoison);
    }
    return b;
  }
  /// Reads on any stream, after a delay.
  void read(const Block& b, Stream stream, int64_t microseconds) const {
    if (!(stream == b.home)) {
      if (missing_ != Missing::event) {
        event_.record(b.home);
        event_.block(stream);
      }
      if (missing_ != Missing::record_stream) memory::record_stream(kGPU, b.data, stream);
    }
    if (microseconds > 0) delay(stream, microseconds);
    cuda::launch(stream, {8, 256}, compare, static_cast<const uint32_t*>(b.data), b.words(), b.tenancy, wrong_);
  }
  /// The result is a tenancy of its own, on the current stream.
  Block copy(const Block& from) const {
    const Block to = take(from.bytes, from.tenancy, 0);
    cuda::launch(to.home, {8, 256}, fill, static_cast<uint32_t*>(to.data), to.words(), kPoison);
    if (!(to.home == from.home)) {
      if (missing_ != Missing::event) {
        event_.record(from.home);
        event_.block(to.home);
      }
      if (missing_ != Missing::record_stream) memory::record_stream(kGPU, from.data, to.home);
    }
    device::copy(to.data, kGPU, from.data, kGPU, from.bytes, to.home);
    return to;
  }
  static void give(const Block& b) { memory::release(kGPU, b.data, b.bytes); }

  int64_t wrong() const {
    device::synchronize(kGPU);
    unsigned long long count = 0;
    device::copy(&count, kCPU, wrong_, kGPU, 8, current_stream(kGPU));
    current_stream(kGPU).synchronize();
    return static_cast<int64_t>(count);
  }

 private:
  const Missing missing_;
  unsigned long long* const wrong_;
  const Event event_;
};

/// A random trace over the streams; a number above 0 says that some reader saw what it should not.
int64_t run(uint32_t seed, int64_t steps, const std::vector<Stream>& streams, Missing missing) {
  const Work work(missing);
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto any = [&] { return streams[static_cast<size_t>(below(static_cast<int64_t>(streams.size())))]; };
  const auto pause = [&] { return below(4) == 0 ? 20 + below(200) : 0; };
  std::vector<Block> held;
  uint32_t tenancies = seed << 20;
  for (int64_t step = 0; step < steps; ++step) {
    const StreamScope scope(any());
    const int64_t kind = below(100);
    if (held.size() < 60 && kind < 45) {
      const int64_t large = below(20), bytes = 4 * (1 + below(large == 0 ? 2 << 20 : large < 5 ? 300'000 : 5'000));
      held.push_back(below(4) == 0 ? work.take_from_host(std::min<int64_t>(bytes, 1 << 20), ++tenancies, pause())
                                   : work.take(bytes, ++tenancies, pause()));
    } else if (!held.empty()) {
      const auto at = static_cast<size_t>(below(static_cast<int64_t>(held.size())));
      if (kind < 60) {
        held.push_back(work.copy(held[at]));
      } else {
        const int64_t readers = below(3);
        for (int64_t r = 0; r < readers; ++r) work.read(held[at], any(), pause());
        work.read(held[at], held[at].home, 0);
        Work::give(held[at]);
        held[at] = held.back();
        held.pop_back();
      }
    }
    if (below(2'000) == 0) memory::empty_cache(kGPU);
    if (below(500) == 0) any().synchronize();
  }
  for (const Block& b : held) {
    work.read(b, any(), pause());
    Work::give(b);
  }
  return work.wrong();
}

class CudaStress : public testing::Test {
 protected:
  void SetUp() override {
    LORRY_SKIP_WITHOUT_CUDA();
    for (int i = 0; i < 11; ++i) owned_.emplace_back(kGPU, -(i % 2));
    streams_ = {current_stream(kGPU)};
    for (const OwnedStream& stream : owned_) streams_.push_back(stream);
  }
  std::vector<OwnedStream> owned_;
  std::vector<Stream> streams_;
};

TEST_F(CudaStress, twelve_streams_never_see_each_others_memory) {
  for (uint32_t seed = 1; seed <= 3; ++seed)
    EXPECT_EQ(run(seed, test::scaled(4'000), streams_, Missing::nothing), 0) << "seed " << seed;
}

TEST_F(CudaStress, threads_that_share_streams_never_see_each_others_memory) {
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      EXPECT_EQ(run(100 + t, test::scaled(1'000), {streams_[t], streams_[t + 1], streams_[8]}, Missing::nothing), 0)
          << "thread " << t;
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CudaStress, a_fence_left_out_is_caught) {
  if (const char* mode = std::getenv("LORRY_CUDA_MEMORY"); mode != nullptr)
    GTEST_SKIP() << "memory is not reused at once with LORRY_CUDA_MEMORY=" << mode;
  const auto caught = [&](Missing missing) {
    for (uint32_t seed = 1; seed <= 5; ++seed)
      if (run(seed, 2'000, streams_, missing) > 0) return true;
    return false;
  };
  EXPECT_TRUE(caught(Missing::record_stream))
      << "a block that another stream still reads was handed out, and no reader noticed";
  EXPECT_TRUE(caught(Missing::event)) << "a block was read before it was written, and no reader noticed";
  EXPECT_TRUE(caught(Missing::record_pinned))
      << "pinned memory was written while a copy still read it, and no reader noticed";
}

}  // namespace
}  // namespace lorry
