#include <iostream>

#include "lorry/lorry.h"

int main() {
  const auto x = lorry::randn({64, 3});
  const auto y = x.matmul(lorry::tensor({2.0f, -1.0f, 0.5f}).unsqueeze(1)) + 1;
  lorry::nn::Linear line(3, 1);
  lorry::optim::SGD sgd(line.named_parameters(), {.lr = 0.2});
  for (int step = 0; step < 100; ++step) {
    sgd.zero_grad();
    lorry::mse_loss(line.forward(x), y).backward();
    sgd.step();
  }
  std::cout << line.weight << "\n" << line.bias << "\n";  // 2, -1, 0.5 and 1
}
