#pragma once

// How long a data parallel step takes on more ranks than there are: a latency and a bandwidth for each of two levels,
// the links of a machine and the network between machines (the alpha-beta model: Hockney 1994; rings and two levels:
// Thakur, Rabenseifner, Gropp 2005, section 4).

#include <cstdint>

namespace lorry::bench {

/// The links of one level.
struct Link {
  double latency_s = 0;    ///< of a step of a ring
  double bytes_per_s = 0;  ///< of a rank, each way
};

struct ScalingModel {
  double compute_s = 0;         ///< a step of one rank alone
  double backward_share = 0.6;  ///< of it, beside which gradients are summed
  double gradient_bytes = 0;
  double last_bytes = 0;  ///< of the gradients that are summed when backward is over
  Link inside;            ///< of a machine
  Link between;           ///< machines
  int64_t per_machine = 8;
};

struct PredictedStep {
  double sum_s = 0;      ///< all gradients, if nothing else runs
  double exposed_s = 0;  ///< of it, beside which nothing is computed
  double step_s = 0;
};

/// The time of an all_reduce over `ranks`: by a ring inside of a machine; over several machines each sums its part
/// first, and what each rank then has travels between machines.
double all_reduce_seconds(const ScalingModel& model, double bytes, int64_t ranks);
PredictedStep predict_step(const ScalingModel& model, int64_t ranks);

}  // namespace lorry::bench
