// Gradients by hand: fits y = a x + b to noisy points by following the slope of the error.
#include <cstdio>

#include "lorry/lorry.h"

using namespace lorry;

int main() {
  manual_seed(1);
  const Tensor x = linspace(-1, 1, 200);
  const Tensor y = x * 3 - 0.5 + randn({200}) * 0.1;

  Tensor a = zeros({}).requires_grad_(), b = zeros({}).requires_grad_();
  for (int step = 0; step < 100; ++step) {
    const Tensor error = mse_loss(a * x + b, y);
    error.backward();  // adds d error / d a to a.grad(), and the same for b

    const NoGrad no_grad;  // the update itself is not part of what is differentiated
    for (const Tensor& p : {a, b}) {
      p.sub_(p.grad() * 0.5);
      p.set_grad({});
    }
    if (step % 20 == 0) std::printf("step %2d  error %.4f\n", step, error.item<double>());
  }
  std::printf("y = %.2f x + %.2f\n", a.item<double>(), b.item<double>());
}
