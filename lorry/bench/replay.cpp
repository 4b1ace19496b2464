// Graphs against calls: a deep narrow network at several batch sizes, run by operators, replayed, compiled, and both.
// Its kernels take less time than the host takes to start them. And what it costs to move the weights of a graph.

#include <deque>
#include <utility>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/compile_cases.h"
#include "lorry/bench/footprint.h"
#include "lorry/bench/suites.h"
#include "lorry/nn/gpt.h"
#include "lorry/nn/layers.h"
#include "lorry/ops/ops.h"
#include "lorry/replay/graph.h"

namespace lorry::bench {
namespace {

/// 24 linear layers of one width, each followed by relu.
struct Layers {
  Layers(int64_t width, DType dtype) {
    for (int i = 0; i < 24; ++i) layers.emplace_back(width, width).to(dtype);
  }
  Tensor operator()(const Tensor& x) const {
    Tensor y = x;
    for (const nn::Linear& layer : layers) y = relu(layer(y));
    return y;
  }
  std::deque<nn::Linear> layers;
};

class ReplayCases {
 public:
  explicit ReplayCases(const Filter& filter) : filter_(filter) {}

  void layers(int64_t width, DType dtype, int64_t batch) {
    const std::string name = fmt::format("24 x (linear {} + relu), batch {}", width, batch);
    if (!filter_(name)) return;
    manual_seed(1);
    const Layers model(width, dtype);
    const Tensor x = randn({batch, width}).to(dtype);
    const auto compiled = compile([&](const Tensor& in) { return model(in); }, {.wait = true});
    for (int call = 0; call < 4; ++call) compiled(x);
    replay::Graph graph([&] { return std::vector{model(x)}; }), both([&] { return std::vector{compiled(x)}; });
    require_same_bits(name, model(x), replayed(graph));
    require_same_bits(name, compiled(x), replayed(both));
    add(name, dtype, "lorry eager", [&] { profile::do_not_optimize(model(x)); });
    add(name, dtype, "lorry graph", [&] { graph.replay(); });
    add(name, dtype, "lorry compiled", [&] { profile::do_not_optimize(compiled(x)); });
    add(name, dtype, "lorry compiled, graph", [&] { both.replay(); });
  }
  /// A forward pass whose weights all get other memory before each replay.
  void moves(const char* preset, DType dtype) {
    const std::string name = fmt::format("{} with all weights moved", preset);
    if (!filter_(name)) return;
    manual_seed(1);
    nn::GPT model(nn::gpt_preset(preset));
    model.to(dtype);
    model.eval();
    const Tensor tokens = zeros({1, 16}, {kI64});
    replay::Graph graph([&] { return std::vector{model(tokens)}; }, {.follow = model.named_parameters()});
    const std::vector<Tensor> parameters = model.parameters();
    std::vector<Tensor> spare;
    for (const Tensor& p : parameters) spare.push_back(p.detach().mul(0.9));
    const auto move = [&] {
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Tensor before = parameters[i].detach();
        parameters[i].set_data(std::exchange(spare[i], before));
      }
      graph.replay();
    };
    move();
    require_same_bits(name, model(tokens), graph.outputs()[0]);
    add(name, dtype, "lorry graph, weights stay", [&] { graph.replay(); });
    add(name, dtype, "lorry graph", move);
  }
  std::vector<Result> rows() { return std::move(rows_); }

 private:
  static Tensor replayed(replay::Graph& graph) {
    graph.replay();
    return graph.outputs()[0];
  }
  template <class F>
  void add(const std::string& name, DType dtype, const char* implementation, const F& call) {
    Result& row = rows_.emplace_back();
    row.suite = "replay";
    row.name = name;
    row.dtype = lorry::name(dtype);
    row.implementation = implementation;
    count_call(row, call);
    row.time = profile::benchmark(call, {.device = row.device});
  }

  const Filter& filter_;
  std::vector<Result> rows_;
};

}  // namespace

std::vector<Result> replay_suite(const Filter& filter) {
  const NoGrad no_gradients;
  ReplayCases cases(filter);
  const bool on_gpu = !default_device().is_cpu();
  for (const int64_t batch : {1, 2, 4, 8, 16, 32, 64, 128})
    cases.layers(on_gpu ? 512 : 64, on_gpu ? kF16 : kF32, batch);
  cases.moves(on_gpu ? "gpt2" : "nano", on_gpu ? kBF16 : kF32);
  return cases.rows();
}

}  // namespace lorry::bench
