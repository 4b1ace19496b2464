// Kernels of lesson 10 that are given a list of addresses as the host has it. The list itself lies in the host's
// memory, where most GPUs cannot read. Each runs in a process of its own, because a fault ends the context.

#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/bench/lessons/child.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"

/// The launch function refuses structs that do not list their addresses, and with them this mistake. Here it is wanted.
template <>
inline constexpr bool lorry::cuda::kHoldsNoAddress<std::vector<float*>> = true;

namespace lorry::bench::lessons {
namespace {

__global__ void scale_vector(std::vector<float*> tensors) {
  lorry::cuda::begin_programmatic();
  float* tensor = tensors.data()[blockIdx.x];
  tensor[threadIdx.x] *= 2;
}

__global__ void scale_pointers(float** tensors) {
  lorry::cuda::begin_programmatic();
  float* tensor = tensors[blockIdx.x];
  tensor[threadIdx.x] *= 2;
}

constexpr int kTensors = 4, kElements = 64;

/// Calls launch(addresses) with tensors of ones, and tells the parent what became of it.
template <class F>
void tell_outcome(Device device, const F& launch) {
  try {
    std::vector<Tensor> tensors;
    std::vector<float*> addresses;
    for (int i = 0; i < kTensors; ++i) tensors.push_back(ones({kElements}, {.device = device}));
    for (const Tensor& x : tensors) addresses.push_back(x.data<float>());
    launch(addresses);
    device::synchronize(device);
    tell({{"sum", tensors[0].sum().item<double>()}, {"expected", 2.0 * kElements}});
  } catch (const Error& error) {
    tell({{"error", error.what()}});
  }
}

}  // namespace

void vector_child(Device device) {
  tell_outcome(device, [&](const std::vector<float*>& tensors) {
    cuda::launch_with(current_stream(device), {{kTensors}, {kElements}}, scale_vector, tensors);
  });
}

void pointers_child(Device device) {
  tell_outcome(device, [&](std::vector<float*>& tensors) {
    cuda::launch_with(current_stream(device), {{kTensors}, {kElements}}, scale_pointers, tensors.data());
  });
}

}  // namespace lorry::bench::lessons
