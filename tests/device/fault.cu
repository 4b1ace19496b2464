// A kernel that reads where nothing is ends the context. Run as a program of its own: every later call must say what
// happened, and which operators were in flight. Exit status 77 without a GPU.

#include <cstdio>
#include <cstring>

#include "lorry/device/cuda/launch.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"

namespace {
__global__ void read_nowhere(float* out) {
  lorry::cuda::begin_programmatic();
  *out = *reinterpret_cast<float*>(64);
}

template <class F>
std::string failure(F&& call) {
  try {
    call();
  } catch (const lorry::CudaError& error) {
    return error.what();
  }
  return "";
}
}  // namespace

int main() {
  using namespace lorry;
  const Device gpu{DeviceType::cuda, 0};
  if (!device::available(gpu.type)) {
    std::printf("skipped: %s\n", device::why_absent(gpu.type).c_str());
    return 77;
  }
  const Tensor x = ones({8}, {.device = gpu});
  x.mul_(2);
  cuda::launch(current_stream(gpu), {{1}, {1}}, read_nowhere, static_cast<float*>(x.data_ptr()));
  const std::string first = failure([&] { x.sum().item(); }), later = failure([&] { x.add(1); });
  std::printf("first: %s\nlater: %s\n", first.c_str(), later.c_str());
  const auto tells = [](const std::string& text, const char* what) { return text.find(what) != std::string::npos; };
  const bool good =
      tells(first, "fault") && tells(first, "mul") && tells(later, "add") && tells(later, "first seen by");
  std::printf(good ? "passed\n" : "failed\n");
  return good ? 0 : 1;
}
