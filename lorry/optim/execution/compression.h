#pragma once

// Compressed states, bf16 or 8-bit codes (kernels/optim.h), for the executions that compute with f32 arrays.

#include "lorry/kernels/optim.h"
#include "lorry/optim/memory.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

constexpr kernels::MasterKind master_kind(Masters masters) {
  constexpr kernels::MasterKind kKinds[] = {kernels::MasterKind::none, kernels::MasterKind::f32,
                                            kernels::MasterKind::split, kernels::MasterKind::stochastic};
  return kKinds[static_cast<int>(masters)];
}

/// The codes of an 8-bit array of n elements; its scales, f32.
Tensor codes_of(const Tensor& compressed, int64_t n);
Tensor scales_of(const Tensor& compressed, int64_t n);

/// How the states of parameters that share a hyper block are compressed. seed, steps and a parameter's number decide on
/// the random bits of stochastic rounding.
struct Compression {
  StateTypes types = {};
  bool (*is_signed)(int state) = nullptr;
  uint64_t seed = 0;
  const double* steps = nullptr;  ///< as in kernels::CompressedCall
  int64_t first_element = 0;      ///< likewise

  /// The arguments for kernels over `list`, {f32, compressed}, that compress or decompress state k. k = -1: the
  /// parameter, which is rounded stochastically.
  kernels::CompressedCall call(const kernels::List& list, int k) const;
};

/// Writes to `compressed`, in the layout `to`, the compressed state k that lies in `before` in the layout `from`.
void reorder_compressed(const Compression& how, int k, const Tensor& before, const Layout& from,
                        const Tensor& compressed, const Layout& to);

}  // namespace lorry::optim
