// Graphs against calls: a deep narrow network at several batch sizes, run by operators, replayed, compiled, and both.
// Its kernels take less time than the host takes to start them. And what it costs to move the weights of a graph.

#include "lorry/bench/replay.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/compile_cases.h"
#include "lorry/bench/footprint.h"
#include "lorry/memory/allocate.h"
#include "lorry/nn/gpt.h"
#include "lorry/nn/layers.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using replay::BucketSet;
using replay::BucketStats;
using replay::Execution;
using replay::Policy;

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

/// As results name them.
std::string implementation(Execution execution) {
  return execution == Execution::both ? "lorry compiled, graph" : fmt::format("lorry {}", replay::name(execution));
}

class ReplayCases {
 public:
  ReplayCases(const Filter& filter, const ReplayOptions& options, int64_t width, DType dtype)
      : filter_(filter), options_(options), width_(width), dtype_(dtype) {
    manual_seed(1);
    model_.emplace(width, dtype);
    if (options_.executions.empty()) options_.executions = {replay::kExecutions.begin(), replay::kExecutions.end()};
  }

  /// The model at one batch, over a tensor that stays where it is.
  void batch(int64_t rows) {
    if (!filter_(name_of(rows))) return;
    const Tensor x = randn({rows, width_}).to(dtype_);
    const auto compiled = compile([&](const Tensor& in) { return (*model_)(in); }, {.wait = true});
    for (const Execution execution : options_.executions) {
      const bool is_compiled = execution == Execution::compiled || execution == Execution::both;
      const auto pool = std::make_shared<memory::Pool>(x.device());
      std::optional<replay::Graph> graph;
      const auto forward = [&] { return is_compiled ? compiled(x) : (*model_)(x); };
      const double prepare_s = seconds([&] {
        for (int call = 0; call < 4; ++call) forward();
        if (execution == Execution::graph || execution == Execution::both)
          graph.emplace([&] { return std::vector{forward()}; }, replay::CaptureOptions{.pool = pool});
      });
      if (!graph) {
        add(rows, implementation(execution), [&] { profile::do_not_optimize(forward()); }).capture_s = prepare_s;
        continue;
      }
      graph->replay();
      require_same_bits(name_of(rows), forward(), graph->outputs()[0]);
      Result& row = add(rows, implementation(execution), [&] { graph->replay(); });
      row.capture_s = prepare_s;
      row.graph_bytes = graph->stats().bytes + pool->reserved();
    }
  }

  /// The model in a BucketSet, at batches that fit and others.
  void buckets(Execution execution, int64_t largest) {
    replay::BucketOptions how{.sizes = options_.sizes,
                              .padding = options_.padding,
                              .largest = largest,
                              .execution = execution,
                              .policy = options_.policy};
    BucketSet set([&](const Tensor& x) { return (*model_)(x); }, std::move(how));
    const double prepare_s = seconds([&] { set.prepare(zeros({1, width_}, {dtype_})); });
    int64_t bytes = 0;
    const std::vector<BucketStats> stats = set.stats();
    for (const BucketStats& bucket : stats) bytes += bucket.bytes;
    const std::string chosen = options_.policy == Policy::latency      ? "lorry by latency"
                               : options_.policy == Policy::throughput ? "lorry by throughput"
                                                                       : implementation(execution);
    for (const int64_t rows : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128}) {
      if (rows > stats.back().size || !filter_(name_of(rows))) continue;
      const Tensor x = randn({rows, width_}).to(dtype_);
      Result& row = add(rows, chosen + ", buckets", [&] { profile::do_not_optimize(set(x)); });
      row.capture_s = prepare_s;
      if (bytes > 0) row.graph_bytes = bytes;
    }
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
  std::string name_of(int64_t rows) const { return fmt::format("24 x (linear {} + relu), batch {}", width_, rows); }

  template <class F>
  static double seconds(const F& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    device::synchronize(default_device());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  template <class F>
  Result& add(const std::string& name, DType dtype, std::string implementation, const F& call) {
    Result& row = rows_.emplace_back();
    row.suite = "replay";
    row.name = name;
    row.dtype = lorry::name(dtype);
    row.implementation = std::move(implementation);
    count_call(row, call);
    row.time = profile::benchmark(call, {.device = row.device});
    return row;
  }
  template <class F>
  Result& add(int64_t rows, std::string implementation, const F& call) {
    Result& row = add(name_of(rows), dtype_, std::move(implementation), call);
    row.rows_per_s = static_cast<double>(rows) * 1e6 / row.time.median_us;
    const auto waited = [&] {
      call();
      device::synchronize(row.device);
    };
    row.latency_us = profile::benchmark(waited, {.total_s = 0.3, .device = row.device}).median_us;
    return row;
  }

  const Filter& filter_;
  ReplayOptions options_;
  const int64_t width_;
  const DType dtype_;
  std::optional<Layers> model_;
  std::vector<Result> rows_;
};

}  // namespace

std::vector<Result> replay_suite(const Filter& filter, const ReplayOptions& options) {
  const NoGrad no_gradients;
  const bool on_gpu = !default_device().is_cpu();
  ReplayCases cases(filter, options, on_gpu ? 512 : 64, on_gpu ? kF16 : kF32);
  if (!options.buckets()) {
    for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128}) cases.batch(rows);
    cases.moves(on_gpu ? "gpt2" : "nano", on_gpu ? kBF16 : kF32);
  } else if (options.policy != Policy::fixed) {
    cases.buckets(Execution::graph, 128);  // the policy chooses
  } else {
    for (const Execution execution : replay::kExecutions)
      if (options.executions.empty() || std::ranges::count(options.executions, execution) > 0)
        cases.buckets(execution, 128);
  }
  return cases.rows();
}

std::vector<Result> replay_suite(const Filter& filter) { return replay_suite(filter, {}); }

}  // namespace lorry::bench
