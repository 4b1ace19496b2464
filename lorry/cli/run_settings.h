#pragma once

// Completes the settings of a run that a command line leaves open, and converts settings to and from checkpoints.

#include <string>
#include <string_view>
#include <vector>

#include "lorry/cli/options.h"
#include "lorry/io/checkpoint.h"
#include "lorry/nn/gpt.h"

namespace lorry::cli {

/// The model for these settings: the preset's shape over bytes, with the given context.
nn::GPTConfig model_config(const TrainSettings& settings);
/// The model of a checkpoint.
nn::GPTConfig model_config(const io::Settings& config);

/// The names of the presets of `train`.
std::vector<std::string> preset_names();

/// A line per preset: its layers, width, parameters, batch, context, learning rate and steps.
std::string preset_table();

/// The default weight decay of an optimizer. It is 0.1 if decay shrinks parameters directly. Decay that is added to
/// gradients is scaled with them, so 0.1 would be too much; then it is the optimizer's own default.
double usual_decay(std::string_view optimizer);

/// Fills in the preset's settings. If the run is limited by time, the steps, the warm-up and the steps between
/// validations stay as given; they are planned while it runs.
void complete(TrainSettings& settings, bool timed);

/// The steps of warm-up in a run of this many steps: a tenth of it, but kEnoughWarmup if a third of it is enough for
/// that, and at most 100. In the first steps, Adam's means are too inaccurate for a large rate: single steps were seen
/// to raise the loss from 3.7 nats to 8.5.
int64_t usual_warmup(int64_t steps);
inline constexpr int64_t kEnoughWarmup = 30;

/// Ten validations per run.
int64_t default_eval_every(int64_t steps);

/// Checks a checkpoint's model settings and steps against its tensors, before anything is built from it. Throws
/// FormatError that names the first setting that differs, with both values.
void check_against_tensors(const io::Checkpoint& checkpoint);

/// Converts settings to a checkpoint's config, and back. texts: the files of the run, as absolute paths.
io::Settings to_config(const TrainSettings& settings, const std::vector<std::string>& texts);
TrainSettings from_config(const io::Settings& config, std::vector<std::string>& texts);

}  // namespace lorry::cli
