#pragma once

// Slots in which a block stores a value that blocks with higher numbers wait for. A block may wait for one with a lower
// number only: blocks start in the order of their numbers, so that one has started. The CUDA C++ Programming Guide does
// not promise this order, but the scans of NVIDIA's CUB rely on it as well (AgentScan::ConsumeRange). A value lies
// beside the number of the launch that stored it, in 16 bytes that are written and read at once: nothing is cleared
// between launches. The slots are the stream's own (stream_memory.h) where it has enough, and fresh ones otherwise.

#include <bit>
#include <cstdint>
#include <optional>

#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

/// The slots of one launch. A value has 8 bytes.
struct Slots {
  void* memory = nullptr;
  uint64_t launch = 0;  ///< its number, which no earlier launch with these slots had

  void addresses(auto& visit) const { visit(memory); }

#ifdef __CUDACC__
  template <class T>
  __device__ void store(int64_t at, T value) const {
    static_assert(sizeof(T) == 8);
    asm volatile(
        "{ .reg .b128 slot; mov.b128 slot, {%1, %2}; st.relaxed.gpu.global.b128 [%0], slot; }" ::"l"(address(at)),
        "l"(std::bit_cast<uint64_t>(value)), "l"(launch)
        : "memory");
  }
  /// Whether this launch has stored the value, which `value` gets then.
  template <class T>
  __device__ bool load(int64_t at, T& value) const {
    static_assert(sizeof(T) == 8);
    uint64_t bits, stored_by;
    asm volatile("{ .reg .b128 slot; ld.relaxed.gpu.global.b128 slot, [%2]; mov.b128 {%0, %1}, slot; }"
                 : "=l"(bits), "=l"(stored_by)
                 : "l"(address(at))
                 : "memory");
    value = std::bit_cast<T>(bits);
    return stored_by == launch;
  }

 private:
  __device__ size_t address(int64_t at) const { return __cvta_generic_to_global(memory) + 16 * at; }
#endif
};

class LaunchSlots {
 public:
  /// `count` slots for one launch on the stream.
  LaunchSlots(int64_t count, Stream stream);
  const Slots& get() const { return slots_; }

 private:
  std::optional<Scratch> own_;
  Slots slots_;
};

}  // namespace lorry::kernels::cuda
