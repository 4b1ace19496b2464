#pragma once

// From what a command line leaves open to what a run uses, and to what its checkpoint keeps.

#include <string>
#include <vector>

#include "lorry/cli/options.h"
#include "lorry/io/checkpoint.h"
#include "lorry/nn/gpt.h"

namespace lorry::cli {

/// The model that settings describe: the preset's shape over bytes, with the context asked for.
nn::GPTConfig model_config(const TrainSettings& settings);
/// The model that a checkpoint holds.
nn::GPTConfig model_config(const io::Settings& config);

/// The sizes of model that `train` knows.
std::vector<std::string> preset_names();

/// A line for each of them: its layers, width, parameters, batch, context, learning rate and steps.
std::string preset_table();

/// Fills in what the preset decides. Where a time decides the length of the run, the steps, the warm-up and the steps
/// between validations stay as they are given: they are planned while it runs.
void complete(TrainSettings& settings, bool timed);

/// Steps of warm-up in a run of so many: a tenth of it, but kEnoughWarmup where a third of it allows them, and at most
/// 100. In the first steps, Adam's means know too little for a large rate: single steps were seen to raise the loss
/// from 3.7 nats to 8.5.
int64_t usual_warmup(int64_t steps);
inline constexpr int64_t kEnoughWarmup = 30;

/// Ten validations a run.
int64_t default_eval_every(int64_t steps);

/// Compares what a checkpoint's state says of its model and its steps with its tensors, before anything is built from
/// it. Throws FormatError that names the first setting that differs, with both values.
void check_against_tensors(const io::Checkpoint& checkpoint);

/// What a checkpoint keeps, and back. `texts` are the files of the run, made absolute.
io::Settings to_config(const TrainSettings& settings, const std::vector<std::string>& texts);
TrainSettings from_config(const io::Settings& config, std::vector<std::string>& texts);

}  // namespace lorry::cli
