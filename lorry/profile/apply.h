#pragma once

// Tries the cures that a diagnosis proposes: how much each was predicted to gain, and how much it does gain here.
//
//   const profile::Trial trial = profile::apply([&] { return std::vector{gelu(matmul(x, w)) * scale + 1}; });
//   fmt::print("{}", profile::to_string(trial));
//
// A few steps are recorded and diagnosed. Then, for each finding that Lorry can cure itself (Finding::can_apply), the
// step as it is and the step as cured are measured side by side:
//   fuse       the compiled step (lorry::compile)
//   graph      the captured step (replay::Graph)
//   foreach    the operators of the first recorded loop over tensors of the same sizes: as a loop, and as one call
//   pageable   the recorded copies from or to pageable memory, and the same with pinned memory
//   optimizer  the step with another Execution, for callers that supply it as a Cure

#include <functional>
#include <string>
#include <vector>

#include "lorry/profile/diagnose.h"
#include "lorry/tensor/tensor.h"

namespace lorry::profile {

/// A cure that the caller knows how to apply to the whole step.
struct Cure {
  Finding::Kind kind{};   ///< of the findings that it cures
  std::string name = {};  ///< what is done, such as "--compile"
  /// Makes the cured step. Called once, and only if there is something to cure. What it throws is reported.
  std::function<std::function<void()>()> make = {};
};

struct ApplyOptions {
  int64_t warm_up = 3;  ///< steps before the recorded ones, at least; 1 or more
  int64_t steps = 5;    ///< that are recorded, at least; 1 or more
  /// For how long each pair is measured. Before it the steps are warmed up, and recorded, for a tenth of that each.
  double seconds = 2.0;
  bool everything = false;           ///< tries every Cure, also those of which the diagnosis found nothing
  Device device = default_device();  ///< of the step's work: times end when it is done
  DiagnoseOptions diagnose = {};
};

/// A cure beside what it was to gain. Times are for one step.
struct TriedCure {
  Finding::Kind kind{};
  std::string what = {};  ///< what was found; of several findings the one with the largest gain
  std::string cure = {};  ///< what was tried
  std::string path = {}, line = {};
  int64_t findings = 0;            ///< how many it is to cure
  double now_us = 0;               ///< what is measured: the step, or of foreach and pageable the calls that were found
  double then_us = 0;              ///< the same, cured
  double predicted_us = 0;         ///< gain; of a graph from now_us, of other cures as in the findings
  double achieved_us = 0;          ///< gain, the median of the pairs; negative: it takes longer
  double low_us = 0, high_us = 0;  ///< they hold the true gain with a probability of 0.95
  std::string failed = {};         ///< why it could not be measured; then there are no times

  /// Achieved as a share of predicted; 0 if nothing was predicted.
  double ratio() const { return predicted_us > 0 ? achieved_us / predicted_us : 0; }
};

/// A diagnosis and what its cures gain.
struct Trial {
  Diagnosis diagnosis = {};  ///< of the recorded steps
  int64_t steps = 0;         ///< how many these are
  std::vector<TriedCure> cures = {};
};

/// step: a call is one step, and any number of them may follow. Of the cures, those whose kind the diagnosis found are
/// tried; foreach and pageable need none. Throws ValueError for options out of range and while another session records,
/// and what the step throws; a cure that throws is a TriedCure with `failed`. An incomplete recording has no diagnosis,
/// so nothing is tried.
Trial apply(const std::function<void()>& step, const std::vector<Cure>& cures, const ApplyOptions& options = {});

/// The same for a function of no arguments that returns tensors, which lorry::compile and replay::Graph can take: they
/// are the cures for `fuse` and `graph`. What it uses is captured, and must stay where it is.
Trial apply(const std::function<std::vector<Tensor>()>& function, const ApplyOptions& options = {});

/// A table: cure, times of a step, predicted and achieved gain and their ratio.
std::string to_string(const Trial& trial);
/// The cures; without the diagnosis, which has a to_json of its own.
std::string to_json(const Trial& trial);

}  // namespace lorry::profile
