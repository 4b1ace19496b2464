// Planted culprits of the CPU.

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>

#include "lorry/lorry.h"
#include "tests/profile/culprits.h"

namespace lorry::test {
namespace {

using Kind = profile::Finding::Kind;
using profile::Regime;

/// The dtype in which products are fastest here, so that no other is better.
DType fastest_dtype() {
  const auto& rates = profile::ceilings(kCPU).matmul_flops_per_s;
  return std::ranges::max_element(rates, {}, [](const auto& x) { return x.second; })->first;
}

Program heavy_arithmetic(Device device) {
  // In f64 a power is computed element by element.
  const Options options{.dtype = kF64, .device = device};
  const Tensor x = rand({1 << 20}, options), y = empty({1 << 20}, options);
  const auto f = compile([](const Tensor& z) { return pow(z, tan(z)).exp(); }, {.wait = true});
  return {.run =
              [=] {
                tan_out(y, x);
                pow_out(y, x, y);
                exp_out(y, y);
              },
          .cured = [=] { f(x); }};
}

/// A tensor that a cache holds, in one call.
Program good_products(Device device) { return products(device, fastest_dtype(), 768); }

/// Reads lines that another thread writes slowly into a pipe.
Program slow_pipe(Device device) {
  const Tensor x = zeros({1024}, {.device = device});
  return {.run = [x] {
    int ends[2];
    if (pipe(ends) != 0) return;
    std::thread writer([&] {
      for (int i = 0; i < 5; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const char line[] = "1\n";
        if (write(ends[1], line, sizeof line) < 0) break;
      }
      close(ends[1]);
    });
    char read_here[64];
    while (read(ends[0], read_here, sizeof read_here) > 0) x.add_(1);
    writer.join();
    close(ends[0]);
  }};
}

/// The host computes between calls.
Program busy_host(Device device) {
  const Tensor x = zeros({1024}, {.device = device});
  return {.run = [x] {
    std::vector<int> numbers(100'000);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i * 7919 % 100'003);
    std::ranges::sort(numbers);
    x.add_(numbers[1]);
  }};
}

Program f32_products(Device device) { return products(device, kF32, 768); }
Program f64_products(Device device) {
  return {.run = products(device, kF64, 512).run, .cured = products(device, kF32, 512).run};
}

}  // namespace

std::vector<Culprit> culprits_on_cpu() {
  return {
      {"elements written one by one", written_one_by_one, 20, Regime::overhead, {Kind::elements}},
      {"elements read one by one", read_one_by_one, 20, Regime::overhead, {Kind::elements}},
      {"tiny updates", tiny_updates, 20, Regime::overhead, {}, {Kind::graph, Kind::fuse}},
      {"a loop over small parameters", loop_over_parameters, 100, Regime::overhead, {Kind::foreach}},
      {"an optimizer by loop", optimizer_by_loop, 20, Regime::overhead, {Kind::optimizer}},
      {"a chain of pointwise operators", chain_of_pointwise, 3, Regime::memory, {Kind::fuse}, {Kind::out_of_place}},
      {"a compiled chain", compiled_chain, 5, Regime::memory},
      {"a small chain", small_chain, 100, Regime::overhead, {Kind::graph}, {Kind::fuse}},
      {"a chain as a graph", graphed_chain, 200, Regime::overhead},
      {"a large copy", large_copy, 5, Regime::memory},
      {"layer norm and relu", norm_and_relu, 5, Regime::memory, {Kind::fuse}, {Kind::out_of_place}},
      {"products in f32", f32_products, 10, Regime::compute, {}, {Kind::dtype}},
      {"products in f64", f64_products, 10, Regime::compute, {Kind::dtype}},
      {"products in the fastest dtype", good_products, 10, Regime::compute},
      {"tan, pow, exp in f64", heavy_arithmetic, 5, Regime::compute, {}, {Kind::fuse}},
      {"many small products", small_products, 100, Regime::overhead, {Kind::batch}},
      {"a copy before a sum", copied_before_sum, 5, Regime::memory, {Kind::contiguous}},
      {"a new tensor each time", new_tensor_each_time, 8, Regime::memory, {Kind::out_of_place}, {Kind::fuse}},
      {"a sleeping loader", sleeping_loader, 8, Regime::waiting},
      {"a slow pipe", slow_pipe, 4, Regime::waiting},
      {"a busy host", busy_host, 8, Regime::overhead},
      {"a small training step", training_step, 200, Regime::overhead, {Kind::graph}, {Kind::fuse}},
      {"a training step as a graph", graphed_step, 400, Regime::overhead},
  };
}

}  // namespace lorry::test
