#pragma once

// A training run without its command line: model, optimizer, schedule and text, advanced step by step. A checkpoint
// contains everything that determines the next step, so a resumed run takes exactly the same steps.

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/learning_rate_plan.h"
#include "lorry/cli/metrics.h"
#include "lorry/cli/options.h"
#include "lorry/io/checkpoint.h"
#include "lorry/parallel/process_group.h"

namespace lorry::cli {

/// The processes that train together. Each batch is split over them, and all take the same steps; the numbers are those
/// of one process to the rounding of sums.
struct Together {
  std::optional<parallel::ProcessGroup> group = {};  ///< none, or a group of one: this process alone
  bool shard = false;                                ///< each steps a part of the parameters (parallel/data_parallel.h)
};

class Trainer {
 public:
  /// A new run. Without a number of steps in its settings, it needs a plan before the first step. Throws IoError and
  /// ValueError for unusable texts. Together with others also ValueError for a batch that cannot be split evenly, and
  /// for settings that several processes cannot share; ParallelError if ranks have other settings, steps or texts.
  Trainer(TrainSettings settings, std::vector<std::string> texts, const Together& together = {});
  /// A run resumed from a checkpoint. If `texts` is empty, the run's own are used. Throws FormatError, ShapeError or
  /// DTypeError if the checkpoint does not match its own settings, ValueError if the texts are not those of the run.
  Trainer(const io::Checkpoint& checkpoint, std::vector<std::string> texts, const Together& together = {});
  ~Trainer();

  /// The settings. If there is a plan, steps and warm-up are the plan's.
  const TrainSettings& settings() const;
  /// Limits the run by a number of steps, on which alone the rates then depend.
  void set_steps(int64_t steps);
  /// Limits the run by time: its rates follow this plan.
  void set_plan(const LearningRatePlan& plan);
  const std::optional<LearningRatePlan>& plan() const;
  /// Compiles steps from now on, each as one function: forward, backward, clip and update. The numbers are the same to
  /// the bit, unless epilogues are asked for (CompileOptions::epilogues).
  void compile_steps(bool epilogues);
  /// From now on, after the first steps, replays one captured step (replay/graph.h). The numbers are the same to the
  /// bit.
  /// Call it before compile_steps.
  void replay_steps();
  /// Why steps could not be compiled as one function; empty if they were, or if no step has run.
  std::string not_compiled() const;
  int64_t steps_taken() const;
  int64_t parameters() const;
  int64_t tokens_per_step() const;

  /// Runs one step. Returns the metrics of the last step known to be done, if they are new: on the CPU of this step, on
  /// a GPU of the previous one, so that the host never waits for the device. The loss is that before the update.
  /// `seconds` stays 0.
  std::optional<StepMetrics> step();
  /// Waits for the last step and returns its metrics, unless step() has returned them.
  std::optional<StepMetrics> settle();
  /// The mean loss over `batches` batches spread evenly over the held-out text, or over all of it if it has fewer.
  /// Calls `stop` before each batch, and returns nothing once it returns true.
  std::optional<double> validate(int64_t batches, const std::function<bool()>& stop);
  int64_t validation_batches() const;

  /// With shards, the states are those of this process's part.
  io::Checkpoint checkpoint() const;
  /// Saves everything that determines the next step; `schedule` is added to the state of the learning rate schedule.
  /// Where is_saved_by_all(), every process calls it, and writes its share.
  void save(const std::filesystem::path& directory, const io::Settings& schedule = {});
  bool is_saved_by_all() const;

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace lorry::cli
