// Planted culprits that are the same on every device.

#include <chrono>
#include <memory>
#include <thread>

#include "lorry/lorry.h"
#include "tests/profile/culprits.h"

namespace lorry::test {
namespace {

/// Elements that no cache holds, and few enough for a test.
int64_t large(Device device) { return int64_t{1} << (device.is_cuda() ? 26 : 24); }

std::vector<Tensor> many(Device device, int64_t count, int64_t elements) {
  std::vector<Tensor> made;
  for (int64_t i = 0; i < count; ++i) made.push_back(ones({elements}, {.device = device}));
  return made;
}

Tensor chain(const Tensor& x, const Tensor& y) { return x.mul(y).add(1).relu().mul(0.5).sub(y).abs(); }

}  // namespace

Program written_one_by_one(Device device) {
  const Tensor x = zeros({2000}, {.device = device});
  return {.run =
              [x] {
                for (int64_t i = 0; i < x.size(0); ++i) x.select(0, i).fill_(2 * i);
              },
          .cured = [x] { x.copy_(arange(0, 2 * x.size(0), 2, {.dtype = kF32, .device = x.device()})); }};
}

Program read_one_by_one(Device device) {
  const Tensor x = ones({2000}, {.device = device});
  const auto total = std::make_shared<double>(0);
  return {.run =
              [x, total] {
                for (int64_t i = 0; i < x.size(0); ++i) *total += x.select(0, i).item<float>();
              },
          .cured =
              [x, total] {
                for (const float value : x.to_vector<float>()) *total += value;
              }};
}

Program tiny_updates(Device device) {
  const Tensor x = zeros({64}, {.device = device}), y = ones({64}, {.device = device});
  return {.run = [x, y] {
    for (int i = 0; i < 2000; ++i) x.add_(y);
  }};
}

Program loop_over_parameters(Device device) {
  const std::vector<Tensor> params = many(device, 200, 64), steps = many(device, 200, 64);
  return {.run =
              [=] {
                for (size_t i = 0; i < params.size(); ++i) params[i].add_(steps[i], -0.1);
              },
          .cured = [a = foreach::TensorList(params), b = foreach::TensorList(steps)] { foreach::add_(a, b, -0.1); }};
}

Program optimizer_by_loop(Device device) {
  const auto step_by = [&](optim::Execution execution) {
    std::vector<Tensor> params = many(device, 200, 64);
    for (Tensor& x : params) x.requires_grad_().set_grad(ones({64}, {.device = device}));
    const auto made =
        std::make_shared<optim::AdamW>(optim::numbered(params), optim::AdamWOptions{.lr = 1e-3}, execution);
    return [made] { made->step(); };
  };
  return {.run = step_by(optim::Execution::loop), .cured = step_by(optim::Execution::fused)};
}

Program chain_of_pointwise(Device device) {
  const Tensor x = randn({large(device)}, {.device = device}), y = randn({large(device)}, {.device = device});
  return {.run = [=] { chain(x, y); }, .cured = [f = compile(chain, {.wait = true}), x, y] { f(x, y); }};
}

Program compiled_chain(Device device) {
  const Tensor x = randn({large(device)}, {.device = device}), y = randn({large(device)}, {.device = device});
  return {.run = [f = compile(chain, {.wait = true}), x, y] { f(x, y); }};
}

Program small_chain(Device device) {
  const Tensor x = randn({256}, {.device = device}), y = randn({256}, {.device = device});
  const auto work = [=] {
    Tensor z = x;
    for (int i = 0; i < 20; ++i) z = chain(z, y);
    return z;
  };
  const auto graph =
      std::make_shared<replay::Graph>([work] { return std::vector{work()}; }, replay::CaptureOptions{.device = device});
  return {.run = work, .cured = [graph] { graph->replay(); }};
}

Program graphed_chain(Device device) { return {.run = small_chain(device).cured}; }

Program large_copy(Device device) {
  const Tensor x = ones({large(device)}, {.device = device}), y = zeros({large(device)}, {.device = device});
  return {.run = [=] { y.copy_(x); }};
}

Program norm_and_relu(Device device) {
  const int64_t width = 1024;
  const Tensor x = randn({large(device) / 4 / width, width}, {.device = device});
  const Tensor weight = ones({width}, {.device = device}), bias = zeros({width}, {.device = device});
  const auto f = [](const Tensor& a, const Tensor& w, const Tensor& b) { return layer_norm(a, {1024}, w, b).relu(); };
  return {.run = [=] { f(x, weight, bias); },
          .cured = [g = compile(f, {.wait = true}), x, weight, bias] { g(x, weight, bias); }};
}

Program small_products(Device device) {
  const Tensor a = randn({64, 16, 16}, {.device = device}), b = randn({64, 16, 16}, {.device = device});
  std::vector<Tensor> left, right;
  for (int64_t i = 0; i < 64; ++i) left.push_back(a[i].clone()), right.push_back(b[i].clone());
  return {.run =
              [=] {
                for (size_t i = 0; i < left.size(); ++i) matmul(left[i], right[i]);
              },
          .cured = [=] { bmm(a, b); }};
}

Program copied_before_sum(Device device) {
  const int64_t n = device.is_cuda() ? 8192 : 2048;
  const Tensor x = randn({n, n}, {.device = device});
  return {.run = [=] { x.t().contiguous().sum({1}); }, .cured = [=] { x.t().sum({1}); }};
}

Program new_tensor_each_time(Device device) {
  const Tensor first = zeros({large(device)}, {.device = device});
  const auto x = std::make_shared<Tensor>(first);
  return {.run = [x] { *x = x->add(1); }, .cured = [x] { x->add_(1); }};
}

Program sleeping_loader(Device device) {
  const Tensor x = ones({1024}, {.device = device});
  return {.run =
              [x] {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                x.mul_(1);
              },
          .cured = [x] { x.mul_(1); }};
}

namespace {

/// A small model and its optimizer.
struct Step {
  Step(Device device)
      : x(randn({4, 16}, {.device = device})),
        up(randn({16, 16}, {.device = device}).requires_grad_()),
        down(randn({16, 16}, {.device = device}).requires_grad_()),
        optimizer(optim::numbered({up, down}), {.lr = 1e-3}) {}
  void operator()() {
    const Tensor loss = matmul(matmul(x, up).relu(), down).pow(2).mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  Tensor x, up, down;
  optim::AdamW optimizer;
};

}  // namespace

Program training_step(Device device) {
  const auto step = std::make_shared<Step>(device), captured = std::make_shared<Step>(device);
  const auto graph = std::make_shared<replay::Graph>(
      [captured] {
        (*captured)();
        return std::vector<Tensor>();
      },
      replay::CaptureOptions{.device = device});
  return {.run = [step] { (*step)(); }, .cured = [graph, captured] { graph->replay(); }};
}

Program graphed_step(Device device) { return {.run = training_step(device).cured}; }

Program products(Device device, DType dtype, int64_t n) {
  const Tensor a = randn({n, n}, {.device = device}).to(dtype), b = randn({n, n}, {.device = device}).to(dtype);
  return {.run = [=] { matmul(a, b); }};
}

}  // namespace lorry::test
