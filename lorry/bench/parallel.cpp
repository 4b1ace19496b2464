// What several ranks do together: mpirun -n 2 lorry bench parallel. Collectives by size, steps of an optimizer over the
// parameters of known models, and training steps. The rate is the bus bandwidth, as nccl-tests counts it: the bytes
// that cross the slowest link of a ring, whatever the number of ranks.

#include "lorry/bench/parallel.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/scaling.h"
#include "lorry/bench/shapes.h"
#include "lorry/device/device.h"
#include "lorry/nn/gpt.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"
#include "lorry/parallel/collectives.h"
#include "lorry/parallel/data_parallel.h"

namespace lorry::bench {
namespace {

using parallel::ProcessGroup;

constexpr int64_t kSizes[] = {8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, int64_t{256} << 20};
constexpr int64_t kMostOnCpu = 16 << 20;
constexpr int kSamples = 15;

std::string size_text(int64_t bytes) {
  if (bytes >= 1 << 20) return fmt::format("{} MiB", bytes >> 20);
  return bytes >= 1 << 10 ? fmt::format("{} KiB", bytes >> 10) : fmt::format("{} B", bytes);
}

/// A collective over `bytes` in all, and what of that crosses a link of a ring of n ranks.
struct Case {
  const char* name;
  double (*bus)(double n);
  std::function<void()> (*make)(const ProcessGroup& group, int64_t elements, Device device);
};
double twice_around(double n) { return 2 * (n - 1) / n; }
double once_around(double n) { return (n - 1) / n; }

constexpr Case kCases[] = {
    {"all_reduce", twice_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       return [group, x = zeros({elements}, {.device = device})] { parallel::all_reduce_(x, group); };
     }},
    {"all_gather", once_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       const Tensor part = zeros({elements / group.size()}, {.device = device});
       return [group, part, all = zeros({part.numel() * group.size()}, {.device = device})] {
         parallel::all_gather_out(all, part, group);
       };
     }},
    {"reduce_scatter", once_around,
     [](const ProcessGroup& group, int64_t elements, Device device) -> std::function<void()> {
       const Tensor part = zeros({elements / group.size()}, {.device = device});
       return [group, part, all = zeros({part.numel() * group.size()}, {.device = device})] {
         parallel::reduce_scatter_out(part, all, group);
       };
     }},
};

/// The time of a call, of the slowest rank: every rank makes the same number of calls. The time of submission is that
/// of the first call of a sample, which never waits for room in the GPU's queue.
profile::BenchmarkResult measure(const ProcessGroup& group, const std::function<void()>& call, int64_t calls,
                                 Device device) {
  const auto slowest = [&](double us) {
    double most = 0;
    for (const std::string& x : group.exchange(fmt::format("{}", us))) most = std::max(most, std::stod(x));
    return most;
  };
  std::vector<double> samples, submits;
  const Tensor start = zeros({1}, {.device = device});
  for (int sample = -2; sample < kSamples; ++sample) {
    parallel::barrier(group);
    parallel::all_reduce_(start, group);  // after it all begin within microseconds, with threads that have not slept
    device::synchronize(device);
    const double begin = profile::detail::steady_seconds();
    call();
    const double submitted = profile::detail::steady_seconds();
    for (int64_t i = 1; i < calls; ++i) call();
    device::synchronize(device);
    const double end = profile::detail::steady_seconds();
    const double us = slowest(1e6 * (end - begin) / static_cast<double>(calls));
    const double submit_us = slowest(1e6 * (submitted - begin));
    if (sample >= 0) samples.push_back(us), submits.push_back(submit_us);
  }
  std::ranges::sort(samples);
  std::ranges::sort(submits);
  const double median = samples[kSamples / 2];
  return {.median_us = median,
          .min_us = samples.front(),
          .p90_us = samples[kSamples * 9 / 10],
          .spread = (samples[kSamples * 3 / 4] - samples[kSamples / 4]) / median,
          .submit_us = submits[kSamples / 2],
          .samples = kSamples,
          .calls_per_sample = calls};
}

/// Measures cases, and holds their results. All ranks measure the same ones.
class ParallelCases {
 public:
  ParallelCases(const ProcessGroup& group, const Filter& filter, Device device)
      : group(group), device(device), filter_(filter) {}
  bool wants(const std::string& name) const { return filter_(name); }
  /// bytes: that cross a link of a ring in a call.
  double add(const std::string& name, double bytes, DType dtype, int64_t calls, const std::function<void()>& call) {
    results.push_back({.suite = "parallel",
                       .name = name,
                       .time = measure(group, call, calls, device),
                       .dtype = std::string(lorry::name(dtype)),
                       .bytes = bytes > 0 ? std::optional(static_cast<int64_t>(bytes)) : std::nullopt,
                       .device = device});
    return 1e-6 * results.back().time.median_us;
  }

  const ProcessGroup group;
  const Device device;
  std::vector<Result> results;

 private:
  const Filter& filter_;
};

void collective_cases(ParallelCases& cases) {
  const double n = cases.group.size();
  for (const Case& x : kCases)
    for (const int64_t bytes : kSizes) {
      const std::string name = fmt::format("{} of {} on {}", x.name, size_text(bytes), cases.group.size());
      const int64_t elements = bytes / size_of(kF32);
      if (elements < cases.group.size() || (cases.device.is_cpu() && bytes > kMostOnCpu) || !cases.wants(name))
        continue;
      const int64_t calls = std::clamp<int64_t>((int64_t{64} << 20) / bytes, 4, 100);
      cases.add(name, static_cast<double>(bytes) * x.bus(n), kF32, calls, x.make(cases.group, elements, cases.device));
    }
}

// ---- steps of an optimizer ------------------------------------------------------------------------------------------

/// Sums the gradients of a model's parameters, clips and steps AdamW, with shards or without. On a GPU the parameters
/// are bf16, with masters in f32.
void optimizer_cases(ParallelCases& cases) {
  const bool on_cpu = cases.device.is_cpu();
  const DType dtype = on_cpu ? kF32 : kBF16;
  const double n = cases.group.size();
  for (const char* model : {"resnet50", "gpt2", "llama-1b"}) {
    if (on_cpu != (std::string_view(model) == "resnet50")) continue;
    for (const bool shard : {false, true}) {
      const std::string name =
          fmt::format("adamw over {}{} on {}", model, shard ? ", sharded" : "", cases.group.size());
      if (!cases.wants(name)) continue;
      std::vector<optim::NamedTensor> parameters;
      double bytes = 0;
      for (const Dims& sizes : model_shapes(model).shapes()) {
        const Tensor x = full(sizes, 0.5, {.dtype = dtype, .device = cases.device}).requires_grad_();
        parameters.emplace_back(fmt::format("{}", parameters.size()), x);
        bytes += static_cast<double>(x.nbytes());
      }
      parallel::DataParallel ranks(parameters, cases.group, {.shard = shard});
      optim::AdamW optimizer(ranks.own_parts(parameters),
                             {.memory = {.masters = on_cpu ? optim::Masters::none : optim::Masters::f32}});
      // The gradients stay: a step sums them, steps, and brings the parameters of all ranks.
      cases.add(name, bytes * twice_around(n), dtype, 4, [&] {
        ranks.finish();
        ranks.step(optimizer, {.max_norm = 1});
        ranks.wait();
      });
    }
  }
}

// ---- training steps -------------------------------------------------------------------------------------------------

/// A GPT over bytes, and how much of a batch each rank has.
struct TrainCase {
  const char* name;
  nn::GPTConfig config;
  int64_t batch;
};

std::vector<TrainCase> train_models(Device device) {
  if (device.is_cpu()) {
    TrainCase nano{"nano", nn::gpt_preset("nano"), 2};
    nano.config.context = 64;
    return {nano};
  }
  TrainCase gpt2{"the layers of gpt2", nn::gpt_preset("gpt2"), 8};
  gpt2.config.vocab = 256;
  TrainCase wide{"a GPT as wide as llama-1b", gpt2.config, 4};
  wide.config.layers = 16, wide.config.heads = 32, wide.config.width = 2048;
  return {gpt2, wide};
}

/// The figures of a model's step that predictions need.
struct MeasuredStep {
  TrainCase what;
  double alone_s = 0, gradient_bytes = 0, last_bytes = 0;
};

enum class Ranks : uint8_t { alone, data_parallel, sharded };

/// Trains on random tokens. Returns the seconds of a step.
std::optional<double> train_case(ParallelCases& cases, const TrainCase& what, Ranks how, MeasuredStep& step) {
  const std::string name = fmt::format(
      "step of {}, {} x {} a rank, {}", what.name, what.batch, what.config.context,
      how == Ranks::alone ? "alone"
                          : fmt::format("{}on {}", how == Ranks::sharded ? "sharded " : "", cases.group.size()));
  if (!cases.wants(name)) return std::nullopt;
  nn::GPT model(what.config, {.device = cases.device});
  const DType dtype = cases.device.is_cpu() ? kF32 : kBF16;
  model.to(dtype);
  const Dims sizes = {what.batch, what.config.context};
  const Tensor x = randint(0, what.config.vocab, sizes, {.dtype = kI64, .device = cases.device}),
               y = randint(0, what.config.vocab, sizes, {.dtype = kI64, .device = cases.device});
  std::optional<parallel::DataParallel> ranks;
  if (how != Ranks::alone)
    ranks.emplace(model.named_parameters(), cases.group, parallel::DataParallelOptions{.shard = how == Ranks::sharded});
  const auto parameters = model.named_parameters();
  optim::AdamW optimizer(ranks ? ranks->own_parts(parameters) : parameters,
                         {.memory = {.masters = dtype == kF32 ? optim::Masters::none : optim::Masters::f32}});
  const optim::StepOptions options{.max_norm = 1};
  step.gradient_bytes = 0;
  for (const auto& [key, p] : parameters) step.gradient_bytes += static_cast<double>(p.nbytes());
  const parallel::DataParallelOptions buckets;
  step.last_bytes = std::min(step.gradient_bytes, static_cast<double>(buckets.bucket_bytes) / 8);
  const EnableGrad recording;
  const double sent = how == Ranks::alone ? 0 : step.gradient_bytes * twice_around(cases.group.size());
  return cases.add(name, sent, dtype, cases.device.is_cpu() ? 2 : 10, [&] {
    const Tensor loss = model.loss(x, y);
    (ranks ? loss * ranks->share() : loss).backward();
    ranks ? ranks->step(optimizer, options) : optimizer.step(options);
    ranks ? ranks->zero_grad() : optimizer.zero_grad();
  });
}

/// Those whose step alone was measured.
std::vector<MeasuredStep> train_cases(ParallelCases& cases) {
  std::vector<MeasuredStep> steps;
  for (const TrainCase& what : train_models(cases.device)) {
    MeasuredStep step{.what = what};
    const std::optional<double> alone = train_case(cases, what, Ranks::alone, step);
    for (const Ranks how : {Ranks::data_parallel, Ranks::sharded}) train_case(cases, what, how, step);
    if (!alone) continue;
    step.alone_s = *alone;
    steps.push_back(step);
  }
  return steps;
}

// ---- predictions ----------------------------------------------------------------------------------------------------

/// The links between the ranks, from two sizes of an all_reduce.
Link measure_link(ParallelCases& cases) {
  const double n = cases.group.size();
  const auto seconds = [&](int64_t bytes) {
    const Tensor x = zeros({bytes / size_of(kF32)}, {.device = cases.device});
    return 1e-6 * measure(
                      cases.group, [&] { parallel::all_reduce_(x, cases.group); }, 20, cases.device)
                      .median_us;
  };
  const int64_t large = cases.device.is_cpu() ? kMostOnCpu : int64_t{256} << 20;
  const double small_s = seconds(8), large_s = seconds(large);
  return {.latency_s = small_s / (2 * (n - 1)),
          .bytes_per_s = static_cast<double>(large) * twice_around(n) / std::max(large_s - small_s, 1e-9)};
}

void predict(ParallelCases& cases, const MeasuredStep& step, const Link& inside, const ParallelOptions& options) {
  const ScalingModel model{.compute_s = step.alone_s,
                           .gradient_bytes = step.gradient_bytes,
                           .last_bytes = step.last_bytes,
                           .inside = inside,
                           .between = {1e-6 * options.network_us, 1e9 * options.network_gb_per_s},
                           .per_machine = options.per_machine};
  for (int64_t ranks = 2; ranks <= options.simulate; ranks *= 2) {
    const PredictedStep predicted = predict_step(model, ranks);
    const double us = 1e6 * predicted.step_s;
    cases.results.push_back(
        {.suite = "parallel",
         .name = fmt::format("step of {}, {} x {} a rank, on {}", step.what.name, step.what.batch,
                             step.what.config.context, ranks),
         .time = {.median_us = us, .min_us = us, .p90_us = us},
         .dtype = cases.device.is_cpu() ? "f32" : "bf16",
         .bytes = static_cast<int64_t>(step.gradient_bytes * twice_around(static_cast<double>(ranks))),
         .implementation = fmt::format("predicted from {}", cases.group.size()),
         .device = cases.device});
  }
}

}  // namespace

std::vector<Result> parallel_suite(const Filter& filter, const ParallelOptions& options) {
  const NoGrad no_grad;
  const ProcessGroup group = parallel::join();
  if (group.size() == 1)
    raise<ValueError>(
        "bench: the suite parallel measures several processes; start it with mpirun -n N lorry bench "
        "parallel");
  ParallelCases cases(group, filter, default_device().is_cuda() ? group.device() : kCPU);
  collective_cases(cases);
  optimizer_cases(cases);
  const std::vector<MeasuredStep> steps = train_cases(cases);
  if (options.simulate > 0) {
    require<ValueError>(!steps.empty(), "bench: --simulate needs a training step alone; give another --filter");
    const Link inside = measure_link(cases);
    for (const MeasuredStep& step : steps) predict(cases, step, inside, options);
  }
  if (group.rank() > 0) cases.results.clear();  // rank 0 reports
  return cases.results;
}

std::vector<Result> parallel_suite(const Filter& filter) { return parallel_suite(filter, {}); }

}  // namespace lorry::bench
