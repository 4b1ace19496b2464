// Factories that fill: constants, sequences, identity and one-hot matrices, triangles.

#include <cmath>

#include "lorry/ops/array.h"
#include "lorry/ops/copy.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/views.h"

namespace lorry {

Tensor zeros(const Dims& sizes, const Options& options) {
  const Running running("zeros");
  return empty(sizes, options).zero_();
}
Tensor ones(const Dims& sizes, const Options& options) {
  const Running running("ones");
  return full(sizes, 1, options);
}
Tensor full(const Dims& sizes, const Scalar& value) { return full(sizes, value, {.dtype = value.dtype()}); }
Tensor full(const Dims& sizes, const Scalar& value, const Options& options) {
  const Running running("full");
  return empty(sizes, options).fill_(value);
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  const Running running("zeros_like");
  return (dtype ? empty_like(x, *dtype) : empty_like(x)).zero_();
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  const Running running("ones_like");
  return full_like(x, 1, dtype);
}
Tensor full_like(const Tensor& x, const Scalar& value, std::optional<DType> dtype) {
  const Running running("full_like");
  return (dtype ? empty_like(x, *dtype) : empty_like(x)).fill_(value);
}

namespace {

/// The number of steps from start that stay before end.
int64_t count_steps(double start, double end, double step) {
  require<ValueError>(std::isfinite(start) && std::isfinite(end) && step != 0 && !std::isnan(step),
                      "bounds must be finite and step not 0; got start {}, end {}, step {}", start, end, step);
  require<ValueError>(step > 0 ? end >= start : end <= start, "step leads away from end; got start {}, end {}, step {}",
                      start, end, step);
  const double count = std::ceil((end - start) / step);
  require<ShapeError>(count < 0x1p60, "too many elements; got start {}, end {}, step {}", start, end, step);
  return static_cast<int64_t>(count);
}

/// The same for whole numbers, where f64 would lose the low bits.
int64_t count_steps(int64_t start, int64_t end, int64_t step) {
  require<ValueError>(step != 0, "step must not be 0; got start {}, end {}", start, end);
  require<ValueError>(step > 0 ? end >= start : end <= start, "step leads away from end; got start {}, end {}, step {}",
                      start, end, step);
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = distance / stride + (distance % stride != 0 ? 1 : 0);
  require<ShapeError>(count < uint64_t{1} << 60, "too many elements; got start {}, end {}, step {}", start, end, step);
  return static_cast<int64_t>(count);
}

/// An end of a range of whole numbers, which has to fit into the dtype.
double whole_end(double value, DType dtype) {
  const double whole = std::trunc(value);
  const bool fits =
      visit(dtype, [&]<class T>(Type<T>) { return static_cast<double>(static_cast<T>(to_whole(whole))) == whole; });
  require<ValueError>(fits, "an end is out of range for {}; got {}; expected a number that it holds", dtype, value);
  return whole;
}

DType natural(const Scalar& a, const Scalar& b, const Scalar& c) {
  return a.is_floating() || b.is_floating() || c.is_floating() ? kF32 : kI64;
}

}  // namespace

Tensor arange(const Scalar& end) { return arange(0, end, 1); }
Tensor arange(const Scalar& end, const Options& options) { return arange(0, end, 1, options); }
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step) {
  return arange(start, end, step, {.dtype = natural(start, end, step)});
}
Tensor arange(const Scalar& start, const Scalar& end, const Options& options) { return arange(start, end, 1, options); }

Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step, const Options& options) {
  const Running running("arange");
  require<DTypeError>(options.dtype != kBool,
                      "a sequence of bool makes no sense; got dtype bool; expected a number type");
  const bool whole = natural(start, end, step) == kI64;
  const int64_t count = whole ? count_steps(start.to<int64_t>(), end.to<int64_t>(), step.to<int64_t>())
                              : count_steps(start.to<double>(), end.to<double>(), step.to<double>());
  return door::call(
      Op::arange, {},
      [&] {
        const Tensor out = empty({count}, options);
        const auto& kernels = *backend(out).creation;
        const Stream stream = current_stream(options.device);
        if (whole || is_integral(options.dtype)) {
          kernels.arange_integral(array(out), start.to<int64_t>(), step.to<int64_t>(), stream);
        } else {
          kernels.arange_floating(array(out), start.to<double>(), step.to<double>(), stream);
        }
        return out;
      },
      start, end, step, options.dtype, options.device);
}

Tensor linspace(double start, double end, int64_t steps, const Options& options) {
  const Running running("linspace");
  require<ValueError>(steps >= 0, "negative number of steps; got {}", steps);
  if (!is_floating(options.dtype)) {
    start = whole_end(start, options.dtype);
    end = whole_end(end, options.dtype);
  }
  return door::call(
      Op::linspace, {},
      [&] {
        const Tensor out = empty({steps}, options);
        backend(out).creation->linspace(array(out), start, end, current_stream(options.device));
        return out;
      },
      start, end, steps, options.dtype, options.device);
}

Tensor logspace(double start, double end, int64_t steps, double base, const Options& options) {
  const Running running("logspace");
  require<ValueError>(steps >= 0, "negative number of steps; got {}", steps);
  return pow(Scalar(base), linspace(start, end, steps, {kF64, options.device})).to(options.dtype);
}

namespace {
/// `value` into all of `out`, which has to have the sizes.
const Tensor& fill_out(const Tensor& out, const Dims& sizes, const Scalar& value) {
  require_defined(out, "out");
  return write_out(out, full({}, value, out.options()).expand(sizes));
}
}  // namespace

const Tensor& empty_out(const Tensor& out, const Dims& sizes) {
  const Running running("empty");
  require_defined(out, "out");
  prepare_out(out, {sizes, out.dtype(), out.device()}, false);
  return out;
}
const Tensor& zeros_out(const Tensor& out, const Dims& sizes) {
  const Running running("zeros");
  return fill_out(out, sizes, 0);
}
const Tensor& ones_out(const Tensor& out, const Dims& sizes) {
  const Running running("ones");
  return fill_out(out, sizes, 1);
}
const Tensor& full_out(const Tensor& out, const Dims& sizes, const Scalar& value) {
  const Running running("full");
  return fill_out(out, sizes, value);
}
const Tensor& logspace_out(const Tensor& out, double start, double end, int64_t steps, double base) {
  const Running running("logspace");
  require_defined(out, "out");
  return write_out(out, logspace(start, end, steps, base, out.options()));
}
const Tensor& eye_out(const Tensor& out, int64_t n) { return eye_out(out, n, n); }
const Tensor& eye_out(const Tensor& out, int64_t n, int64_t m) {
  const Running running("eye");
  require_defined(out, "out");
  return write_out(out, eye(n, m, out.options()));
}
const Tensor& arange_out(const Tensor& out, const Scalar& start, const Scalar& end, const Scalar& step) {
  const Running running("arange");
  require_defined(out, "out");
  return write_out(out, arange(start, end, step, out.options()));
}
const Tensor& arange_out(const Tensor& out, const Scalar& end) { return arange_out(out, 0, end); }
const Tensor& linspace_out(const Tensor& out, double start, double end, int64_t steps) {
  const Running running("linspace");
  require_defined(out, "out");
  return write_out(out, linspace(start, end, steps, out.options()));
}

Tensor eye(int64_t n, const Options& options) { return eye(n, n, options); }

Tensor eye(int64_t n, int64_t m, const Options& options) {
  const Running running("eye");
  const Tensor out = zeros({n, m}, options);
  diagonal(out).fill_(1);
  return out;
}

Tensor one_hot(const Tensor& x, int64_t num_classes) {
  const Running running("one_hot");
  require_defined(x, "x");
  require<DTypeError>(x.dtype() == kI64, "class numbers must be i64; got {}", x);
  require<ValueError>(
      num_classes >= -1 && (num_classes > 0 || x.numel() > 0),
      "num_classes is out of range, or cannot be inferred from an empty tensor; got {} for {}; expected a "
      "positive number",
      num_classes, x);
  const int64_t classes = num_classes > 0 ? num_classes : x.max().item<int64_t>() + 1;
  Dims sizes = x.sizes();
  sizes.push_back(std::max<int64_t>(classes, 0));
  return zeros(sizes, {kI64, x.device()}).scatter_(-1, unsqueeze(x, -1), 1);
}

namespace {

void require_matrix(const Tensor& x) {
  require_defined(x, "x");
  require<ShapeError>(x.dim() >= 2, "a matrix is needed; got {}; expected at least 2 dimensions", x);
}

Tensor triangle(Op op, const Tensor& x, int64_t diagonal) {
  require_matrix(x);
  return door::call(
      op, {&x},
      [&] {
        const Tensor out = empty(x.sizes(), x.options());
        const int64_t rows = x.size(-2), columns = x.size(-1);
        // Diagonals beyond the corners select the same elements as the corners' own.
        backend(x).creation->triangle(array(out), array(x), std::clamp(diagonal, -rows, columns), op == Op::triu,
                                      current_stream(x.device()));
        return out;
      },
      diagonal);
}

const Tensor& triangle_(Op op, const Tensor& x, int64_t diagonal) {
  require_matrix(x);
  if (!without_repeats(x).is_same(x)) {
    const int64_t rows = x.size(-2), columns = x.size(-1), split = std::clamp(diagonal, -rows, columns);
    const Tensor all = ones({rows, columns}, {kBool, x.device()}),
                 outside = op == Op::tril ? triu(all, split + 1) : tril(all, split - 1);
    return x.masked_fill_(outside, x.dtype() == kBool ? Scalar(false) : Scalar(0));
  }
  return door::call_in_place(
      op, x, {}, [&] { x.copy_(triangle(op, x, diagonal)); }, diagonal);
}

}  // namespace

Tensor tril(const Tensor& x, int64_t diagonal) {
  const Running running("tril");
  return triangle(Op::tril, x, diagonal);
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  const Running running("triu");
  return triangle(Op::triu, x, diagonal);
}
const Tensor& tril_out(const Tensor& out, const Tensor& x, int64_t diagonal) {
  const Running running("tril");
  return write_out(out, tril(x, diagonal));
}
const Tensor& triu_out(const Tensor& out, const Tensor& x, int64_t diagonal) {
  const Running running("triu");
  return write_out(out, triu(x, diagonal));
}
Tensor Tensor::tril(int64_t diagonal) const {
  const Running running("tril");
  return triangle(Op::tril, *this, diagonal);
}
Tensor Tensor::triu(int64_t diagonal) const {
  const Running running("triu");
  return triangle(Op::triu, *this, diagonal);
}
const Tensor& Tensor::tril_(int64_t diagonal) const {
  const Running running("tril");
  return triangle_(Op::tril, *this, diagonal);
}
const Tensor& Tensor::triu_(int64_t diagonal) const {
  const Running running("triu");
  return triangle_(Op::triu, *this, diagonal);
}

}  // namespace lorry
