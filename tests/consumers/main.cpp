// A program outside the tree: prints the type to which two others promote, and where a rule of its own arrives, so that
// the library is truly linked and its headers suffice. The rule's fused step is compiled here: it must give the bits of
// the library's operators.
#include <cstdio>
#include <string>

#include "lorry/lorry.h"

namespace {

using namespace lorry;

/// Products and sums that a compiler would contract.
Tensor stepped(optim::Execution execution) {
  manual_seed(1);
  const Tensor w = randn({1000}).requires_grad_();
  const auto momentum = [](auto& param, auto grad, auto* states, const auto& h) {
    states[0] = h[0] * states[0] + 0.3 * grad;
    param -= h.lr * states[0] + 0.7 * grad;
  };
  optim::Custom optimizer({{"w", w}}, optim::rule<1>(momentum, 0.25, {0.9}), execution);
  for (int step = 0; step < 3; ++step) {
    w.set_grad(randn({1000}));
    optimizer.step();
  }
  return w.detach();
}

}  // namespace

int main() {
  std::printf("%s on %d threads\n", std::string(name(promote(kF16, kBF16))).c_str(), cpu::threads());
  if (!stepped(optim::Execution::fused).equal(stepped(optim::Execution::loop))) {
    std::printf("a rule compiled here gives other bits than the library's operators\n");
    return 1;
  }
  const Tensor w = ones({2}).requires_grad_();
  optim::Custom optimizer(
      {{"w", w}},
      optim::rule<0>([](auto& param, auto grad, auto*, const auto& h) { param = param - h.lr * grad; }, 0.25));
  w.set_grad(ones({2}));
  optimizer.step();
  return w.detach().sum().item<double>() == 1.5 ? 0 : 1;
}
