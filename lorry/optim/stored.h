#pragma once

// Arrays as they are stored, bf16 or 8-bit codes (kernels/optim.h), for the executions that compute with f32 arrays.

#include "lorry/kernels/optim.h"
#include "lorry/optim/memory.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

constexpr kernels::Kept kept(Masters masters) {
  constexpr kernels::Kept kKept[] = {kernels::Kept::nothing, kernels::Kept::master, kernels::Kept::split,
                                     kernels::Kept::stochastic};
  return kKept[static_cast<int>(masters)];
}

/// Of an array of n elements in 8 bits: its codes, and its scales, f32.
Tensor codes_of(const Tensor& stored, int64_t n);
Tensor scales_of(const Tensor& stored, int64_t n);

/// How the states of parameters that share a clock are stored, and what names their random bits beside the parameters'
/// numbers.
struct Storing {
  StateTypes types = {};
  bool (*is_signed)(int state) = nullptr;
  uint64_t seed = 0;
  const double* steps = nullptr;  ///< kernels::StoredCall's
  int64_t first_element = 0;      ///< likewise, where parts of parameters are stepped

  /// State k as a call of the kernels over `list`, {f32, stored}; -1: the parameter, rounded stochastically.
  kernels::StoredCall call(const kernels::List& list, int k) const;
};

/// State k, as it is stored, of an array laid out as `from`, in the layout `to`. `stored` is overwritten.
void reorder_stored(const Storing& how, int k, const Tensor& before, const Layout& from, const Tensor& stored,
                    const Layout& to);

}  // namespace lorry::optim
