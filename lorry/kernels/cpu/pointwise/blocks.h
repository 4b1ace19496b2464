#pragma once

// Block functions: each pointwise formula over a contiguous run of elements, in the three types in which the CPU
// computes, and of up to three operands of some narrower types. Callers bring other types, strides and broadcasting to
// that form block by block; see pointwise.cpp.

#include <cstdint>

#include "lorry/formula/pointwise.h"

namespace lorry::kernels::cpu {

inline constexpr int kMaxArity = 4;
/// An operand with step 0 is one value, repeated over this many bytes: the widest register.
inline constexpr int64_t kSplatBytes = 64;

/// Computes n elements. Operand k begins at in[k]; step[k] is 1, or 0 for one repeated value, which is of the type of
/// computation, or i32 in functions of i32. `out` is one of the operands or overlaps none.
using BlockFunction = void (*)(const void* const* in, const int64_t* step, void* out, int64_t n);

/// A row's functions: of elements of the types of computation, null where the operator never computes in it, and of
/// narrower ones that are converted in registers, null where there is none.
struct BlockFunctions {
  BlockFunction f32, f64, i64, bf16, f16, i32;
};

/// The functions of every row, for this process's instruction set.
const BlockFunctions* block_functions();

/// blocks.cpp is compiled in this many shares of the rows, so that no compilation takes long.
inline constexpr int kBlockShares = 4;

}  // namespace lorry::kernels::cpu
