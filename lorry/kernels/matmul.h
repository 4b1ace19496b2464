#pragma once

// Matrix products. One kernel computes mm, bmm, matmul, addmm, baddbmm, linear and their gradients. Transposes and
// broadcast batches are strides, and a bias is an addend with a zero stride, so no operand has to be copied.

#include <atomic>
#include <cstdint>

#include "lorry/device/choices.h"
#include "lorry/device/stream.h"
#include "lorry/kernels/common/array.h"
#include "lorry/kernels/paged.h"

namespace lorry::kernels {

/// out = alpha * (a @ b) + beta * c over equal batch sizes: a [..., m, k], b [..., k, n], out and c [..., m, n].
/// All operands have one dtype (any but bool) and one rank >= 2; broadcast batch dimensions have stride 0.
/// - Every matrix of a and b has a unit stride (`has_unit_stride`), and so has out's; c has any strides.
/// - c.data null, or beta 0: nothing is added, and out or c is not read (a NaN there has no effect).
/// - c may be out itself (same address and layout); otherwise out overlaps no operand.
/// - alpha 0: a and b are not read.
/// - 16-bit floats accumulate in f32 and round once. Integers wrap; their alpha and beta are whole numbers.
/// - The result does not depend on the number of threads.
struct MatmulArgs {
  Array out, a, b, c;
  double alpha = 1, beta = 0;
};

/// What a product of 16-bit floats does beside multiplying, in one kernel. p is a @ b, plus c if there is one. GELU is
/// its tanh form, computed from sums in f32 that have not been rounded to 16 bits; so may be what goes into `sums`.
struct MatmulEpilogue {
  enum Kind : uint8_t {
    none,
    gelu,                    ///< out = gelu(p)
    gelu_and_input,          ///< the same, and aux = p
    relu,                    ///< out = relu(p)
    gelu_backward,           ///< out = p * gelu'(aux)
    gelu_backward_and_sums,  ///< the same, and sums [n] = out summed over all dimensions but the last
    sums_of_a,               ///< out = p, and sums [m] = a summed over its last dimension; a: [m, k]
  };
  Kind kind = none;
  void* aux = nullptr;   ///< laid out as out, of its dtype
  void* sums = nullptr;  ///< contiguous, of out's dtype
};
const char* name(MatmulEpilogue::Kind kind);

/// out[i, j] = the sum over p of x[i, p] * weight[j, p], plus bias[j]. x: [m, k], weight: [n, k], bias: [n], out:
/// [m, n]. All have one floating dtype. out has a unit stride in its rows and overlaps no operand; the others have any
/// strides. bias.data null: nothing is added.
/// - The bits of a row of out depend on that row of x, on weight and on bias alone: not on m, on other rows, on the
///   row's place, on strides and alignment, or on the number of threads.
/// - k and the dtype alone choose the order in which the products of an element are added (the head of each device's
///   source says it). Devices may differ, and on a CPU instruction sets.
/// - Sums of f16, bf16 and f32 are sums of f32 (never TF32), those of f64 of f64. The bias is added to the sum, and the
///   result is rounded once.
struct LinearRowsArgs {
  Array out, x, weight, bias;
};

/// Columns of a product that are also stored in a paged cache, as PagedWrite stores keys and values [m, heads, d].
struct CacheColumns {
  Array k_cache, v_cache;  ///< [blocks, block_size, heads, d], any strides; absent: nothing is stored
  PagedRows rows;          ///< of the product
  int64_t k = 0, v = 0;    ///< the first of heads * d columns each
};

/// What linear_rows does beside multiplying, in one kernel, with the bits of the operators one after the other: x is
/// normalised before (NormArgs in kernels/rowwise.h); the result goes through GELU, is added to, or is stored in a
/// cache too. The last three exclude each other.
struct LinearRowsNeighbours {
  enum Norm : uint8_t { no_norm, layer_norm, rms_norm };
  Norm norm = no_norm;
  Array norm_weight, norm_bias;  ///< contiguous [k]; each may be absent
  double eps = 0;
  bool gelu = false;  ///< its tanh form
  Array addend = {};  ///< [m, n] with a unit stride in its rows; may be absent
  CacheColumns cache = {};
};

/// What linear_rows_with does in one kernel on a device.
struct LinearRowsLimits {
  int64_t few_rows = 0;  ///< up to so many, norms, addends and caches cost less there than by themselves; 0: no kernel
  int64_t longest_norm = 0;  ///< elements of a row that is normalised
  int64_t norm_run = 1;      ///< which are a multiple of it
};

struct MatmulKernels {
  void (*matmul)(const MatmulArgs&, Stream);
  /// The same for a and b of i8 and an out of i32, with alpha 1 and no c. Sums wrap.
  void (*int8_matmul)(const MatmulArgs&, Stream);
  void (*linear_rows)(const LinearRowsArgs&, Stream);
  /// Why a product with an epilogue (not none) is not one kernel, as far as can be told without a device; null if it
  /// may be one. Null addresses count as aligned, and c only if it has one. Null: the device has no epilogues.
  const char* (*refused)(const MatmulArgs&, const MatmulEpilogue&) = nullptr;
  /// Enqueues a product with an epilogue. Returns false, without having enqueued anything, if it is refused or if the
  /// library has no algorithm for it.
  bool (*with_epilogue)(const MatmulArgs&, const MatmulEpilogue&, Stream) = nullptr;
  /// linear_rows with neighbours. out may be the addend. Returns false, without having enqueued anything, where one
  /// kernel cannot do it. Null: the device has no such kernel.
  bool (*linear_rows_with)(const LinearRowsArgs&, const LinearRowsNeighbours&, Stream) = nullptr;
  /// What it does on a device of this type; null where linear_rows_with is.
  LinearRowsLimits (*linear_rows_limits)(Device) = nullptr;
};

/// Whether the matrix in the last two dimensions can be read in place: one of its strides is 1, and the other is at
/// least the length of a whole row (or column). A dimension of size 1 may have any stride.
bool has_unit_stride(const Layout& layout);

/// The process's settings, see ops/matmul.h. The CPU uses none.
struct MatmulSettings {
  std::atomic<Precision> precision;
  std::atomic<bool> tuning;  ///< initially LORRY_MATMUL_TUNE: 0 (the default) or 1
};
MatmulSettings& matmul_settings();

}  // namespace lorry::kernels
