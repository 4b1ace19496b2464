#pragma once

// Arrays as they are stored, bf16 or 8-bit codes (kernels/optim.h), for the executions that compute with f32 tensors, and what these
// write when they have computed everything.

#include <vector>

#include "lorry/foreach/tensor_list.h"
#include "lorry/kernels/optim.h"
#include "lorry/optim/memory.h"

namespace lorry::optim {

/// Of an array of n elements in 8 bits: its codes, and its scales, f32.
Tensor codes_of(const Tensor& stored, int64_t n);
Tensor scales_of(const Tensor& stored, int64_t n);

/// How the states of parameters that share a clock are stored, and what names their random bits beside the parameters' numbers.
struct Storing {
  StateTypes types = {};
  bool (*is_signed)(int state) = nullptr;
  uint64_t seed = 0;
  const double* steps = nullptr;  ///< kernels::StoredCall's
  int64_t first_element = 0;      ///< likewise, where parts of parameters are stepped

  /// State k as a call of the kernels over `list`, {f32, stored}.
  kernels::StoredCall call(const kernels::List& list, int k) const;
};

/// State k of each parameter in f32, laid out as `like`: itself where that is what is stored.
std::vector<Tensor> loaded(const Storing& how, int k, const std::vector<Tensor>& stored, const std::vector<Tensor>& like);

/// The results of a step: complete before the first of them is written, so that a lack of memory parts no parameter from its states.
/// With a factor of NaN nothing is written.
class Writes {
 public:
  Writes(const Storing& how, const Tensor& grad_factor, bool by_lists) : how_(how), grad_factor_(grad_factor), by_lists_(by_lists) {}

  /// x, broadcast and converted, to `to`.
  void add(const Tensor& to, const Tensor& x) { plain_.push_back({to, x}); }
  /// x as state k, or with -1 as the parameter, rounded stochastically. `like` is the parameter, whose number it is.
  void add(const Tensor& to, const Tensor& x, int k, const Tensor& like, uint32_t number);
  /// Writes everything.
  void finish();

 private:
  struct Write {
    Tensor to, x;
  };
  struct Stored {
    kernels::List list;
    int k;
    std::vector<Tensor> held;
  };

  void complete();
  void keep_old(const Tensor& steps);

  const Storing& how_;
  const Tensor grad_factor_;
  bool by_lists_;
  std::vector<Write> plain_;
  std::vector<Stored> stored_;
};

}  // namespace lorry::optim
