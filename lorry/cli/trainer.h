#pragma once

// One training run without its command line: model, optimizer, schedule and text, advanced a step at a time. Everything
// that decides the next step is in checkpoint(), so a run resumed from one takes exactly the steps that it would have
// taken.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lorry/cli/metrics.h"
#include "lorry/cli/options.h"
#include "lorry/cli/step_plan.h"
#include "lorry/io/checkpoint.h"

namespace lorry::cli {

class Trainer {
 public:
  /// A run from its beginning. Without a number of steps in its settings it needs a plan before the first step. Throws
  /// IoError and ValueError for texts that cannot be used.
  Trainer(TrainSettings settings, std::vector<std::string> texts);
  /// A run from a checkpoint. `texts` may be empty: then those of the run. Throws FormatError, ShapeError or DTypeError
  /// when the checkpoint does not fit its own settings, ValueError when the texts are not those of the run.
  Trainer(const io::Checkpoint& checkpoint, std::vector<std::string> texts);
  ~Trainer();

  /// The steps are those of the plan, where there is one, and so is the warm-up.
  const TrainSettings& settings() const;
  /// Makes it a run of so many steps, whose rates follow from that number alone.
  void set_steps(int64_t steps);
  /// Makes it a run of a given time: its rates follow from this plan.
  void set_plan(const StepPlan& plan);
  const std::optional<StepPlan>& plan() const;
  /// From now on steps are compiled as one function: forward, backward, clip and update. The same numbers, to the bit.
  void compile_steps();
  /// Why steps that were to be compiled ran as they are; empty where none did.
  std::string not_compiled() const;
  int64_t steps_taken() const;
  int64_t parameters() const;
  int64_t tokens_per_step() const;

  /// One step. Gives the metrics of the last step that is known to be done, if it is a new one: on the CPU this step,
  /// on a GPU the one before, so that the host never waits for the device. The loss is that before the update.
  /// `seconds` is left 0.
  std::optional<StepMetrics> step();
  /// Waits for the last step and gives its metrics, unless step() has.
  std::optional<StepMetrics> settle();
  /// The mean loss over `batches` batches spread evenly over the held-out text, or over all of it when it has fewer.
  /// Asks `stop` before each batch, and gives nothing once it says so.
  std::optional<double> validate(int64_t batches, const std::function<bool()>& stop);
  int64_t validation_batches() const;

  io::Checkpoint checkpoint() const;

 private:
  struct Run;
  std::unique_ptr<Run> run_;
};

}  // namespace lorry::cli
