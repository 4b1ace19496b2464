// Pinned words that kernels write, when nobody waits for them any more.

#include "lorry/kernels/cuda/common/host_readback.h"

#include "lorry/memory/allocate.h"
#include "tests/support/on_cuda.h"

namespace lorry::kernels::cuda {
namespace {

using test::kGPU;

constexpr int64_t kBytes = HostReadback::kWords * static_cast<int64_t>(sizeof(int64_t));

TEST(HostReadback, that_nobody_waited_for_is_not_handed_out_while_its_stream_runs) {
  LORRY_SKIP_WITHOUT_CUDA();
  constexpr int64_t kBusy = 256 << 20;
  void* const busy = memory::allocate(kGPU, 2 * kBusy);
  const OwnedStream stream(kGPU);
  device::synchronize(kGPU);
  const HostReadback warm(stream);  // what follows asks the system for nothing
  const void* words = nullptr;
  {
    const HostReadback readback(stream);
    words = readback.words();
    for (int i = 0; i < 40; ++i) device::copy(busy, kGPU, static_cast<char*>(busy) + kBusy, kGPU, kBusy, stream);
  }  // as when the second of two launches throws
  void* const next = memory::allocate_pinned(kBytes);
  EXPECT_NE(next, words);
  memory::release_pinned(next, kBytes);
  stream.synchronize();
  memory::release(kGPU, busy, 2 * kBusy);
}

TEST(HostReadback, that_was_waited_for_is_handed_out_at_once) {
  LORRY_SKIP_WITHOUT_CUDA();
  const void* words = nullptr;
  {
    HostReadback readback(current_stream(kGPU));
    words = readback.wait();
  }
  const HostReadback next(current_stream(kGPU));
  EXPECT_EQ(next.words(), words);
}

}  // namespace
}  // namespace lorry::kernels::cuda
