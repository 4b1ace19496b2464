// An operator of one's own: softplus, whose forward and backward are written by hand, checked against the slope that
// differences give.
#include <cmath>
#include <cstdio>

#include "lorry/lorry.h"

using namespace lorry;

/// log(1 + exp(x)) without overflow.
struct Softplus : autograd::Function<Softplus> {
  static Tensor forward(autograd::Context& context, const Tensor& x, double beta) {
    context.save_for_backward({x});
    context.saved_data["beta"] = beta;
    const Tensor scaled = x * beta;
    return (scaled.clamp(0.0) + (-scaled.abs()).exp().log1p()) / beta;
  }
  /// One gradient for each argument of forward: none for beta, which is a number.
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& grads) {
    const Tensor x = context.saved_tensors()[0];
    const double beta = std::any_cast<double>(context.saved_data["beta"]);
    return {grads[0] * (x * beta).sigmoid(), Tensor()};
  }
};

int main() {
  const Tensor x = tensor({-2.0, 0.5, 3.0}).to(kF64).requires_grad_();
  const Tensor slope = autograd::grad({Softplus::apply(x, 2.0).sum()}, {x}, {}, {.create_graph = true})[0];
  const Tensor curvature = autograd::grad({slope.sum()}, {x})[0];  // the backward is differentiable too

  double off = 0;
  for (int64_t i = 0; i < 3; ++i) {
    const auto f = [](double at) { return std::log1p(std::exp(2 * at)) / 2; };
    const double at = x.detach()[i].item<double>(), h = 1e-5;
    off = std::max(off, std::abs(slope.detach()[i].item<double>() - (f(at + h) - f(at - h)) / (2 * h)));
    std::printf("x %4.1f  slope %.4f  curvature %.4f\n", at, slope.detach()[i].item<double>(),
                curvature[i].item<double>());
  }
  std::printf("slopes agree with differences to 1e-8: %s\n", off < 1e-8 ? "yes" : "no");
}
