// From the start of a process to the first number computed on a GPU: prints the milliseconds since main began.
// bench/measure_gpu times the whole process too.

#include <fmt/core.h>

#include <chrono>

#include "lorry/ops/ops.h"

int main() {
  const auto begin = std::chrono::steady_clock::now();
  const lorry::Device gpu{lorry::DeviceType::cuda, 0};
  const double sum = lorry::ones({64}, {.device = gpu}).add(1).sum().item<double>();
  fmt::print("{:.3f}\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  return sum == 128 ? 0 : 1;
}
