// A training step as `lorry train` takes it, of the nano GPT and, on a GPU, of GPT-2 124M: batch, forward, backward,
// clipping, update, and the loss read back. bench/peers/train_torch.py does the same in PyTorch.

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <random>

#include "lorry/cli/bench.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/trainer.h"
#include "lorry/io/file.h"
#include "lorry/memory/memory.h"

namespace lorry::cli {
namespace {

/// A file of random bytes that is gone when this is: the speed of a step does not depend on what is read.
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

/// Multiplications and additions of a step, counted as is usual (Chowdhery et al. 2022, appendix B): each parameter
/// meets each token in one multiply-add forward and two backward; so does, in attention, each channel each of the
/// earlier positions, once for the scores and once for the values. The causal mask is not deducted.
double flops_per_step(const Trainer& trainer) {
  const nn::GPTConfig model = model_config(trainer.settings());
  const double attention = 12.0 * static_cast<double>(model.layers * model.width * model.context);
  return static_cast<double>(trainer.tokens_per_step()) * (6.0 * static_cast<double>(trainer.parameters()) + attention);
}

/// A step of a preset under its own case. The first step is measured too: it holds what is done once.
std::vector<BenchRow> train(const char* name, TrainSettings settings, Effort effort) {
  complete(settings, false);
  const RandomText text;
  Trainer trainer(settings, {text.path()});
  const Device device = default_device();
  const auto begin = std::chrono::steady_clock::now();
  trainer.step();
  trainer.settle();
  const double first_us = 1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  effort.device = device;
  BenchRow first{.suite = "train",
                 .name = fmt::format("{}, the first", name),
                 .time = {first_us, first_us, first_us, first_us},
                 .dtype = std::string(lorry::name(settings.dtype))};
  memory::empty_cache(device);  // what other suites left is not this one's
  memory::reset_peak(device);
  BenchRow row{.suite = "train", .name = name, .time = measure([&] { trainer.step(); }, effort), .dtype = first.dtype};
  trainer.settle();
  row.flops = flops_per_step(trainer);
  row.tokens_per_s = 1e6 * static_cast<double>(trainer.tokens_per_step()) / row.time.median_us;
  row.peak_bytes = memory::stats(device).peak_reserved;
  return {row, first};
}

}  // namespace

std::vector<BenchRow> bench_train(const Filter& wanted) {
  std::vector<BenchRow> rows;
  const auto add = [&](const char* name, const TrainSettings& settings, const Effort& effort) {
    if (wanted(name)) std::ranges::copy(train(name, settings, effort), std::back_inserter(rows));
  };
  add("nano step, batch 16 x 128", {.preset = "nano", .batch = 16, .context = 128},
      {.warmup_s = 1.0, .total_s = 10.0, .least_samples = 20});
  if (!default_device().is_cpu()) {
    constexpr Effort kLong{.warmup_s = 2.0, .sample_s = 0.5, .total_s = 8.0, .least_samples = 9};
    add("gpt2 step, batch 8 x 1024", {.preset = "gpt2", .batch = 8, .context = 1024, .vocab = 50257, .dtype = kBF16},
        kLong);
  }
  return rows;
}

}  // namespace lorry::cli
