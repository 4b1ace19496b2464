// A training loop: a small network learns which of two spirals a point lies on.
#include <cstdio>

#include "lorry/lorry.h"

using namespace lorry;

/// n points of each spiral, [2 n, 2], and which one each belongs to, [2 n].
std::pair<Tensor, Tensor> spirals(int64_t n) {
  const Tensor turn = rand({n}) * 8 + 1;
  const Tensor one = stack({turn * turn.cos(), turn * turn.sin()}, 1) / 9;
  return {cat({one, -one}) + randn({2 * n, 2}) * 0.01, cat({zeros({n}, {kI64}), ones({n}, {kI64})})};
}

struct Network : nn::Layer<Network> {
  Network() {
    add("in", in);
    add("hidden", hidden);
    add("out", out);
  }
  Tensor forward(const Tensor& x) const { return out(gelu(hidden(gelu(in(x))))); }

  nn::Linear in{2, 64}, hidden{64, 64}, out{64, 2};
};

int main() {
  manual_seed(7);
  Network network;
  optim::AdamW optimizer(network.named_parameters(), {.lr = 5e-3});
  for (int step = 1; step <= 600; ++step) {
    const auto [x, which] = spirals(64);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(network(x), which);
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %3d  loss %.4f\n", step, loss.item<double>());
  }

  const NoGrad no_grad;
  const auto [x, which] = spirals(500);
  const double right = network(x).argmax(1).eq(which).to(kF32).mean().item<double>();
  std::printf("%.1f %% of unseen points right\n", 100 * right);
  return right > 0.95 ? 0 : 1;
}
