// Planted culprits of a GPU.

#include <chrono>

#include "lorry/lorry.h"
#include "tests/profile/culprits.h"

namespace lorry::test {
namespace {

using Kind = profile::Finding::Kind;
using profile::Regime;

constexpr int kSteps = 20;

/// Steps of a model that a GPU does in far less time than the host needs to call it, with something after each one.
std::function<void()> small_steps(Device device, const std::function<void(const Tensor&)>& after) {
  const Tensor x = randn({64, 256}, {.device = device}), weight = randn({256, 256}, {.device = device});
  return [=] {
    for (int i = 0; i < kSteps; ++i) {
      Tensor y = x;
      for (int k = 0; k < 6; ++k) y = matmul(y, weight).tanh();
      after(y);
    }
  };
}

/// Work of the host between two calls of a program: reading data, logging.
void host_work() {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  while (std::chrono::steady_clock::now() < end) {
  }
}

/// Steps that take a GPU longer than the host: it idles only when something waits for it.
std::function<void()> large_steps(Device device, const std::function<void(const Tensor&)>& after) {
  const Tensor x = ones({1 << 25}, {.device = device});
  return [=] {
    for (int i = 0; i < kSteps; ++i) {
      for (int k = 0; k < 6; ++k) x.mul_(1);
      after(x.narrow(0, 0, 4096));
      host_work();
    }
  };
}

// The cured programs do the same work, and do not wait for it.
Program hidden_nonzero(Device device) {
  return {.run = large_steps(device, [](const Tensor& y) { y.nonzero(); }),
          .cured = large_steps(device, [](const Tensor& y) { nonzero_static(y, y.numel()); })};
}
Program loss_each_step(Device device) {
  return {.run = large_steps(device, [](const Tensor& y) { y.mean().item<float>(); }),
          .cured = large_steps(device, [](const Tensor& y) { y.mean().to(kCPU, true); })};
}
Program nonzero_in_small_steps(Device device) {
  return {.run = small_steps(device, [](const Tensor& y) { y.nonzero(); })};
}
Program masked_selects(Device device) {
  return {.run = small_steps(device, [](const Tensor& y) { masked_select(y, y > 0.5); })};
}
Program loss_of_small_steps(Device device) {
  return {.run = small_steps(device, [](const Tensor& y) { y.mean().item<float>(); })};
}

/// Long work of the GPU, then short work of the host. The GPU idles for as long as the host needs after the wait.
Program wait_before_host_work(Device device) {
  const Tensor x = randn({1 << 24}, {.device = device});
  const Tensor loss = ones({}, {.device = device});
  const auto steps = [=](const std::function<void()>& read) {
    return [=] {
      for (int i = 0; i < kSteps; ++i) {
        for (int k = 0; k < 24; ++k) x.mul_(1);
        read();
        for (int k = 0; k < 2; ++k) host_work();
      }
    };
  };
  return {.run = steps([loss] { loss.item<float>(); }), .cured = steps([loss] { loss.to(kCPU, true); })};
}

Program wait_that_is_not_to_blame(Device device) {
  const Tensor x = randn({4096, 4096}, {.device = device});
  return {.run =
              [x] {
                Tensor y = x;
                for (int i = 0; i < 10; ++i) y = matmul(x, x);
                y.select(0, 0).select(0, 0).item<float>();
              },
          .cured =
              [x] {
                for (int i = 0; i < 10; ++i) matmul(x, x);
              }};
}

Program several_items(Device device) {
  const Tensor x = randn({64, 64}, {.device = device});
  const auto work = [x] {
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = matmul(y, x).tanh();
    return std::vector{y.sum(), y.amax(), y.amin(), y.mean()};
  };
  return {.run =
              [work] {
                for (int i = 0; i < kSteps; ++i)
                  for (const Tensor& value : work()) value.item<float>();
              },
          .cured =
              [work] {
                for (int i = 0; i < kSteps; ++i) stack(work()).to_vector<float>();
              }};
}

Program host_tensors(Device device) {
  const Tensor sum = zeros({1 << 22}, {.device = device});
  return {.run = [=] { sum.add_(rand({1 << 22}, {.device = kCPU}).to(device)); },
          .cured = [=] { sum.add_(rand({1 << 22}, {.device = device})); }};
}

/// Copies of data that stay on the host.
Program copies(Device device, bool pinned) {
  const Tensor pageable = ones({1 << 24}, {.device = kCPU}), fast = pageable.pin_memory();
  const Tensor target = zeros({1 << 24}, {.device = device});
  const auto run = [=](const Tensor& from) { return [=] { target.copy_(from); }; };
  if (pinned) return {.run = run(fast)};
  return {.run = run(pageable), .cured = run(fast)};
}
Program pageable_copies(Device device) { return copies(device, false); }
Program pinned_copies(Device device) { return copies(device, true); }

Program bf16_products(Device device) { return products(device, kBF16, 8192); }
Program f32_products(Device device) { return products(device, kF32, 4096); }

Program misaligned_products(Device device) {
  return {.run = products(device, kBF16, 4095).run, .cured = products(device, kBF16, 4096).run};
}

}  // namespace

std::vector<Culprit> culprits_on_gpu() {
  const PlantedWait nonzero{"nonzero", kSteps}, select{"masked_select", kSteps}, item{"item", kSteps};
  const std::vector<Kind> small{Kind::graph, Kind::fuse, Kind::batch};
  return {
      {"hidden nonzero", hidden_nonzero, 10, Regime::memory, {}, {Kind::graph}, {nonzero}, true},
      {"the loss of each step", loss_each_step, 10, Regime::memory, {}, {Kind::graph}, {item}, true},
      {"nonzero in small steps", nonzero_in_small_steps, 10, Regime::overhead, {}, small, {nonzero}},
      {"masked_select", masked_selects, 10, Regime::overhead, {}, small, {select}},
      {"the loss of small steps", loss_of_small_steps, 10, Regime::overhead, {}, small, {item}},
      {"a wait before host work", wait_before_host_work, 5, Regime::memory, {}, {Kind::graph}, {item}, true},
      {"a wait that is not to blame",
       wait_that_is_not_to_blame,
       5,
       Regime::compute,
       {},
       {Kind::dtype},
       {{"item", 1, 0, true}}},
      {"waits that could be one",
       several_items,
       10,
       Regime::overhead,
       {Kind::waits},
       small,
       {{"item", 4 * kSteps, 3 * kSteps}}},
      {"tensors made on the host", host_tensors, 5, Regime::waiting, {Kind::host_tensors}, {Kind::pageable}},
      {"pageable copies", pageable_copies, 5, Regime::waiting, {Kind::pageable}},
      {"pinned copies", pinned_copies, 5, Regime::waiting, {}, {}, {{"copy", 1, 0, std::nullopt}}},
      {"a chain bound by launches", small_chain, 20, Regime::overhead, {Kind::graph}, {Kind::fuse}},
      {"a chain as a graph", graphed_chain, 50, Regime::overhead},
      {"a chain of pointwise operators",
       chain_of_pointwise,
       5,
       Regime::memory,
       {Kind::fuse},
       {Kind::out_of_place, Kind::graph}},
      {"a compiled chain", compiled_chain, 10, Regime::memory},
      {"layer norm and relu", norm_and_relu, 10, Regime::memory, {Kind::fuse}},
      {"products in bf16", bf16_products, 10, Regime::compute},
      {"products in f32", f32_products, 10, Regime::compute, {Kind::dtype}},
      {"sizes off by one", misaligned_products, 10, Regime::compute, {Kind::alignment}},
      {"many small products", small_products, 20, Regime::overhead, {Kind::batch}, {Kind::graph}},
      {"a loop over small parameters", loop_over_parameters, 20, Regime::overhead, {Kind::foreach}, {Kind::graph}},
      {"an optimizer by loop", optimizer_by_loop, 10, Regime::overhead, {Kind::optimizer}, small},
      {"a small training step", training_step, 50, Regime::overhead, {Kind::graph}, {Kind::fuse}},
      {"a training step as a graph", graphed_step, 50, Regime::overhead},
      {"elements written one by one", written_one_by_one, 2, Regime::overhead, {Kind::elements}, {Kind::graph}},
      {"elements read one by one",
       read_one_by_one,
       2,
       Regime::waiting,
       {Kind::elements},
       {Kind::waits},
       {{"item", 2000, -1}}},
      {"a copy before a sum", copied_before_sum, 10, Regime::memory, {Kind::contiguous}},
      {"a large copy", large_copy, 10, Regime::memory},
      {"a sleeping loader", sleeping_loader, 8, Regime::waiting},
  };
}

}  // namespace lorry::test
