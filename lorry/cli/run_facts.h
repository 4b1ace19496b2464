#pragma once

// The contents of the folder of a training run, which `lorry info DIR` prints.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/metrics.h"
#include "lorry/cli/options.h"
#include "lorry/cli/run_folder.h"
#include "lorry/nn/gpt.h"

namespace lorry::cli {

/// A run according to its newest checkpoint; while a process trains, the history continues after it.
struct RunFacts {
  TrainSettings settings;          ///< as saved: the steps are those of the whole run
  std::vector<std::string> texts;  ///< the text files
  nn::GPTConfig model;
  int64_t parameters = 0, tokens_per_step = 0;
  int64_t saved_step = 0;  ///< the checkpoint's step
  int64_t step = 0;        ///< the history's last step: later than the checkpoint while a process trains
  RunHistory history;
  struct Time {
    double elapsed = 0, given = 0;  ///< seconds
  };
  std::optional<Time> time;           ///< only for a run limited by time
  std::optional<std::string> holder;  ///< the training process: "process 7 on host"
};

/// Reads a run's folder and writes nothing to it. Throws IoError if it contains no checkpoint, FormatError if that is
/// damaged.
RunFacts run_facts(const RunFolder& folder);

}  // namespace lorry::cli
