#pragma once

// What the folder of a training run holds: what `lorry info DIR` prints.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/metrics.h"
#include "lorry/cli/options.h"
#include "lorry/cli/run_folder.h"
#include "lorry/nn/gpt.h"

namespace lorry::cli {

/// A run as its newest checkpoint has it; while a process trains, the history goes on from there.
struct RunFacts {
  TrainSettings settings;          ///< as they are saved: the steps are those of the whole run
  std::vector<std::string> texts;  ///< the files that it reads
  nn::GPTConfig model;
  int64_t parameters = 0, tokens_per_step = 0;
  int64_t saved_step = 0;  ///< of the checkpoint
  int64_t step = 0;        ///< of the history: later than the checkpoint where a process trains
  RunHistory history;
  struct Time {
    double elapsed = 0, given = 0;  ///< seconds
  };
  std::optional<Time> time;           ///< of a run of a given time
  std::optional<std::string> holder;  ///< who trains: "process 7 on host"
};

/// Reads a run's folder and writes nothing to it. Throws IoError where it holds no checkpoint, FormatError where that
/// is damaged.
RunFacts run_facts(const RunFolder& folder);

}  // namespace lorry::cli
