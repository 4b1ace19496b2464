// From a slow program to a fast one: a training step as it is often first written, what the profiler says of it, and
// the step with its advice taken.
#include <cstdio>

#include "lorry/lorry.h"

using namespace lorry;

struct Net : nn::Layer<Net> {
  Net() { add("up", up), add("down", down); }
  Tensor forward(const Tensor& x) const { return down(up(x).relu()); }
  nn::Linear up{32, 64}, down{64, 10};
};

/// Targets are written element by element, the loss is put together from operators, and the momentum is a loop.
void slow_step(Net& net, const Tensor& x, const std::vector<int64_t>& labels, std::vector<Tensor>& momentum) {
  const Tensor targets = zeros({x.size(0), 10});
  for (size_t i = 0; i < labels.size(); ++i) targets.select(0, static_cast<int64_t>(i)).select(0, labels[i]).fill_(1);
  const Tensor loss = -(targets * log_softmax(net(x), 1)).sum({1}).mean();
  loss.backward();
  const NoGrad no_grad;
  size_t i = 0;
  for (const Tensor& p : net.parameters()) {
    momentum[i].mul_(0.9).add_(p.grad());
    p.sub_(momentum[i++] * 0.01);
  }
  net.zero_grad();
}

/// The same step: labels in one tensor, one call for the loss, one for all parameters.
void fast_step(Net& net, const Tensor& x, const std::vector<int64_t>& labels, optim::SGD& optimizer) {
  cross_entropy(net(x), from_data(labels)).backward();
  optimizer.step();
  optimizer.zero_grad();
}

/// The time of ten steps in milliseconds, and what the profiler says of them.
template <class Step>
double ten_steps(const char* name, Step&& step) {
  for (int i = 0; i < 3; ++i) step();  // memory is taken, and libraries are ready
  profile::Session session;
  for (int i = 0; i < 10; ++i) {
    const Scope one("step");
    step();
  }
  const profile::Recording recording = session.stop();
  std::printf(
      "---- %s ----\n%s\n%s", name,
      profile::to_string(profile::table(recording, {.sort_by = profile::SortBy::self_cpu, .row_limit = 6})).c_str(),
      profile::to_string(profile::diagnose(recording)).c_str());
  return static_cast<double>(recording.duration) / 1e6;
}

int main() {
  Net net;
  const Tensor x = randn({4096, 32});
  std::vector<int64_t> labels(4096);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 10);
  std::vector<Tensor> momentum;
  for (const Tensor& p : net.parameters()) momentum.push_back(zeros_like(p));
  const double slow = ten_steps("as first written", [&] { slow_step(net, x, labels, momentum); });
  optim::SGD optimizer(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  const double fast = ten_steps("with the advice taken", [&] { fast_step(net, x, labels, optimizer); });
  std::printf("ten steps: %.1f ms, then %.1f ms\n", slow, fast);
}
