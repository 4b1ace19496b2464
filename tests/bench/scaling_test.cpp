#include "lorry/bench/scaling.h"

#include <gtest/gtest.h>

namespace lorry::bench {
namespace {

ScalingModel model() {
  return {.compute_s = 10e-3,
          .backward_share = 0.5,
          .gradient_bytes = 200e6,
          .last_bytes = 10e6,
          .inside = {1e-6, 100e9},
          .between = {10e-6, 10e9},
          .per_machine = 4};
}

TEST(Scaling, a_ring_takes_its_latencies_and_its_bytes) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(model(), 200e6, 1), 0);
  EXPECT_NEAR(all_reduce_seconds(model(), 200e6, 2), 2 * (1e-6 + 0.5 * 2e-3), 1e-12);
  EXPECT_NEAR(all_reduce_seconds(model(), 200e6, 4), 2 * (3e-6 + 0.75 * 2e-3), 1e-12);
  EXPECT_NEAR(all_reduce_seconds(model(), 0, 4), 6e-6, 1e-12);
}

TEST(Scaling, between_machines_travels_what_a_rank_has_summed) {
  // Inside: 3 ms in all; between 2 machines: a fourth of the bytes each.
  EXPECT_NEAR(all_reduce_seconds(model(), 200e6, 8), 2 * (3e-6 + 0.75 * 2e-3) + 2 * (10e-6 + 0.5 * 50e6 / 10e9), 1e-12);
  double before = 0;
  for (int64_t ranks = 1; ranks <= 4096; ranks *= 2) {
    const double now = all_reduce_seconds(model(), 200e6, ranks);
    EXPECT_GE(now, before) << ranks;
    before = now;
  }
}

TEST(Scaling, sums_hide_beside_the_backward_but_for_the_last) {
  const PredictedStep alone = predict_step(model(), 1), four = predict_step(model(), 4);
  EXPECT_DOUBLE_EQ(alone.step_s, 10e-3);
  EXPECT_NEAR(four.exposed_s, all_reduce_seconds(model(), 10e6, 4), 1e-12);
  EXPECT_NEAR(four.step_s, 10e-3 + four.exposed_s, 1e-12);
  ScalingModel slow = model();
  slow.inside.bytes_per_s = 10e9;
  const PredictedStep bound = predict_step(slow, 4);
  EXPECT_NEAR(bound.exposed_s, bound.sum_s - 5e-3, 1e-12) << "longer than the backward";
}

}  // namespace
}  // namespace lorry::bench
