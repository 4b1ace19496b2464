#pragma once

// Matrix products. Transposed, sliced and broadcast operands are read where they lie; only a matrix without a unit
// stride is copied, and says so (events::Kind::hidden_copy). All operands have one dtype, any but bool; 16-bit floats
// accumulate in f32. Results do not depend on the number of threads.

#include "lorry/device/choices.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

/// The product by PyTorch's rules: vector by vector is a number, a vector on the left is a row and on the right a
/// column (and that dimension goes), more than two dimensions are batches of matrices and broadcast.
/// a: [k] or [..., m, k], b: [k] or [..., k, n]. Returns [..., m, n]. Throws ShapeError, DTypeError, DeviceError.
Tensor matmul(const Tensor& a, const Tensor& b);
/// [m, k] by [k, n].
Tensor mm(const Tensor& a, const Tensor& b);
/// [b, m, k] by [b, k, n]; batches do not broadcast.
Tensor bmm(const Tensor& a, const Tensor& b);
/// [m, k] by [k].
Tensor mv(const Tensor& a, const Tensor& vector);
/// [k] by [k]: a number.
Tensor dot(const Tensor& a, const Tensor& b);
/// [m] and [n]: every product, [m, n].
Tensor outer(const Tensor& a, const Tensor& b);

/// beta * c + alpha * (a @ b) with c expandable to [m, n]. beta 0 does not read c. For whole numbers alpha and beta
/// lose their fractions.
Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1);
/// The same for batches of matrices: a [b, m, k], b [b, k, n].
Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta = 1, const Scalar& alpha = 1);
/// beta * c + alpha * (a @ vector) with c expandable to [m].
Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& vector, const Scalar& beta = 1, const Scalar& alpha = 1);

/// x @ weight^T + bias. x: [..., in], weight: [out, in], bias: [out] or undefined. Returns [..., out]; [...] for a
/// weight [in], whose bias is 0-d.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});
/// The same with every row of the result beginning at a multiple of 16 bytes, so that it is not contiguous where `out`
/// is odd: the logits of a vocabulary of 50,257, for one. A GPU multiplies what it can read in 16 bytes up to five
/// times as fast.
Tensor linear_aligned(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// Into `out` (ops/dispatch/out.h), of any strides; it may share memory with the operands.
const Tensor& matmul_out(const Tensor& out, const Tensor& a, const Tensor& b);
const Tensor& mm_out(const Tensor& out, const Tensor& a, const Tensor& b);
const Tensor& bmm_out(const Tensor& out, const Tensor& a, const Tensor& b);
const Tensor& mv_out(const Tensor& out, const Tensor& a, const Tensor& vector);
const Tensor& dot_out(const Tensor& out, const Tensor& a, const Tensor& b);
const Tensor& outer_out(const Tensor& out, const Tensor& a, const Tensor& b);
const Tensor& addmm_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                        const Scalar& alpha = 1);
const Tensor& addmv_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& vector,
                        const Scalar& beta = 1, const Scalar& alpha = 1);
const Tensor& baddbmm_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                          const Scalar& alpha = 1);

// ---- settings, for the whole process --------------------------------------------------------------------------------

/// full: f32 products are products of f32. tf32: on tensor cores, whose operands keep 10 of their 23 bits of mantissa
/// (relative errors near 1e-3, about 8 times as fast on an H200); sums stay f32. The default is full. The CPU always
/// computes in full; other dtypes are not concerned.
void set_matmul_precision(Precision precision);
Precision matmul_precision();
/// Sets the process's precision until the end of a scope. Scopes of several threads must not overlap.
class MatmulPrecisionScope {
 public:
  explicit MatmulPrecisionScope(Precision precision) : before_(matmul_precision()) { set_matmul_precision(precision); }
  ~MatmulPrecisionScope() { set_matmul_precision(before_); }
  MatmulPrecisionScope(const MatmulPrecisionScope&) = delete;
  MatmulPrecisionScope& operator=(const MatmulPrecisionScope&) = delete;

 private:
  const Precision before_;
};

/// On: the first product of each shape on a GPU times the library's best few algorithms and keeps the fastest, which
/// waits for the device once a shape (never inside a capture). What is fastest by a hair may differ from run to run,
/// and with it the last bits of results, so the default is off, or what the environment's LORRY_MATMUL_TUNE says (0 or
/// 1).
void set_matmul_tuning(bool on);
bool matmul_tuning();

}  // namespace lorry
