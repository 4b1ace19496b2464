// A program outside the tree: prints the type to which two others promote, and where a rule of its own arrives, so that the library is
// truly linked and its headers suffice.
#include <cstdio>
#include <string>

#include "lorry/device/cpu/team.h"
#include "lorry/lorry.h"
#include "lorry/optim/custom.h"

int main() {
  using namespace lorry;
  std::printf("%s on %d threads\n", std::string(name(promote(kF16, kBF16))).c_str(), cpu::threads());
  const Tensor w = ones({2}).requires_grad_();
  optim::Custom optimizer({{"w", w}}, optim::rule<0>([](auto& param, auto grad, auto*, const auto& h) { param = param - h.lr * grad; }, 0.25));
  w.set_grad(ones({2}));
  optimizer.step();
  return w.detach().sum().item<double>() == 1.5 ? 0 : 1;
}
