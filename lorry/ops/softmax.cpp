#include "lorry/ops/softmax.h"

#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

/// x with `dim` last and its elements side by side, as the kernels read it; x itself where it already is so.
Tensor rows(const Tensor& x, int64_t dim) {
  return (x.dim() < 2 || dim == x.dim() - 1 ? x : x.transpose(dim, -1)).contiguous();
}

/// The inverse of `rows` for a result: the dimensions stand in their places again.
Tensor from_rows(const Tensor& out, int64_t dim) {
  return out.dim() < 2 || dim == out.dim() - 1 ? out : door::owning(out.transpose(dim, -1));
}

Tensor forward(Op op, const Tensor& input, int64_t dim, std::optional<DType> dtype, bool log) {
  require_defined(input, "x");
  const Tensor x = dtype ? input.to(*dtype) : input;
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got {}; expected one of {}; pass a dtype", x,
                      kFloatingNames);
  dim = wrap_dim(dim, static_cast<int>(x.dim()));
  return door::call(
      op, {&x},
      [&] {
        const Tensor from = rows(x, dim);
        const Tensor out = empty(from.sizes(), from.options());
        backend(x).softmax->softmax(array(out), array(from), log, current_stream(x.device()));
        return from_rows(out, dim);
      },
      dim);
}

Tensor backward(Op op, const Tensor& grad, const Tensor& out, int64_t dim, bool log) {
  return door::call(
      op, {&grad, &out},
      [&] {
        const Tensor g = rows(grad, dim), y = rows(out, dim);
        const Tensor grad_x = empty(g.sizes(), g.options());
        backend(grad).softmax->softmax_backward(array(grad_x), array(g), array(y), log, current_stream(grad.device()));
        return from_rows(grad_x, dim);
      },
      dim);
}

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("softmax");
  return forward(Op::softmax, x, dim, dtype, false);
}
Tensor log_softmax(const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("log_softmax");
  return forward(Op::log_softmax, x, dim, dtype, true);
}

const Tensor& softmax_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("softmax");
  return write_out(out, softmax(x, dim, dtype));
}
const Tensor& log_softmax_out(const Tensor& out, const Tensor& x, int64_t dim, std::optional<DType> dtype) {
  const Running running("log_softmax");
  return write_out(out, log_softmax(x, dim, dtype));
}

Tensor softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim) {
  const Running running("softmax_backward");
  return backward(Op::softmax_backward, grad, out, dim, false);
}
Tensor log_softmax_backward(const Tensor& grad, const Tensor& out, int64_t dim) {
  const Running running("log_softmax_backward");
  return backward(Op::log_softmax_backward, grad, out, dim, true);
}

Tensor Tensor::softmax(int64_t dim, std::optional<DType> dtype) const { return lorry::softmax(*this, dim, dtype); }
Tensor Tensor::log_softmax(int64_t dim, std::optional<DType> dtype) const {
  return lorry::log_softmax(*this, dim, dtype);
}

}  // namespace lorry
