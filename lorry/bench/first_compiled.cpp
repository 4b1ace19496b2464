// How long a program waits for compilation on a GPU: prints milliseconds, and whether NVRTC was opened. Each case is a
// separate process, because a process compiles every kernel once; LORRY_CACHE_DIR determines what is cached already.
// bench/measure_gpu runs it.
//
//   lorry_first_compiled chain       from the first call of a function of 8 operators to the fused kernel's result
//   lorry_first_compiled chain warm  the same, half a second after it was built
//   lorry_first_compiled many        first calls of 100 functions with 100 kernels
//   lorry_first_compiled adamw       the first compiled AdamW step of a GPT-2

#include <fmt/core.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/compile/compile.h"
#include "lorry/device/device.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"

namespace {

using namespace lorry;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bool nvrtc_is_open() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libnvrtc.so") != std::string::npos) return true;
  return false;
}

double chain(bool warm) {
  const Tensor x = randn({1 << 20}), y = rand({1 << 20});
  const auto f = [](const Tensor& a, const Tensor& b) { return sigmoid((a * 2 + b).abs() * b - a) * 0.5 + b; };
  f(x, y);
  device::synchronize(x.device());
  const auto compiled = compile(f, {.wait = true});
  if (warm) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const auto begin = Clock::now();
  compiled(x, y);
  compiled(x, y);
  device::synchronize(x.device());
  return milliseconds_since(begin);
}

/// A chain of operators chosen by the digits of `which`.
Tensor one_of_many(int which, const Tensor& x) {
  Tensor y = x + 1;
  for (int digits = which + 4 * 4 * 4 * 4; digits > 1; digits /= 4) switch (digits % 4) {
      case 0:
        y = y.exp();
        break;
      case 1:
        y = y.abs();
        break;
      case 2:
        y = y.tanh();
        break;
      default:
        y = y.square();
    }
  return y * x;
}

double many() {
  const Tensor x = rand({1 << 16});
  (void)one_of_many(0, x);
  device::synchronize(x.device());
  const auto begin = Clock::now();
  // Start all compilations in the background before waiting for any.
  for (const bool wait : {false, true})
    for (int k = 0; k < 100; ++k) compile([k](const Tensor& a) { return one_of_many(k, a); }, {.wait = wait})(x);
  device::synchronize(x.device());
  return milliseconds_since(begin);
}

double adamw() {
  nn::GPT model(nn::gpt_preset("gpt2"));
  for (const Tensor& p : model.parameters()) p.set_grad(zeros(p.sizes()));
  optim::AdamW optimizer(model.named_parameters(), {}, optim::Execution::compiled);
  device::synchronize(default_device());
  const auto begin = Clock::now();
  optimizer.step();
  device::synchronize(default_device());
  return milliseconds_since(begin);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string which = count > 1 ? arguments[1] : "";
  set_default_device({DeviceType::cuda, 0});
  const NoGrad no_grad;
  double took = 0;
  if (which == "chain") {
    took = chain(count > 2);
  } else if (which == "many") {
    took = many();
  } else if (which == "adamw") {
    took = adamw();
  } else {
    fmt::print(stderr, "usage: lorry_first_compiled chain [warm] | many | adamw\n");
    return 2;
  }
  fmt::print("{:.3f} {}\n", took, nvrtc_is_open() ? "nvrtc" : "cached");
}
