#include "lorry/ops/softmax.h"

#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/internal.h"

namespace lorry {
namespace {

/// The contiguous result of kernel(out, inputs..., dim), which is contiguous like each input. fewest: the lines side by
/// side from which on the kernel takes a dimension that is not the last; otherwise it is given the transposed tensors.
template <class Kernel, class... Inputs>
Tensor along(int64_t dim, int64_t fewest, Kernel kernel, const Tensor& x, const Inputs&... others) {
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  if (inner <= 1 || (inner >= fewest && x.size(dim) <= backend(x).softmax->longest_column)) {
    const Tensor out = empty(x.sizes(), x.options());
    kernel(out, x.contiguous(), others.contiguous()..., dim);
    return out;
  }
  const Tensor from = contiguous_lines(x, dim), out = empty(from.sizes(), x.options());
  kernel(out, from, contiguous_lines(others, dim)..., x.dim() - 1);
  return from_lines(out, dim);
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
        return along(
            dim, backend(x).softmax->fewest_columns,
            [&](const Tensor& out, const Tensor& from, int64_t d) {
              backend(x).softmax->softmax(array(out), array(from), d, log, current_stream(x.device()));
            },
            x);
      },
      dim);
}

Tensor backward(Op op, const Tensor& grad, const Tensor& out, int64_t dim, bool log) {
  dim = wrap_dim(dim, static_cast<int>(grad.dim()));
  return door::call(
      op, {&grad, &out},
      [&] {
        return along(
            dim, 0,
            [&](const Tensor& grad_x, const Tensor& g, const Tensor& y, int64_t d) {
              backend(grad).softmax->softmax_backward(array(grad_x), array(g), array(y), d, log,
                                                      current_stream(grad.device()));
            },
            grad, out);
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
