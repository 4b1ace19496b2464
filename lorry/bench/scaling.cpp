#include "lorry/bench/scaling.h"

#include <algorithm>

namespace lorry::bench {
namespace {

/// Half of an all_reduce by a ring of n: a reduce_scatter or an all_gather.
double half_ring(const Link& link, double bytes, double n) {
  return n <= 1 ? 0 : (n - 1) * link.latency_s + (n - 1) / n * bytes / link.bytes_per_s;
}

}  // namespace

double all_reduce_seconds(const ScalingModel& model, double bytes, int64_t ranks) {
  const auto inside = static_cast<double>(std::min(ranks, model.per_machine));
  const auto machines = static_cast<double>((ranks + model.per_machine - 1) / model.per_machine);
  return 2 * half_ring(model.inside, bytes, inside) + 2 * half_ring(model.between, bytes / inside, machines);
}

PredictedStep predict_step(const ScalingModel& model, int64_t ranks) {
  PredictedStep step;
  step.sum_s = all_reduce_seconds(model, model.gradient_bytes, ranks);
  const double last = all_reduce_seconds(model, model.last_bytes, ranks);
  const double beside = model.backward_share * model.compute_s;
  step.exposed_s = ranks <= 1 ? 0 : std::max(last, step.sum_s - beside);
  step.step_s = model.compute_s + step.exposed_s;
  return step;
}

}  // namespace lorry::bench
