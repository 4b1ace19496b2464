// One optimizer step over ResNet-50's parameters (161 tensors, 25.6 M elements; f32, and bf16 with masters), by execution, beside a
// plain memory copy: a fused step moves each byte of parameter, gradient and state once, and can be no faster than that. The peer is
// bench/peers/optim_torch.py.

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/adamw.h"
#include "lorry/optim/clip.h"
#include "lorry/optim/sgd.h"

namespace {

using namespace lorry;

/// He, Zhang, Ren, Sun 2016, table 1: convolutions without biases, a scale and a shift after each.
std::vector<Dims> resnet50() {
  std::vector<Dims> shapes;
  const auto convolution = [&](int64_t out, int64_t in, int64_t size) {
    shapes.push_back({out, in, size, size});
    shapes.push_back({out});
    shapes.push_back({out});
  };
  convolution(64, 3, 7);
  int64_t in = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t width = int64_t{64} << stage, out = width * 4;
    for (int block = 0; block < blocks[stage]; ++block) {
      convolution(width, in, 1);
      convolution(width, width, 3);
      convolution(out, width, 1);
      if (block == 0) convolution(out, in, 1);
      in = out;
    }
  }
  shapes.push_back({1000, 2048});
  shapes.push_back({1000});
  return shapes;
}

std::vector<Tensor> parameters(DType dtype = kF32) {
  std::vector<Tensor> params;
  for (const Dims& shape : resnet50()) {
    const Tensor x = empty(shape, {.dtype = dtype}), grad = empty(shape, {.dtype = dtype});
    x.fill_(0.5);
    grad.fill_(0.01);
    x.requires_grad_();
    x.set_grad(grad);
    params.push_back(x);
  }
  return params;
}

int64_t bytes_of(const std::vector<Tensor>& params) {
  int64_t bytes = 0;
  for (const Tensor& x : params) bytes += x.nbytes();
  return bytes;
}

/// `arrays` counts the arrays as large as the parameters that a step reads or writes; an f32 counts twice beside a bf16.
template <class Optimizer, class Options>
void step(benchmark::State& state, const Options& options, optim::Execution execution, int64_t arrays, DType dtype = kF32) {
  const std::vector<Tensor> params = parameters(dtype);
  Optimizer optimizer(optim::numbered(params), options, execution);
  optimizer.step();  // makes the state
  for (auto _ : state) optimizer.step();
  state.SetBytesProcessed(state.iterations() * bytes_of(params) * arrays);
}

void copy(benchmark::State& state) {
  const int64_t bytes = bytes_of(parameters());
  std::vector<char> from(static_cast<size_t>(bytes), 1), to(static_cast<size_t>(bytes), 2);
  for (auto _ : state)
    cpu::parallel_for(bytes, 4096, [&](int64_t begin, int64_t end) { std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin)); });
  state.SetBytesProcessed(state.iterations() * bytes * 2);
}

void clip(benchmark::State& state) {
  const std::vector<Tensor> params = parameters();
  for (auto _ : state) optim::clip_grad_norm_(params, 1e30);
  state.SetBytesProcessed(state.iterations() * bytes_of(params));
}

}  // namespace

int main(int count, char** arguments) {
  using optim::Execution;
  const auto add = [](const char* name, auto&& body) { benchmark::RegisterBenchmark(name, body)->UseRealTime()->Unit(benchmark::kMillisecond); };
  add("copy", copy);
  add("clip_grad_norm_", clip);
  for (const Execution execution : {Execution::fused, Execution::loop}) {
    const std::string suffix = fmt::format("_{}", optim::name(execution));
    add(("adamw" + suffix).c_str(), [=](benchmark::State& state) { step<optim::AdamW>(state, optim::AdamWOptions{}, execution, 7); });
    add(("adamw_bf16_masters" + suffix).c_str(),
        [=](benchmark::State& state) { step<optim::AdamW>(state, optim::AdamWOptions{.masters = true}, execution, 14, kBF16); });
    add(("sgd_momentum" + suffix).c_str(), [=](benchmark::State& state) { step<optim::SGD>(state, optim::SGDOptions{.momentum = 0.9}, execution, 5); });
  }
  benchmark::Initialize(&count, arguments);
  if (benchmark::ReportUnrecognizedArguments(count, arguments)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
