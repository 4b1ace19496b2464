#include "lorry/ops/matmul.h"

#include <algorithm>
#include <limits>

#include "lorry/ops/batch_invariant.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/norm.h"
#include "lorry/ops/paged_attention.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/product.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool aligned);

/// Whether a product is linear_rows: in the mode, with all rows multiplied by one matrix or vector `b`.
bool multiplies_rows(int64_t rank_b) { return batch_invariant() && rank_b <= 2; }

/// "; did you mean b.transpose(-1, -2)?" where that would fit.
std::string transpose_hint(const Tensor& a, const Tensor& b) {
  if (a.dim() >= 1 && b.dim() >= 2 && a.size(-1) == b.size(-1)) return "; did you mean b.transpose(-1, -2)?";
  if (a.dim() >= 2 && b.dim() >= 1 && a.size(-2) == b.size(b.dim() == 1 ? 0 : -2))
    return "; did you mean a.transpose(-1, -2)?";
  return "";
}

void require_rank(const Tensor& x, int64_t rank, const char* operand) {
  require<ShapeError>(x.dim() == rank, "{} has {} dimensions; got {}; expected {}; matmul takes any", operand, x.dim(),
                      x, rank);
}

/// A product without addend: operands as matrices, and the sizes of the result with and without the dimensions that
/// vectors lose.
struct Multiplication {
  const Tensor &a, &b;
  Layout a_layout, b_layout;
  Dims matrices, result;

  Multiplication(const Tensor& x, const Tensor& y) : a(x), b(y) {
    require_factors(x, y);
    require<ShapeError>(
        x.dim() > 0 && y.dim() > 0,
        "an operand is a number; got a: {}, b: {}; expected at least one dimension each; mul takes numbers", x, y);
    a_layout = x.dim() == 1 ? as_row(x.layout()) : x.layout();
    b_layout = y.dim() == 1 ? as_column(y.layout()) : y.layout();
    if (a_layout.sizes[a_layout.rank - 1] != b_layout.sizes[b_layout.rank - 2]) [[unlikely]]
      raise<ShapeError>("inner sizes differ; got a: {}, b: {}; expected a's last size to equal b's {}{}", x, y,
                        y.dim() == 1 ? "only one" : "last but one", transpose_hint(x, y));
    result = broadcast(batch_sizes(a_layout), batch_sizes(b_layout));
    matrices = result;
    matrices.push_back(a_layout.sizes[a_layout.rank - 2]);
    matrices.push_back(b_layout.sizes[b_layout.rank - 1]);
    if (x.dim() > 1) result.push_back(matrices[matrices.size() - 2]);
    if (y.dim() > 1) result.push_back(matrices.back());
  }
  /// Operands of these ranks only.
  Multiplication(const Tensor& x, int64_t rank_x, const Tensor& y, int64_t rank_y)
      : Multiplication(checked(x, rank_x, y, rank_y), y) {}

  void into(const Tensor& out) const {
    // The dimensions that vectors lose come back with size 1.
    Dims strides = out.strides();
    if (b.dim() == 1) strides.push_back(1);
    if (a.dim() == 1) strides.insert(strides.size() - 1, 1);
    Product{a, b, a_layout, b_layout}.run(out, Layout::strided(matrices, strides));
  }
  Tensor rows() const { return linear(a, b.dim() == 1 ? b : b.t(), {}, false); }
  Tensor call() const {
    if (multiplies_rows(b.dim())) return rows();
    return door::call(Op::matmul, {&a, &b}, [&] {
      Tensor out = empty(result, a.options());
      into(out);
      return out;
    });
  }
  const Tensor& out(const Tensor& to) const {
    if (multiplies_rows(b.dim())) return write_out(to, rows());
    return write_out(Op::matmul, to, {result, a.dtype(), a.device()}, {&a, &b}, [&](const Tensor& x) { into(x); });
  }

 private:
  static const Tensor& checked(const Tensor& x, int64_t rank_x, const Tensor& y, int64_t rank_y) {
    require_factors(x, y);
    require_rank(x, rank_x, "a");
    require_rank(y, rank_y, "b");
    require<ShapeError>(rank_x < 3 || x.size(0) == y.size(0),
                        "batch sizes differ; got a: {}, b: {}; expected equal first sizes; matmul broadcasts", x, y);
    return x;
  }
};

/// beta or alpha for operands like `a`: for whole numbers it loses its fraction, and for unsigned ones a negative one
/// wraps, as in PyTorch.
Scalar coefficient(const Tensor& a, const Scalar& number, const char* which) {
  return visit(a.dtype(), [&]<class T>(Type<T>) -> Scalar {
    if constexpr (kFloatingType<T>) {
      return number;
    } else {
      // Kernels take it as a double, which holds whole numbers up to 2^53, and narrow it to the dtype.
      constexpr bool kSigned = std::is_signed_v<T>;
      constexpr int64_t kLimit = int64_t{1} << std::min(std::numeric_limits<T>::digits, 53);
      const auto value = number.to<int64_t>();
      require<ValueError>(value >= -kLimit + !kSigned && value < kLimit,
                          "{} is out of range for {}; got {}; multiply by a tensor instead", which, a.dtype(), value);
      return kSigned ? value : value & (kLimit - 1);
    }
  });
}

/// addmm and baddbmm: operands of one rank, with an addend.
struct Addition {
  const Tensor &c, &a, &b;
  Scalar beta, alpha;
  Dims sizes;

  Addition(int64_t rank, const Tensor& addend, const Tensor& x, const Tensor& y, const Scalar& of_addend,
           const Scalar& of_product)
      : c(addend), a(x), b(y) {
    require_defined(c, "the addend");
    require_factors(a, b);
    require_rank(a, rank, "a");
    require_rank(b, rank, "b");
    require_same_device(c, a);
    require<DTypeError>(c.dtype() == a.dtype(),
                        "dtypes differ; got c: {}, a: {}; expected one dtype; convert one with to(dtype)", c, a);
    beta = coefficient(a, of_addend, "beta");
    alpha = coefficient(a, of_product, "alpha");
    if (a.size(-1) != b.size(-2)) [[unlikely]]
      raise<ShapeError>("inner sizes differ; got a: {}, b: {}; expected a's last size to equal b's last but one{}", a,
                        b, transpose_hint(a, b));
    require<ShapeError>(rank == 2 || a.size(0) == b.size(0),
                        "batch sizes differ; got a: {}, b: {}; expected equal first sizes; matmul broadcasts", a, b);
    if (rank == 3) sizes.push_back(a.size(0));
    sizes.push_back(a.size(-2));
    sizes.push_back(b.size(-1));
    expand(c.layout(), sizes);
  }

  void into(const Tensor& out) const {
    Product{a, b, a.layout(), b.layout(), &c, c.layout(), alpha.to<double>(), beta.to<double>()}.run(out, out.layout());
  }
  Tensor call(Op op) const {
    return door::call(
        op, {&c, &a, &b},
        [&] {
          Tensor out = empty(sizes, a.options());
          into(out);
          return out;
        },
        beta, alpha);
  }
  const Tensor& out(Op op, const Tensor& to) const {
    return write_out(
        op, to, {sizes, a.dtype(), a.device()}, {&c, &a, &b}, [&](const Tensor& x) { into(x); }, beta, alpha);
  }
  const Tensor& call_in_place(Op op) const {
    require<ShapeError>(c.sizes() == sizes,
                        "the result does not fit in place; got {} for a product of {}; expected equal sizes", c, sizes);
    return door::call_in_place(
        op, c, {&a, &b}, [&] { into(c); }, beta, alpha);
  }
};

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  const Running running("matmul");
  return Multiplication(a, b).call();
}
Tensor mm(const Tensor& a, const Tensor& b) {
  const Running running("mm");
  return Multiplication(a, 2, b, 2).call();
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  const Running running("bmm");
  return Multiplication(a, 3, b, 3).call();
}
Tensor mv(const Tensor& a, const Tensor& vector) {
  const Running running("mv");
  return Multiplication(a, 2, vector, 1).call();
}
Tensor dot(const Tensor& a, const Tensor& b) {
  const Running running("dot");
  return Multiplication(a, 1, b, 1).call();
}

const Tensor& matmul_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Running running("matmul");
  return Multiplication(a, b).out(out);
}
const Tensor& mm_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Running running("mm");
  return Multiplication(a, 2, b, 2).out(out);
}
const Tensor& bmm_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Running running("bmm");
  return Multiplication(a, 3, b, 3).out(out);
}
const Tensor& mv_out(const Tensor& out, const Tensor& a, const Tensor& vector) {
  const Running running("mv");
  return Multiplication(a, 2, vector, 1).out(out);
}
const Tensor& dot_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Running running("dot");
  return Multiplication(a, 1, b, 1).out(out);
}

namespace {
void require_vectors(const Tensor& a, const Tensor& b) {
  require_defined(a, "a");
  require_defined(b, "b");
  require_rank(a, 1, "a");
  require_rank(b, 1, "b");
}
}  // namespace

Tensor outer(const Tensor& a, const Tensor& b) {
  const Running running("outer");
  require_vectors(a, b);
  return a.unsqueeze(1).mul(b);
}

const Tensor& outer_out(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Running running("outer");
  require_vectors(a, b);
  return mul_out(out, a.unsqueeze(1), b);
}

Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  const Running running("addmm");
  return Addition(2, c, a, b, beta, alpha).call(Op::addmm);
}

Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  const Running running("baddbmm");
  return Addition(3, c, a, b, beta, alpha).call(Op::baddbmm);
}

const Tensor& addmm_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
                        const Scalar& alpha) {
  const Running running("addmm");
  return Addition(2, c, a, b, beta, alpha).out(Op::addmm, out);
}

const Tensor& baddbmm_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& b, const Scalar& beta,
                          const Scalar& alpha) {
  const Running running("baddbmm");
  return Addition(3, c, a, b, beta, alpha).out(Op::baddbmm, out);
}

Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& vector, const Scalar& beta, const Scalar& alpha) {
  const Running running("addmv");
  require_factors(a, vector);
  require_rank(vector, 1, "b");
  require_defined(c, "the addend");
  require<ShapeError>(c.dim() <= 1, "the addend has {} dimensions; got {}; expected at most 1", c.dim(), c);
  return reshape_result(
      Addition(2, c.dim() == 1 ? c.unsqueeze(1) : c, a, vector.unsqueeze(1), beta, alpha).call(Op::addmm), {a.size(0)});
}

const Tensor& addmv_out(const Tensor& out, const Tensor& c, const Tensor& a, const Tensor& vector, const Scalar& beta,
                        const Scalar& alpha) {
  const Running running("addmv");
  return write_out(out, addmv(c, a, vector, beta, alpha));
}

namespace {

/// Row-major but for the distance between rows, which is a multiple of 16 bytes. The last row, too, is followed by what
/// fills it up.
Tensor empty_aligned(const Dims& sizes, const Options& options) {
  const int64_t per_run = 16 / size_of(options.dtype), row = (sizes.back() + per_run - 1) / per_run * per_run;
  Dims padded = sizes;
  padded[padded.size() - 1] = row;
  return door::owning(empty(padded, options).narrow(-1, 0, sizes.back()));
}

/// out = x @ weight^T + bias, as the fastest product of this shape.
void multiply(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool vector = x.dim() == 1;
  Product{x,
          weight,
          vector ? as_row(x.layout()) : x.layout(),
          transposed(weight.layout()),
          &bias,
          bias.defined() ? bias.layout() : Layout{},
          1.0,
          bias.defined() ? 1.0 : 0.0}
      .run(out, vector ? as_row(out.layout()) : out.layout());
}

/// A tensor of rows as a matrix.
kernels::Array as_rows(const Tensor& x) {
  const int64_t m = x.numel() / x.size(-1), row = x.dim() == 1 ? x.size(-1) : x.stride(-2);
  return {x.data_ptr(), x.dtype(), Layout::strided({m, x.size(-1)}, {row, 1})};
}
kernels::Array array_or_none(const Tensor& x) { return x.defined() ? array(x) : kernels::Array{}; }

/// The same with the bits of a row independent of the others. Sums of whole numbers are exact in any order.
void multiply_rows(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (out.numel() == 0) return;
  if (!is_floating(out.dtype())) return multiply(out, x, weight, bias);
  const kernels::Array to = as_rows(out);
  const Tensor rows = x.dim() == 2 ? x : x.reshape({to.size(0), x.size(-1)});
  backend(out).matmul->linear_rows({to, array(rows), array(weight), array_or_none(bias)}, current_stream(out.device()));
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool aligned) {
  require_factors(x, weight);
  if (weight.dim() == 1) {  // one feature, which gets no dimension
    require<ShapeError>(!bias.defined() || bias.dim() == 0,
                        "the bias does not fit; got weight: {}, bias: {}; expected one element without dimensions",
                        weight, bias);
    return linear(x, weight.unsqueeze(0), bias.defined() ? bias.unsqueeze(0) : bias, aligned).squeeze(-1);
  }
  require_rank(weight, 2, "weight");
  require<ShapeError>(x.dim() > 0 && x.size(-1) == weight.size(1),
                      "features differ; got x: {}, weight: {}; expected x's last size to equal weight's", x, weight);
  if (bias.defined()) {
    require_same_device(bias, weight);
    require<DTypeError>(bias.dtype() == x.dtype(), "dtypes differ; got x: {}, bias: {}; expected one dtype", x, bias);
    require<ShapeError>(bias.dim() == 1 && bias.size(0) == weight.size(0),
                        "the bias does not fit; got weight: {}, bias: {}; expected one element for each row of weight",
                        weight, bias);
  }
  const bool by_rows = multiplies_rows(weight.dim());
  return door::call(
      by_rows ? Op::linear_rows : Op::linear, {&x, &weight, &bias},
      [&] {
        Dims sizes = x.sizes();
        sizes[sizes.size() - 1] = weight.size(0);
        Tensor out = aligned ? empty_aligned(sizes, x.options()) : empty(sizes, x.options());
        (by_rows ? multiply_rows : multiply)(out, x, weight, bias);
        return out;
      },
      aligned);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Running running("linear");
  return linear(x, weight, bias, false);
}
Tensor linear_aligned(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Running running("linear_aligned");
  return linear(x, weight, bias, true);
}

namespace {

/// One kernel's work; an undefined tensor if it cannot do it.
Tensor by_one_kernel(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearRowsWith& with) {
  const kernels::MatmulKernels& matmul = *backend(x).matmul;
  if (matmul.linear_rows_with == nullptr || x.numel() == 0 || weight.numel() == 0) return {};
  Dims sizes = x.sizes();
  sizes[sizes.size() - 1] = weight.size(0);
  const Tensor out = empty(sizes, x.options());
  const kernels::Array to = as_rows(out);
  const Tensor rows = x.dim() == 2 ? x : x.reshape({to.size(0), x.size(-1)});
  const Tensor scale = contiguous_or_none(with.norm_weight), shift = contiguous_or_none(with.norm_bias);
  kernels::CacheColumns cache;
  if (with.cache)
    cache = {.k_cache = array(with.cache->k_cache),
             .v_cache = array(with.cache->v_cache),
             .rows = {array(with.cache->block_table), array(with.cache->slots), array(with.cache->positions)},
             .k = with.cache->k,
             .v = with.cache->v};
  const bool done = matmul.linear_rows_with({to, array(rows), array(weight), array_or_none(bias)},
                                            {.norm = with.norm,
                                             .norm_weight = array_or_none(scale),
                                             .norm_bias = array_or_none(shift),
                                             .eps = with.eps,
                                             .gelu = with.gelu,
                                             .addend = with.addend.defined() ? as_rows(with.addend) : kernels::Array{},
                                             .cache = cache},
                                            current_stream(out.device()));
  return done ? out : Tensor();
}

}  // namespace

Tensor linear_rows_with(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearRowsWith& with) {
  using With = kernels::LinearRowsNeighbours;
  const Running running(with.cache ? "paged_write" : "linear");
  if (const Tensor out = by_one_kernel(x, weight, bias, with); out.defined()) return out;
  const BatchInvariant scope;
  if (with.norm != With::no_norm) {
    const Dims row = {x.size(-1)};
    LinearRowsWith rest = with;
    rest.norm = With::no_norm;
    return linear_rows_with(with.norm == With::layer_norm
                                ? layer_norm(x, row, with.norm_weight, with.norm_bias, with.eps)
                                : rms_norm(x, row, with.norm_weight, with.eps),
                            weight, bias, rest);
  }
  const Tensor product = linear(x, weight, bias);
  if (with.gelu) return gelu(product, "tanh");
  if (with.cache) {
    const CacheWrite& to = *with.cache;
    const auto heads = [&](int64_t column) {
      const int64_t count = to.k_cache.size(2), d = to.k_cache.size(3);
      return product.narrow(1, column, count * d).view({product.size(0), count, d});
    };
    paged_write(to.k_cache, to.v_cache, heads(to.k), heads(to.v), to.block_table, to.slots, to.positions);
  }
  return with.addend.defined() ? product + with.addend : product;
}

std::optional<kernels::LinearRowsLimits> linear_rows_limits(DType dtype, Device device) {
  const kernels::MatmulKernels& matmul = *kernels::backend(device).matmul;
  if ((dtype != kF16 && dtype != kBF16) || matmul.linear_rows_limits == nullptr) return std::nullopt;
  const kernels::LinearRowsLimits limits = matmul.linear_rows_limits(device);
  return limits.few_rows > 0 ? std::optional(limits) : std::nullopt;
}

void set_matmul_precision(Precision precision) { kernels::matmul_settings().precision = precision; }
Precision matmul_precision() { return kernels::matmul_settings().precision; }
void set_matmul_tuning(bool on) { kernels::matmul_settings().tuning = on; }
bool matmul_tuning() { return kernels::matmul_settings().tuning; }

Tensor Tensor::matmul(const Tensor& other) const { return lorry::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return lorry::mm(*this, other); }
Tensor Tensor::bmm(const Tensor& other) const { return lorry::bmm(*this, other); }
Tensor Tensor::mv(const Tensor& vector) const { return lorry::mv(*this, vector); }
Tensor Tensor::dot(const Tensor& other) const { return lorry::dot(*this, other); }
Tensor Tensor::outer(const Tensor& other) const { return lorry::outer(*this, other); }
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) const {
  return lorry::addmm(*this, a, b, beta, alpha);
}
Tensor Tensor::addmv(const Tensor& a, const Tensor& vector, const Scalar& beta, const Scalar& alpha) const {
  return lorry::addmv(*this, a, vector, beta, alpha);
}
const Tensor& Tensor::addmv_(const Tensor& a, const Tensor& vector, const Scalar& beta, const Scalar& alpha) const {
  const Running running("addmv");
  return copy_(lorry::addmv(*this, a, vector, beta, alpha));
}
const Tensor& Tensor::addmm_(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) const {
  const Running running("addmm");
  return Addition(2, *this, a, b, beta, alpha).call_in_place(Op::addmm);
}
Tensor Tensor::baddbmm(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) const {
  return lorry::baddbmm(*this, a, b, beta, alpha);
}
const Tensor& Tensor::baddbmm_(const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) const {
  const Running running("baddbmm");
  return Addition(3, *this, a, b, beta, alpha).call_in_place(Op::baddbmm);
}

}  // namespace lorry
