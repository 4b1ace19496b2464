#include "lorry/profile/raw_launch.h"

#include "lorry/device/cuda/runtime.h"

namespace lorry::profile {
namespace {
__global__ void nothing() {}
__device__ int g_value;
}  // namespace

void raw_launch(Stream stream) {
  const cuda::DeviceGuard guard(stream.device.index);
  nothing<<<1, 64, 0, cuda::handle(stream)>>>();
  cuda::check(cudaGetLastError(), "<<<>>>");
}

void raw_read(Stream stream) {
  const cuda::DeviceGuard guard(stream.device.index);
  int value = 0;
  cuda::check(cudaMemcpyFromSymbolAsync(&value, g_value, sizeof value, 0, cudaMemcpyDeviceToHost, cuda::handle(stream)),
              "cudaMemcpyFromSymbolAsync");
  cuda::check(cudaStreamSynchronize(cuda::handle(stream)), "cudaStreamSynchronize");
}

}  // namespace lorry::profile
