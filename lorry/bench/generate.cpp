// Decoding with generate::Engine: steps of a GPT at several batch sizes, run by operators, replayed, compiled, and
// both. bench/peers/generate_torch.py does the same in PyTorch.

#include "lorry/generate/engine.h"

#include <algorithm>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/footprint.h"
#include "lorry/bench/replay.h"
#include "lorry/bench/suites.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using replay::Execution;

/// A model with random weights: the speed of a step does not depend on them.
struct Model {
  const char* preset;
  DType dtype;
  int64_t prompt;  ///< tokens before those that are timed
  int64_t tokens;  ///< how many are timed
};

class Decoding {
 public:
  Decoding(const Model& model, const Filter& filter) : what_(model), filter_(filter) {
    manual_seed(1);
    model_.emplace(nn::gpt_preset(model.preset));
    model_->to(model.dtype);
    model_->eval();
  }

  void batch(int64_t rows, Execution execution, bool batch_invariant) {
    const std::string name = fmt::format("decode {}, context {}, batch {}", what_.preset, what_.prompt, rows);
    if (!filter_(name)) return;
    generate::Engine engine(*model_, {.sequences = rows,
                                      .prefill_chunk = rows * what_.prompt,
                                      .batch_invariant = batch_invariant,
                                      .buckets = {.sizes = {rows}, .execution = execution}});
    Result& row = rows_.emplace_back();
    row.suite = "generate";
    row.name = name;
    row.dtype = lorry::name(what_.dtype);
    row.implementation = fmt::format("lorry {}{}", replay::name(execution), batch_invariant ? "" : ", fast");
    row.capture_s = seconds([&] { engine.prepare(); });
    // A sample is a run from the prompts to the last tokens; what comes before the first tokens is not timed.
    row.time = profile::benchmark([&] { return begin(engine, rows); }, [&](int) { run(engine); },
                                  {.warmup_s = 0.1, .total_s = 1, .min_samples = 5, .max_inputs = 1});
    const double per_token = 1.0 / static_cast<double>(what_.tokens);
    for (double* x : {&row.time.median_us, &row.time.min_us, &row.time.p90_us, &row.time.submit_us}) *x *= per_token;
    row.tokens_per_s = static_cast<double>(rows) * 1e6 / row.time.median_us;
    row.bytes = bytes(rows);
  }

  /// From a prompt of one token to the first drawn one, alone.
  void first_token() {
    const std::string name = fmt::format("first token {}", what_.preset);
    if (!filter_(name)) return;
    Result& row = rows_.emplace_back();
    row.suite = "generate";
    row.name = name;
    row.dtype = lorry::name(what_.dtype);
    row.time = profile::benchmark(
        [&] {
          generate::Engine engine(*model_, {.sequences = 1, .buckets = {.execution = Execution::eager}});
          engine.submit({.tokens = {1}, .limit = 1});
          run(engine);
        },
        profile::first_call(row.device));
  }
  std::vector<Result> rows() { return std::move(rows_); }

 private:
  template <class F>
  static double seconds(const F& work) {
    const double start = profile::detail::steady_seconds();
    work();
    device::synchronize(default_device());
    return profile::detail::steady_seconds() - start;
  }

  static void run(generate::Engine& engine) {
    while (!engine.idle()) engine.step();
  }

  /// Submits the requests and makes steps until every text has a token.
  int begin(generate::Engine& engine, int64_t rows) const {
    for (int64_t i = 0; i < rows; ++i)
      engine.submit({.tokens = std::vector<int64_t>(static_cast<size_t>(what_.prompt), i % 7),
                     .limit = what_.tokens + 1,
                     .sampling = {.seed = static_cast<uint64_t>(i)}});
    std::set<int64_t> begun;
    while (std::ssize(begun) < rows)
      for (const generate::Update& update : engine.step()) begun.insert(update.request);
    device::synchronize(default_device());
    return 0;
  }

  /// What a step must read: the weights, and the keys and values of every text.
  int64_t bytes(int64_t rows) const {
    const nn::GPTConfig& c = model_->config();
    int64_t elements = 0;
    for (const Tensor& x : model_->parameters()) elements += x.numel();
    return size_of(what_.dtype) * (elements + rows * 2 * c.layers * c.width * (what_.prompt + what_.tokens / 2));
  }

  const Model what_;
  const Filter& filter_;
  std::optional<nn::GPT> model_;
  std::vector<Result> rows_;
};

}  // namespace

std::vector<Result> generate_suite(const Filter& filter) { return generate_suite(filter, {}); }

std::vector<Result> generate_suite(const Filter& filter, const std::vector<Execution>& executions) {
  const NoGrad no_gradients;
  const bool on_gpu = !default_device().is_cpu();
  const Model model = on_gpu ? Model{"gpt2", kBF16, 512, 64} : Model{"nano", kF32, 32, 64};
  const auto wanted = [&](Execution e) { return executions.empty() || std::ranges::count(executions, e) > 0; };
  Decoding cases(model, filter);
  cases.first_token();
  for (const int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128})
    for (const Execution execution : replay::kExecutions)
      if (wanted(execution)) cases.batch(rows, execution, true);
  for (const int64_t rows : {1, 8, 64})
    if (wanted(Execution::both)) cases.batch(rows, Execution::both, false);
  return cases.rows();
}

}  // namespace lorry::bench
