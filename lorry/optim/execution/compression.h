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

/// Of an array of n elements in 8 bits: its codes, and its scales, f32.
Tensor codes_of(const Tensor& compressed, int64_t n);
Tensor scales_of(const Tensor& compressed, int64_t n);

/// The types of states of parameters that share a hyper block, and what names their random bits beside the parameters'
/// numbers.
struct Compression {
  StateTypes types = {};
  bool (*is_signed)(int state) = nullptr;
  uint64_t seed = 0;
  const double* steps = nullptr;  ///< kernels::CompressedCall's
  int64_t first_element = 0;      ///< likewise, where parts of parameters are stepped

  /// State k as a call of the kernels over `list`, {f32, compressed}; -1: the parameter, rounded stochastically.
  kernels::CompressedCall call(const kernels::List& list, int k) const;
};

/// Compressed state k of an array laid out as `from`, in the layout `to`. `compressed` is overwritten.
void reorder_compressed(const Compression& how, int k, const Tensor& before, const Layout& from,
                        const Tensor& compressed, const Layout& to);

}  // namespace lorry::optim
