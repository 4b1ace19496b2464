#pragma once

// Options that users set and kernels read. The headers that offer them say more: foreach/foreach.h, optim/memory.h,
// ops/matmul.h.

#include <cstdint>
#include <string_view>

#include "lorry/device/state_type.h"

namespace lorry {

/// How the addresses of a list of tensors reach a GPU kernel.
///   per_tensor       one launch per tensor
///   kernel_args_4k   as kernel arguments, 4 KB per launch, in as many launches as needed
///   kernel_args_32k  the same with the 32,764 bytes per launch that CUDA 12.1 and later allow
///   device_table     in device memory, copied once and reused while the list is unchanged; one launch
///   mapped_table     in pinned host memory, which the kernel reads over the link; one launch
///   managed_table    in managed memory, whose pages move to the host when it writes them and back when the kernel
///                    reads them; one launch, but the host waits for the stream before it writes
///   automatic        the fastest of the first four for this list
/// All give the same bits. On a CPU no table is copied: per_tensor runs one entry after the other; all other strategies
/// are the same there and run the list as one sequence of elements.
enum class Strategy : uint8_t {
  automatic,
  per_tensor,
  kernel_args_4k,
  kernel_args_32k,
  device_table,
  mapped_table,
  managed_table
};
inline constexpr int kStrategies = 7;

constexpr std::string_view name(Strategy strategy) {
  constexpr std::string_view kNames[] = {"automatic",    "per_tensor",   "kernel_args_4k", "kernel_args_32k",
                                         "device_table", "mapped_table", "managed_table"};
  return kNames[static_cast<int>(strategy)];
}

constexpr std::string_view name(StateType type) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "q8"};
  return kNames[static_cast<int>(type)];
}

/// The precision of f32 operands in matrix products, on hardware that offers a choice.
enum class Precision : uint8_t { full, tf32 };

}  // namespace lorry
