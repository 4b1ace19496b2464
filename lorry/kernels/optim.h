#pragma once

// Optimizer steps over whole lists of tensors: one call moves every parameter of a model. Work is split into tiles of a fixed
// size across all tensors, so that a bias shares a trip with its neighbours and a large matrix spreads over the team.
// Bytes an element, f32: AdamW reads 16 and writes 12, SGD with momentum reads 12 and writes 8; a norm reads 4. In 16 bits with a master
// AdamW moves 28 too: it reads 4 + 2 + 4 + 4 (master, gradient, moments) and writes 4 + 2 + 4 + 4 (master, parameter, moments).

#include <span>

#include "lorry/device/stream.h"
#include "lorry/formula/adamw.h"
#include "lorry/formula/sgd.h"
#include "lorry/kernels/array.h"

namespace lorry::kernels {

/// One parameter: `count` elements without gaps, laid out alike in param, grad and states. States are f64 for f64 parameters and
/// f32 for the others: 16-bit parameters are widened, stepped in f32, and rounded to nearest even when they are stored. Where one has
/// a master, an f32, that is stepped and kept instead, and the parameter is only written: its rounded copy.
struct OptimTensor {
  void* param = nullptr;
  const void* grad = nullptr;
  void* states[3] = {};
  int64_t count = 0;
  void* master = nullptr;  ///< null: none; always for f32 and f64
};

/// A step of one dtype. hypers[i] belongs to tensors[i]. Every gradient is first multiplied by *grad_factor (null: 1), rounded to
/// the type of the states; when that is NaN, nothing is written. It lies on the device, so that a loss scale, a clip and the choice to
/// skip the step reach the kernel without passing through the host.
struct AdamWArgs {
  std::span<const OptimTensor> tensors;
  std::span<const formula::AdamWHyper<double>> hypers;
  DType dtype = kF32;
  bool amsgrad = false;
  const double* grad_factor = nullptr;
};
struct SgdArgs {
  std::span<const OptimTensor> tensors;
  std::span<const formula::SgdHyper<double>> hypers;
  DType dtype = kF32;
  bool momentum = false;
  const double* grad_factor = nullptr;
};

/// A list of floating tensors of any dtypes, each without gaps.
struct ListTensor {
  void* data = nullptr;
  int64_t count = 0;
  DType dtype = kF32;
};

enum class Norm : uint8_t { one, two, inf };

/// The norm of all elements together, accumulated in f64 in an order that depends on the counts alone and is the same on every
/// device; `total` is an f64 scalar.
struct ListNormArgs {
  std::span<const ListTensor> tensors;
  Norm norm = Norm::two;
  double* total = nullptr;
};

/// Multiplies every element by min(1, max_norm / (*total + 1e-6)); nothing is written when that is 1.
struct ListClipArgs {
  std::span<const ListTensor> tensors;
  const double* total = nullptr;
  double max_norm = 0;
};

struct OptimKernels {
  void (*adamw)(const AdamWArgs&, const Stream&) = nullptr;
  void (*sgd)(const SgdArgs&, const Stream&) = nullptr;
  void (*norm)(const ListNormArgs&, const Stream&) = nullptr;
  void (*clip)(const ListClipArgs&, const Stream&) = nullptr;
};

}  // namespace lorry::kernels
