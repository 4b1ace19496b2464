// A training step of the nano GPT as `lorry train` takes it: batch, forward, backward, clipping, update, and the loss read
// back. bench/peers/train_torch.py does the same in PyTorch.

#include <unistd.h>

#include <filesystem>
#include <random>

#include "lorry/cli/bench.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/trainer.h"
#include "lorry/io/file.h"

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

/// Multiplications and additions of a step, counted as is usual (Chowdhery et al. 2022, appendix B): each parameter meets each
/// token in one multiply-add forward and two backward; so does, in attention, each channel each of the earlier positions, once for the
/// scores and once for the values. The causal mask is not deducted.
double flops_per_step(const Trainer& trainer) {
  const nn::GPTConfig model = model_config(trainer.settings());
  const double attention = 12.0 * static_cast<double>(model.layers * model.width * model.context);
  return static_cast<double>(trainer.tokens_per_step()) * (6.0 * static_cast<double>(trainer.parameters()) + attention);
}

}  // namespace

std::vector<BenchRow> bench_train(const Filter& wanted) {
  constexpr const char* kCase = "nano step, batch 16 x 128";
  if (!wanted(kCase)) return {};
  TrainSettings settings{.preset = "nano", .batch = 16, .context = 128};
  complete(settings, false);
  const RandomText text;
  Trainer trainer(settings, {text.path()});
  BenchRow row{"train", kCase, measure([&] { trainer.step(); }, {.warmup_s = 1.0, .total_s = 10.0, .least_samples = 20})};
  row.flops = flops_per_step(trainer);
  row.tokens_per_s = 1e6 * static_cast<double>(trainer.tokens_per_step()) / row.time.median_us;
  return {row};
}

}  // namespace lorry::cli
