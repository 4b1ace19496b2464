// An optimizer of one's own: fits a line with a rule that Lorry does not have. Compiled as own_rule.cu it has fused
// kernels for GPUs too.
#include <cstdio>

#include "examples/own_rule.h"
#include "lorry/lorry.h"

using namespace lorry;

int main() {
  manual_seed(1);
  const Tensor x = randn({256, 3}), y = x.matmul(tensor({2.0f, -1.0f, 0.5f}).unsqueeze(1)) + 1;
  nn::Linear line(3, 1);

  optim::Custom optimizer(line.named_parameters(), optim::rule<1>(SignMomentum(), 0.05, {0.8}));
  for (int step = 0; step < 200; ++step) {
    optimizer.set_lr(0.05 / (1 + step / 20));
    optimizer.zero_grad();
    mse_loss(line.forward(x), y).backward();
    optimizer.step({.max_norm = 1});
  }
  std::printf("%s steps: ", std::string(name(optimizer.execution())).c_str());
  for (const double w : line.weight.detach().to(kF64).to(kCPU).to_vector<double>()) std::printf("%.1f ", w);
  std::printf("and %.1f\n", line.bias.item<double>());
}
