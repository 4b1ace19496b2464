#pragma once

// Arrays as they are stored, bf16 or q8 (kernels/optim.h), for code that computes with f32 tensors.

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// Of an array of n elements in 8 bits: its codes, and its scales, f32.
Tensor codes_of(const Tensor& stored, int64_t n);
Tensor scales_of(const Tensor& stored, int64_t n);

/// Fills an f32 tensor without gaps from an array in 8 bits of its elements in their order in memory.
void load_stored(const Tensor& to, const Tensor& stored, bool is_signed);
/// The way back.
void store_stored(const Tensor& from, const Tensor& stored, bool is_signed);

}  // namespace lorry::optim
