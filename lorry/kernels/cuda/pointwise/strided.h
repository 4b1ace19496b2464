#pragma once

// Launches strided kernels (pointwise.h) over an iteration.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/narrow.h"
#include "lorry/kernels/cuda/pointwise/pointwise.h"

namespace lorry::kernels::cuda {

/// Whether at each multiple of kLanes<C>, every operand has either an aligned vector access or one repeated element.
template <int kArity, class C>
bool runs_in_vectors(const Iteration& it, const StridedCall<kArity, C>& call) {
  constexpr int64_t kLength = kLanes<C>;
  if (it.rank > 1 && it.sizes[0] % kLength != 0) return false;
  for (int k = 0; k <= kArity; ++k) {
    const StridedOperand& x = k == 0 ? call.out : call.in[k - 1];
    if (x.data == nullptr) continue;
    if (x.size > static_cast<int>(sizeof(C))) return false;
    if (it.strides[k][0] == 0 && k > 0) continue;
    if (it.strides[k][0] != 1) return false;
    if (reinterpret_cast<uintptr_t>(x.data) % static_cast<uintptr_t>(kLength * x.size) != 0) return false;
    for (int d = 1; d < it.rank; ++d)
      if (it.strides[k][d] % kLength != 0) return false;
  }
  return true;
}

/// Operand 0 of the iteration is `out`, the others are `in`. There must be at least one element.
template <int kArity, class C>
void launch_strided(void (*kernel)(StridedCall<kArity, C>), const Iteration& it, const StridedOperand& out,
                    const StridedOperand (&in)[kArity], const C (&numbers)[kArity], Stream stream) {
  for_each_narrow(it, [&](const Iteration& part, const int64_t* starts) {
    StridedCall<kArity, C> call{.out = out,
                                .in = {},
                                .numbers = {},
                                .n = static_cast<uint32_t>(part.numel()),
                                .vectors = false,
                                .offsets = StridedIndexer<1 + kArity, uint32_t>(part)};
    call.out.data = static_cast<char*>(out.data) + starts[0] * out.size;
    for (int k = 0; k < kArity; ++k) {
      call.in[k] = in[k];
      if (in[k].data != nullptr) call.in[k].data = static_cast<char*>(in[k].data) + starts[1 + k] * in[k].size;
      call.numbers[k] = numbers[k];
    }
    call.vectors = runs_in_vectors(part, call);
    constexpr uint32_t kTile = kStridedTile<kArity, C>;
    lorry::cuda::launch_with(stream, {.grid = (call.n + kTile - 1) / kTile, .block = kPointwiseBlock}, kernel, call);
  });
}

}  // namespace lorry::kernels::cuda
