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
#include "lorry/replay/buckets.h"

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

/// A decode step at one position, over and over.
class FixedStep {
 public:
  FixedStep(const nn::GPT& model, int64_t sequences, int64_t position)
      : model_(model),
        blocks_(position / kBlock + 1),
        cache_(model.config(), sequences * blocks_, kBlock, {.dtype = model.tokens.weight.dtype()}),
        tokens_(zeros({sequences}, {kI64})),
        positions_(full({sequences}, position, {kI32})),
        slots_(arange(sequences).to(kI32)),
        table_(arange(sequences * blocks_).to(kI32).view({sequences, blocks_})),
        temperature_(ones({sequences}, {kF32})),
        top_k_(zeros({sequences}, {kI32})),
        uniform_(rand({sequences}, {kF64})) {}

  /// The rows from n on are padding.
  void use(int64_t n) {
    slots_.copy_(arange(slots_.size(0)).to(kI32));
    if (n < slots_.size(0)) slots_.narrow(0, n, slots_.size(0) - n).fill_(-1);
  }
  void run(int64_t rows) {
    const auto first = [&](const Tensor& x) { return x.narrow(0, 0, rows); };
    const Tensor logits =
        model_.forward(nn::PagedBatch{first(tokens_), first(positions_), first(slots_), table_}, cache_);
    first(tokens_).copy_(
        sample_tokens(logits, first(temperature_), first(top_k_), first(temperature_), first(uniform_)));
  }

 private:
  static constexpr int64_t kBlock = 16;
  const nn::GPT& model_;
  const int64_t blocks_;
  const nn::PagedCache cache_;
  const Tensor tokens_, positions_, slots_, table_, temperature_, top_k_, uniform_;
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

  /// A step of the model alone, at sizes up to `largest`: in a graph of exactly that size, and in the smallest bucket
  /// of the default ones that holds it, whose other rows are padding.
  void sizes(int64_t largest) {
    const std::string what = fmt::format("decode {} in buckets, context {}", what_.preset, what_.prompt);
    const std::vector<int64_t> buckets = replay::default_sizes(true, largest);
    std::vector<int64_t> wanted;
    for (int64_t n = 1; n <= largest; ++n)
      if ((n <= 8 || n % 8 == 1 || n % 8 == 5 || n % 8 == 0) && filter_(fmt::format("{}, batch {}", what, n)))
        wanted.push_back(n);
    if (wanted.empty()) return;
    const BatchInvariant invariant;
    FixedStep step(*model_, largest, what_.prompt);
    const auto make = [&](std::vector<int64_t> of) {
      return replay::BucketSet([&step](int64_t rows) { step.run(rows); },
                               {.sizes = std::move(of), .execution = Execution::graph});
    };
    auto exact = make(wanted), padded = make(buckets);
    const double exact_s = seconds([&] { exact.prepare(wanted.back()); }),
                 padded_s = seconds([&] { padded.prepare(buckets.back()); });
    for (const int64_t n : wanted) {
      step.use(n);
      for (auto* const set : {&exact, &padded}) {
        Result& row = rows_.emplace_back();
        row.suite = "generate";
        row.name = fmt::format("{}, batch {}", what, n);
        row.dtype = lorry::name(what_.dtype);
        row.implementation = set == &exact ? "lorry graph of the size" : "lorry graph of the bucket";
        row.time = profile::benchmark([&] { (*set)(n); }, {.warmup_s = 0.005, .total_s = 0.03, .min_samples = 5});
        row.tokens_per_s = static_cast<double>(n) * 1e6 / row.time.median_us;
        row.capture_s = set == &exact ? exact_s : padded_s;
        int64_t bytes = 0;
        for (const replay::BucketStats& bucket : set->stats()) bytes += bucket.bytes;
        row.graph_bytes = bytes;
      }
    }
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
  if (wanted(Execution::graph)) cases.sizes(on_gpu ? 160 : 16);
  for (const int64_t rows : {1, 8, 64})
    if (wanted(Execution::both)) cases.batch(rows, Execution::both, false);
  return cases.rows();
}

}  // namespace lorry::bench
