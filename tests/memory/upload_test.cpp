// Copies from host memory that changes as soon as the call returns.

#include "lorry/memory/upload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "lorry/device/device.h"
#include "lorry/memory/memory.h"
#include "tests/support/on_cuda.h"
#ifdef LORRY_TEST_WITH_CUDA
#include "lorry/device/cuda/runtime.h"
#include "lorry/memory/cuda_allocator.h"
#endif

namespace lorry::memory {
namespace {

using lorry::test::kGPU;

std::vector<uint32_t> numbers(int64_t bytes, uint32_t first) {
  std::vector<uint32_t> values(static_cast<size_t>((bytes + 3) / 4));
  std::iota(values.begin(), values.end(), first);
  return values;
}

/// Uploads to each device and overwrites the source at once; `busy` fills the stream before.
template <class F>
void check_upload(Device device, int64_t bytes, F&& busy) {
  const Stream stream = current_stream(device);
  std::vector<uint32_t> source = numbers(bytes, 7);
  const std::vector<uint32_t> want = source;
  void* const there = allocate(device, bytes);
  busy();
  upload(there, device, source.data(), bytes, stream);
  std::ranges::fill(source, 0xabababab);
  device::copy(source.data(), kCPU, there, device, bytes, stream);
  stream.synchronize();
  EXPECT_EQ(0, std::memcmp(source.data(), want.data(), static_cast<size_t>(bytes))) << bytes << " bytes";
  release(device, there, bytes);
}

const std::vector<int64_t> kSizes = {
    1, 7, 4096, 1 << 20, kUploadChunk - 4, kUploadChunk, kUploadChunk + 4, (kChunksInFlight + 3) * kUploadChunk + 40};

TEST(Upload, on_the_cpu_is_a_copy) {
  for (const int64_t bytes : kSizes) check_upload(kCPU, bytes, [] {});
  upload(nullptr, kCPU, nullptr, 0, current_stream(kCPU));
}

TEST(Upload, has_read_its_source_on_return_while_the_stream_is_busy) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr int64_t kBusy = 256 << 20;
  void* const busy = allocate(kGPU, 2 * kBusy);
  for (const int64_t bytes : kSizes)
    check_upload(kGPU, bytes, [&] {
      for (int i = 0; i < 10; ++i)
        device::copy(busy, kGPU, static_cast<char*>(busy) + kBusy, kGPU, kBusy, current_stream(kGPU));
    });
  release(kGPU, busy, 2 * kBusy);
}

#ifdef LORRY_TEST_WITH_CUDA
TEST(Upload, takes_no_more_pinned_memory_than_the_chunks_under_way) {
  LORRY_SKIP_WITHOUT_CUDA();
  pinned_allocator().empty_cache();
  const int64_t before = pinned_allocator().stats().reserved;
  check_upload(kGPU, 40 * kUploadChunk, [] {});
  EXPECT_LE(pinned_allocator().stats().reserved - before, 2 * kChunksInFlight * kUploadChunk);
}

TEST(Upload, is_refused_while_the_stream_is_captured) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  int value = 1;
  void* const there = allocate(kGPU, 4);
  ASSERT_EQ(cudaStreamBeginCapture(cuda::handle(stream), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_THROW(upload(there, kGPU, &value, 4, stream), CaptureError);
  {
    const Staging staging(4);
    EXPECT_THROW(staging.send(there, kGPU, 4, stream), CaptureError)
        << "by the time of a replay others have its memory";
  }
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(cuda::handle(stream), &graph), cudaSuccess)
      << "the capture goes on as if nothing had been asked";
  cudaGraphDestroy(graph);
  upload(there, kGPU, &value, 4, stream);
  stream.synchronize();
  release(kGPU, there, 4);
}
#endif

}  // namespace
}  // namespace lorry::memory
