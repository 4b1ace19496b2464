#include "lorry/cli/forecast.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lorry/base/units.h"
#include "lorry/cli/output.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_parts.h"
#include "lorry/cli/run_settings.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/memory_use.h"

namespace lorry::cli {
namespace {

profile::MemoryForecast forecast(const TrainSettings& settings, Device device) {
  return profile::forecast_memory(device, [&](Device there) { return training_step(settings, there); });
}

/// The largest batch whose step has at most `bytes` at its peak; 0: not even one sequence. The peak grows by about the
/// same for each sequence, so a line through two batches is followed, and then corrected.
int64_t largest_batch(TrainSettings settings, Device device, int64_t bytes) {
  const auto peak = [&](int64_t batch) {
    settings.batch = batch;
    return forecast(settings, device).peak;
  };
  const int64_t first = peak(1);
  if (first > bytes) return 0;
  constexpr int64_t kFar = 64, kMost = int64_t{1} << 20;  // the most that --batch takes
  const int64_t each = std::max<int64_t>((peak(kFar) - first) / (kFar - 1), 1);
  int64_t batch = std::clamp<int64_t>(1 + (bytes - first) / each, 1, kMost);
  for (int tries = 0; tries < 8 && batch > 1; ++tries) {
    const int64_t over = peak(batch) - bytes;
    if (over <= 0) return batch;
    batch = std::max<int64_t>(1, batch - 1 - over / each);
  }
  return batch;
}

}  // namespace

profile::TrainingStep training_step(const TrainSettings& s, Device device) {
  const std::shared_ptr<nn::GPT> model = make_model(s, device);
  const auto parameters = model->named_parameters();
  const std::shared_ptr<optim::Optimizer> optimizer = make_optimizer(s, parameters);
  if (adds_up_in_f32(s)) make_f32_gradients(parameters);
  const Tensor x = zeros({s.batch, s.context}, {kI64, device}), y = zeros_like(x);
  const double share = 1.0 / static_cast<double>(s.accumulate);
  return {.model = model,
          .loss =
              [=] {
                const Tensor loss = model->loss(x, y);
                return share == 1 ? loss : loss.mul(share);
              },
          .update =
              [optimizer, options = step_options(s)] {
                optimizer->step(options);
                if (!options.zero_grad) optimizer->zero_grad();
              },
          .batches = s.accumulate};
}

int run_forecast(const TrainOptions& options, const CommonOptions& common) {
  require_writable(common.json);
  TrainSettings settings = options.settings;
  complete(settings, options.max_seconds.has_value());
  const Device device = default_device();
  const profile::MemoryForecast found = forecast(settings, device);
  const profile::MemoryOwners owners = profile::memory_owners(device);
  const int64_t left = owners.free + owners.cached;
  const int64_t largest = largest_batch(settings, device, left);

  const Table table{common.json};
  table.print("a step of preset {}, batch {} x {}, {}, {}, on {}\n\n{}", settings.preset, settings.batch,
              settings.context, settings.dtype, settings.optimizer, device, to_string(found));
  table.print("{:<20} {:>11}  {}\n", "left on the device", bytes_text(left),
              found.peak <= left ? "the step fits" : "the step does not fit");
  if (largest > 0)
    table.print("{:<20} {:>11}  sequences of {}\n", "the largest batch", largest, settings.context);
  else
    table.print("no batch fits; try a smaller --context or --preset, --dtype bf16, or --states q8\n");
  auto json = nlohmann::ordered_json::parse(to_json(found));
  json["preset"] = settings.preset, json["batch"] = settings.batch, json["context"] = settings.context;
  json["left_bytes"] = left, json["fits"] = found.peak <= left, json["largest_batch"] = largest;
  write_json(common.json, json);
  return 0;
}

}  // namespace lorry::cli
