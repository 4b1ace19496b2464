#include "lorry/cli/time_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lorry/base/error.h"

namespace lorry::cli {
namespace {

/// A machine on a clock of its own: what takes how long, and when.
struct Machine {
  std::function<double(double now)> step;  ///< seconds of a step that begins at `now`
  double validation_batch = 0.01, checkpoint = 0.05;
  double setup = 0.1;  ///< before the first step
};

struct Trained {
  double end = 0;       ///< seconds, with the last validation and the last checkpoint
  double overhead = 0;  ///< of them, for validations and checkpoints
  int64_t validations = 0, checkpoints = 0, last_batches = 0;
  std::vector<double> begun, progress;  ///< of each step
  int64_t warmup = 0;                   ///< steps
  size_t parts = 0;
};

constexpr double kLr = 1, kLeast = 0.1;

Trained train(double seconds, const Machine& machine, TimePlanOptions options = {.validation_batches = 256},
              const std::function<void(TimePlan&, double now, int64_t step)>& each = {}) {
  TimePlan plan(seconds, options);
  Trained run;
  double now = machine.setup;
  const auto validate = [&](int64_t batches) {
    const double took = static_cast<double>(batches) * machine.validation_batch;
    plan.validated(took, batches);
    now += took;
    run.overhead += took;
    ++run.validations;
  };
  const auto save = [&] {
    plan.saved(machine.checkpoint);
    now += machine.checkpoint;
    run.overhead += machine.checkpoint;
    ++run.checkpoints;
  };
  for (int64_t step = 0; !plan.over(); ++step) {
    run.begun.push_back(now);
    run.progress.push_back(plan.steps().progress(step));
    const double took = machine.step(now);
    now += took;
    plan.step_taken(now, took);
    if (each) each(plan, now, step + 1);
    if (plan.over()) break;
    if (plan.needs_probe()) {
      plan.probed(machine.validation_batch);
      now += machine.validation_batch;
      run.overhead += machine.validation_batch;
    }
    if (const int64_t batches = plan.validation_due(now)) validate(batches);
    if (plan.checkpoint_due(now)) save();
  }
  validate(run.last_batches = plan.last_validation());
  save();
  run.end = now;
  run.warmup = plan.steps().warmup_steps();
  run.parts = plan.steps().parts().size();
  return run;
}

/// What holds for every run: it ends in time, its decay is complete and never went back, and it validated.
void check(const Trained& run, double seconds, double step, double pause = 0) {
  EXPECT_LE(run.end, seconds + step + 0.5);
  EXPECT_GE(run.end, seconds - step - 0.5 - 0.02 * seconds - pause);
  EXPECT_TRUE(std::ranges::is_sorted(run.progress));
  const auto steps = static_cast<double>(run.progress.size());
  if (steps > 20) {
    EXPECT_GT(run.progress.back(), 1 - 3 / std::sqrt(steps));
    EXPECT_LE(run.progress.back(), 1);
  }
  EXPECT_GE(run.last_batches, 1);
  EXPECT_LE(run.overhead, 0.1 * seconds + 0.2);
  EXPECT_LT(run.parts, 250u);
}

TEST(TimePlan, a_steady_machine_ends_in_time_with_its_decay_complete) {
  for (const double seconds : {20.0, 110.0, 3600.0})
    for (const double step : {0.005, 0.07, 0.9}) {
      SCOPED_TRACE(testing::Message() << seconds << " s of steps of " << step << " s");
      const Trained run = train(seconds, {.step = [&](double) { return step; }, .validation_batch = step / 3});
      check(run, seconds, step);
      EXPECT_GE(static_cast<double>(run.progress.size()) * step, 0.88 * seconds - 2 * step) << "the time is used";
      for (size_t i = 0; i < run.begun.size(); ++i)
        EXPECT_NEAR(run.progress[i], run.begun[i] / seconds, 0.12 + step / seconds) << "at step " << i;
    }
}

TEST(TimePlan, warmup_is_a_tenth_of_the_run_or_30_steps_where_a_third_is_enough) {
  const auto steps_of = [](double step) {
    return train(100, {.step = [=](double) { return step; }, .validation_batch = step / 3});
  };
  const Trained many = steps_of(0.01), few = steps_of(0.5), very_few = steps_of(4);
  EXPECT_NEAR(static_cast<double>(many.warmup), 0.1 * static_cast<double>(many.begun.size()),
              0.01 * static_cast<double>(many.begun.size()));
  EXPECT_NEAR(static_cast<double>(few.warmup), 30, 3);
  EXPECT_NEAR(static_cast<double>(very_few.warmup), static_cast<double>(very_few.begun.size()) / 3, 3);
}

TEST(TimePlan, warmup_takes_the_steps_that_were_asked_for) {
  for (const int64_t warmup : {0, 1, 7, 500}) {
    const Trained run =
        train(100, {.step = [](double) { return 0.05; }}, {.warmup = warmup, .validation_batches = 256});
    EXPECT_EQ(run.warmup, warmup);
    check(run, 100, 0.05);
  }
}

TEST(TimePlan, a_slow_first_step_neither_shortens_nor_skips_the_warmup) {
  const Trained run = train(100, {.step = [](double now) { return now < 1 ? 10 : 0.05; }});
  check(run, 100, 0.05);
  EXPECT_NEAR(static_cast<double>(run.warmup), 0.1 * static_cast<double>(run.begun.size()), 30);
}

TEST(TimePlan, a_first_step_of_most_of_the_time_is_followed_by_others) {
  const Trained run = train(5, {.step = [](double now) { return now < 1 ? 3 : 0.01; }});
  check(run, 5, 0.01);
  EXPECT_GT(run.begun.size(), 100u);
}

TEST(TimePlan, a_machine_that_turns_twice_as_slow_half_way_ends_in_time) {
  for (const double factor : {2.0, 10.0, 0.5, 0.1}) {
    SCOPED_TRACE(factor);
    const Trained run = train(100, {.step = [&](double now) { return now < 50 ? 0.1 : 0.1 * factor; }});
    check(run, 100, 0.1 * std::max(1.0, factor));
    for (size_t i = 0; i < run.begun.size(); ++i) EXPECT_NEAR(run.progress[i], run.begun[i] / 100, 0.12);
  }
}

TEST(TimePlan, a_machine_that_turns_slow_near_the_end_ends_in_time) {
  check(train(100, {.step = [](double now) { return now < 93 ? 0.02 : 0.2; }}), 100, 0.2);
}

TEST(TimePlan, a_pause_is_time_that_has_passed) {
  for (const double at : {2.0, 30.0, 80.0}) {
    SCOPED_TRACE(at);
    bool paused = false;
    const Trained run = train(100, {.step = [&](double now) {
                                if (now < at || paused) return 0.05;
                                paused = true;
                                return 15.0;
                              }});
    check(run, 100, 0.05);
    EXPECT_GT(run.begun.size(), 1400u) << "the steps after the pause are as fast as before";
  }
}

TEST(TimePlan, a_pause_past_the_end_ends_the_run) {
  bool paused = false;
  const Trained run =
      train(10, {.step = [&](double now) { return now > 5 && !std::exchange(paused, true) ? 50.0 : 0.05; }});
  EXPECT_LT(run.end, 57);
  EXPECT_GE(run.last_batches, 1);
}

TEST(TimePlan, a_machine_that_others_use_ends_in_time) {
  std::mt19937 random(7);
  std::exponential_distribution<double> busy(1 / 0.05);
  check(train(60, {.step = [&](double) { return 0.02 + busy(random); }}), 60, 0.2);
}

TEST(TimePlan, one_step_longer_than_the_run_is_the_run) {
  const Trained run = train(5, {.step = [](double) { return 30.0; }, .validation_batch = 10});
  EXPECT_EQ(run.begun.size(), 1u);
  EXPECT_EQ(run.last_batches, 1);
  EXPECT_EQ(run.validations, 1);
}

TEST(TimePlan, a_second_is_enough) {
  check(train(1, {.step = [](double) { return 0.01; }, .validation_batch = 0.003, .checkpoint = 0.02, .setup = 0.05}),
        1, 0.01);
  check(train(1, {.step = [](double) { return 0.2; }, .validation_batch = 0.07, .checkpoint = 0.02}), 1, 0.3);
}

TEST(TimePlan, validations_and_checkpoints_take_a_tenth_at_most_and_the_last_always_happens) {
  // Cheap ones: nine before the end, each with a checkpoint.
  const Trained cheap = train(100, {.step = [](double) { return 0.05; }});
  EXPECT_EQ(cheap.validations, 10);
  EXPECT_EQ(cheap.checkpoints, 10);
  EXPECT_EQ(cheap.last_batches, 256);
  // Dear ones: on fewer batches, and rarer.
  for (const double batch : {0.1, 0.25, 0.5})
    for (const double checkpoint : {0.1, 1.0, 2.5}) {
      SCOPED_TRACE(testing::Message() << "batch " << batch << " s, checkpoint " << checkpoint << " s");
      const Machine machine{.step = [](double) { return 0.5; }, .validation_batch = batch, .checkpoint = checkpoint};
      const Trained dear = train(100, machine, {.validation_batches = 256, .checkpoint_s = 0.5});
      check(dear, 100, 0.5);
      EXPECT_LT(dear.last_batches, 256);
    }
  // One after every step is asked for.
  const Trained often = train(100, {.step = [](double) { return 0.05; }},
                              {.eval_every = 1, .checkpoint_every = 1, .validation_batches = 256});
  check(often, 100, 0.05);
  EXPECT_GT(often.validations, 20);
  // None before the end is.
  const Trained never =
      train(100, {.step = [](double) { return 0.05; }}, {.eval_every = 1'000'000, .validation_batches = 256});
  check(never, 100, 0.05);
  EXPECT_EQ(never.validations, 1);
}

TEST(TimePlan, a_resumed_run_has_the_same_rates_and_the_time_that_is_left) {
  const TimePlanOptions options{.validation_batches = 256};
  io::Settings saved;
  std::optional<LearningRatePlan> planned;
  std::vector<double> rates;
  const Machine machine{.step = [](double) { return 0.05; }};
  train(100, machine, options, [&](TimePlan& plan, double now, int64_t step) {
    if (step != 777) return;
    saved = plan.state(now);
    planned = LearningRatePlan::parse(plan.steps().text());
    for (int64_t i = 0; i < 2000; ++i) rates.push_back(plan.steps().rate(i, kLr, kLeast));
  });
  TimePlan plan(*planned, saved, 777, options);
  const double before = std::get<double>(saved.at("elapsed_s"));
  EXPECT_DOUBLE_EQ(plan.left(before), 100 - before);
  for (int64_t i = 0; i < 2000; ++i) EXPECT_EQ(plan.steps().rate(i, kLr, kLeast), rates[static_cast<size_t>(i)]) << i;
  // The first steps of a process are slow, and building the model took two seconds.
  double now = before + 2;
  for (int64_t i = 0; !plan.over(); ++i) {
    const double took = i < 2 ? 0.5 : 0.05;
    now += took;
    plan.step_taken(now, took);
  }
  EXPECT_LT(now, 100);
  EXPECT_GT(now, 94);
  EXPECT_EQ(plan.state(now).at("max_seconds"), io::Setting(100.0));
  // Nothing is left after this time, but a step that shows it.
  TimePlan late(*planned, saved, 777, options);
  late.step_taken(101, 0.05);
  EXPECT_TRUE(late.over());
}

TEST(TimePlan, a_state_that_is_none_is_refused) {
  const TimePlan plan(10, {});
  const io::Settings good = plan.state(0);
  EXPECT_NO_THROW(TimePlan(plan.steps(), good, 0, {}));
  for (const auto& [name, value] : std::vector<std::pair<std::string, io::Setting>>{
           {"max_seconds", -1.0}, {"elapsed_s", NAN}, {"overhead_s", -1.0}}) {
    io::Settings bad = good;
    bad[name] = value;
    EXPECT_THROW(TimePlan(plan.steps(), bad, 0, {}), FormatError) << name;
    bad.erase(name);
    EXPECT_THROW(TimePlan(plan.steps(), bad, 0, {}), FormatError) << name;
  }
}

}  // namespace
}  // namespace lorry::cli
