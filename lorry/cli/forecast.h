#pragma once

// lorry train --forecast: how much memory a step of a run takes, before it is begun.

#include "lorry/cli/options.h"
#include "lorry/profile/forecast.h"

namespace lorry::cli {

/// The step of a run with these settings, which are complete, on a device; forecast_memory's second argument. The few
/// numbers of an f16 run's loss scaler are left out.
profile::TrainingStep training_step(const TrainSettings& settings, Device device);

/// Prints the forecast, what the device has left, and the largest batch that fits. Returns 0, whether it fits or not.
int run_forecast(const TrainOptions& options, const CommonOptions& common);

}  // namespace lorry::cli
