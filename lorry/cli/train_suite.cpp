#include "lorry/cli/train_suite.h"

// A training step of `lorry train`, for the nano GPT and, on a GPU, for GPT-2 124M: batch, forward, backward, clipping,
// update, and reading back the loss. bench/peers/train_torch.py does the same in PyTorch.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <random>

#include "lorry/cli/run_settings.h"
#include "lorry/cli/trainer.h"
#include "lorry/io/file.h"
#include "lorry/memory/memory.h"

namespace lorry::cli {
namespace {

/// A temporary file of random bytes: the speed of a step does not depend on the text.
class RandomText {
 public:
  RandomText() : path_(std::filesystem::temp_directory_path() / ("lorry-bench-" + std::to_string(getpid()))) {
    std::mt19937 random(1);
    std::string bytes(1 << 20, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    io::AtomicFile file(path_);
    file.write(bytes);
    file.commit();
  }
  ~RandomText() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  RandomText(const RandomText&) = delete;
  RandomText& operator=(const RandomText&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// Floating-point operations per step, counted as usual (Chowdhery et al. 2022, appendix B): per parameter and token
/// one multiply-add forward and two backward; in attention, the same for each channel and each earlier position, once
/// for the scores and once for the values. The causal mask is not deducted.
double flops_per_step(const Trainer& trainer) {
  const nn::GPTConfig model = model_config(trainer.settings());
  const double attention = 12.0 * static_cast<double>(model.layers * model.width * model.context);
  return static_cast<double>(trainer.tokens_per_step()) * (6.0 * static_cast<double>(trainer.parameters()) + attention);
}

/// Measures a step of a preset. The first step is a result of its own: it includes one-time work.
std::vector<bench::Result> train(const char* name, TrainSettings settings, const profile::BenchmarkOptions& options) {
  complete(settings, false);
  const RandomText text;
  Trainer trainer(settings, {text.path()});
  const Device device = options.device;
  bench::Result first{.suite = "train",
                      .name = fmt::format("{}, the first", name),
                      .time = profile::benchmark(
                          [&] {
                            trainer.step();
                            trainer.settle();
                          },
                          profile::first_call(device)),
                      .dtype = std::string(lorry::name(settings.dtype))};
  memory::empty_cache(device);  // do not count memory that other suites have cached
  memory::reset_peak(device);
  bench::Result result{.suite = "train",
                       .name = name,
                       .time = profile::benchmark([&] { trainer.step(); }, options),
                       .dtype = first.dtype};
  trainer.settle();
  result.flops = flops_per_step(trainer);
  result.tokens_per_s = 1e6 * static_cast<double>(trainer.tokens_per_step()) / result.time.median_us;
  result.peak_bytes = memory::stats(device).peak_reserved;
  return {result, first};
}

}  // namespace

std::vector<bench::Result> train_suite(const bench::Filter& filter) {
  const Device device = default_device();
  std::vector<bench::Result> results;
  const auto add = [&](const char* name, const TrainSettings& settings, const profile::BenchmarkOptions& options) {
    if (filter(name)) std::ranges::copy(train(name, settings, options), std::back_inserter(results));
  };
  add("nano step, batch 16 x 128", {.preset = "nano", .batch = 16, .context = 128},
      {.warmup_s = 1.0, .total_s = 10.0, .min_samples = 20, .device = device});
  if (!device.is_cpu())
    add("gpt2 step, batch 8 x 1024", {.preset = "gpt2", .batch = 8, .context = 1024, .vocab = 50257, .dtype = kBF16},
        {.warmup_s = 2.0, .sample_s = 0.5, .total_s = 8.0, .device = device});
  return results;
}

std::vector<bench::Suite> bench_suites() {
  std::vector<bench::Suite> all(bench::suites().begin(), bench::suites().end());
  all.push_back({"train", train_suite});
  return all;
}

}  // namespace lorry::cli
