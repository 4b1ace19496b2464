// Kernels that are launched with attributes: they run as asked, and observers are told.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "lorry/device/cuda/launch.h"
#include "tests/support/on_cuda.h"

namespace lorry {
namespace {

using test::Copied;
using test::kGPU;

/// Writes long after the kernel behind it may have started.
__global__ void write_late(int32_t* out, int32_t value) {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  for (int i = 0; i < 200; ++i) __nanosleep(1000);
  out[threadIdx.x] = value;
}

__global__ void add_after(int32_t* out, const int32_t* x) {
  lorry::cuda::begin_programmatic();
  out[threadIdx.x] = x[threadIdx.x] + 1;
}

/// Each block writes its rank in its cluster.
__global__ void write_rank(int32_t* out) {
  lorry::cuda::begin_programmatic();
  uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int32_t>(rank);
}

struct Last final : device::LaunchObserver {
  void launched(const device::Launch& launch) noexcept override {
    programmatic = launch.programmatic;
    cluster = {launch.cluster[0], launch.cluster[1], launch.cluster[2]};
    addresses = static_cast<int>(launch.addresses.size());
  }
  bool programmatic = false;
  std::vector<uint32_t> cluster;
  int addresses = 0;
};

bool has_launch_attributes() {
  return device::available(DeviceType::cuda) && lorry::cuda::properties(0).compute_capability >= 90;
}

#define LORRY_SKIP_WITHOUT_ATTRIBUTES() \
  LORRY_SKIP_WITHOUT_CUDA();            \
  if (!has_launch_attributes()) GTEST_SKIP() << "the GPU is older than Hopper"

TEST(LaunchAttributes, a_programmatic_launch_waits_where_its_kernel_does) {
  LORRY_SKIP_WITHOUT_ATTRIBUTES();
  constexpr unsigned kCount = 64;
  const Stream stream = current_stream(kGPU);
  Last last;
  for (int32_t round = 0; round < 20; ++round) {
    const Copied<int32_t> x(kGPU, std::vector<int32_t>(kCount, -1)), y(kGPU, std::vector<int32_t>(kCount, -1));
    lorry::cuda::launch(stream, {.grid = 1, .block = kCount, .programmatic = false}, write_late, x.data(), round);
    {
      const device::ObserveLaunches observe(last);
      lorry::cuda::launch(stream, {.grid = 1, .block = kCount}, add_after, y.data(), x.data());
    }
    EXPECT_EQ(y.read(), std::vector<int32_t>(kCount, round + 1));
  }
  EXPECT_TRUE(last.programmatic);
  EXPECT_EQ(last.addresses, 2);
}

TEST(LaunchAttributes, blocks_are_launched_in_clusters) {
  LORRY_SKIP_WITHOUT_ATTRIBUTES();
  const Copied<int32_t> ranks(kGPU, std::vector<int32_t>(8, -1));
  Last last;
  {
    const device::ObserveLaunches observe(last);
    lorry::cuda::launch(current_stream(kGPU), {.grid = 8, .block = 32, .cluster = {4, 1, 1}, .programmatic = false},
                        write_rank, ranks.data());
  }
  EXPECT_EQ(ranks.read(), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_FALSE(last.programmatic);
  EXPECT_EQ(last.cluster, (std::vector<uint32_t>{4, 1, 1}));
}

}  // namespace
}  // namespace lorry
