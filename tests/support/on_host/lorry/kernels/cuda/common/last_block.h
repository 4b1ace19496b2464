#pragma once

// In the place of the header of this name: on the host, where blocks run one after the other.

#include <cstdint>

namespace lorry::kernels::cuda {

inline bool is_last_block(uint32_t* ticket, uint32_t blocks) {
  static bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = *ticket == blocks - 1;
    *ticket = last ? 0 : *ticket + 1;
  }
  __syncthreads();
  return last;
}

}  // namespace lorry::kernels::cuda
