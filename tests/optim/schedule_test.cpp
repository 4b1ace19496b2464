#include "lorry/optim/schedule.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

using Json = nlohmann::json;
using Kind = Schedule::Kind;

Json peer() {
  std::ifstream file(std::string(LORRY_TEST_DATA) + "/schedule_values.json");
  return Json::parse(file);
}

Schedule schedule_of(const Json& f) {
  Schedule s{.kind = parse_schedule(f["kind"].get<std::string>())};
  s.min_lr = f.value("min_lr", s.min_lr);
  s.warmup = f.value("warmup", s.warmup);
  s.steps = f.value("steps", s.steps);
  s.gamma = f.value("gamma", s.gamma);
  s.step_size = f.value("step_size", s.step_size);
  s.milestones = f.value("milestones", s.milestones);
  s.power = f.value("power", s.power);
  s.t_0 = f.value("t_0", s.t_0);
  s.t_mult = f.value("t_mult", s.t_mult);
  s.pct_start = f.value("pct_start", s.pct_start);
  s.div_factor = f.value("div_factor", s.div_factor);
  s.final_div_factor = f.value("final_div_factor", s.final_div_factor);
  s.three_phase = f.value("three_phase", s.three_phase);
  if (f.value("anneal", "cos") == "linear") s.anneal = Schedule::Anneal::linear;
  return s;
}

PlateauOptions plateau_of(const Json& f) {
  PlateauOptions o;
  if (f.value("mode", "min") == "max") o.mode = PlateauOptions::Mode::max;
  if (f.value("threshold_mode", "rel") == "abs") o.threshold_mode = PlateauOptions::Threshold::abs;
  o.factor = f.value("factor", o.factor);
  o.patience = f.value("patience", o.patience);
  o.threshold = f.value("threshold", o.threshold);
  o.cooldown = f.value("cooldown", o.cooldown);
  o.min_lr = f.value("min_lr", o.min_lr);
  o.eps = f.value("eps", o.eps);
  return o;
}

/// One group for each rate.
SGD groups_at(const std::vector<double>& rates) {
  std::vector<Group<SGDOptions>> groups;
  for (const double rate : rates) groups.push_back({{{std::to_string(groups.size()), parameter({1})}}, {.lr = rate}});
  return SGD(groups);
}

std::vector<double> rates_of(const Optimizer& optimizer) {
  std::vector<double> rates;
  for (int g = 0; g < optimizer.groups(); ++g) rates.push_back(optimizer.lr(g));
  return rates;
}

/// PyTorch multiplies the last rate on and on; rates are near zero only relative to the largest.
void expect_near(const std::vector<double>& ours, const std::vector<double>& theirs, const std::string& where) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t g = 0; g < ours.size(); ++g)
    EXPECT_NEAR(ours[g], theirs[g], 1e-13 * theirs[g] + 1e-16) << where << ", group " << g;
}

TEST(Schedule, every_kind_gives_pytorchs_rates_to_every_group) {
  const Json data = peer();
  ASSERT_EQ(data["schedules"].size(), 19u);
  for (const Json& test : data["schedules"]) {
    SGD sgd = groups_at(data["bases"]);
    LRScheduler scheduler(sgd, schedule_of(test["fields"]));
    for (size_t step = 0; step < test["rates"].size(); ++step, scheduler.step())
      expect_near(rates_of(sgd), test["rates"][step], test["fields"].dump() + " step " + std::to_string(step));
  }
}

TEST(Schedule, reduce_on_plateau_gives_pytorchs_rates) {
  const Json data = peer();
  ASSERT_EQ(data["plateaus"].size(), 8u);
  for (const Json& test : data["plateaus"]) {
    SGD sgd = groups_at(data["bases"]);
    ReduceOnPlateau scheduler(sgd, plateau_of(test["options"]));
    for (size_t i = 0; i < test["metrics"].size(); ++i) {
      scheduler.step(test["metrics"][i]);
      expect_near(rates_of(sgd), test["rates"][i], test["options"].dump() + " metric " + std::to_string(i));
    }
    EXPECT_LT(sgd.lr(0), data["bases"][0]) << test["options"] << " reduced nothing";
  }
}

TEST(Schedule, warms_up_linearly_to_the_rate) {
  for (const Kind kind : {Kind::constant, Kind::linear, Kind::cosine}) {
    const Schedule s{kind, 0.8, 0.1, 4, 104};
    EXPECT_DOUBLE_EQ(s.at(0), 0.2);
    EXPECT_DOUBLE_EQ(s.at(3), 0.8);
    EXPECT_DOUBLE_EQ(s.at(4), 0.8);
  }
}

TEST(Schedule, constant_stays) { EXPECT_EQ((Schedule{.lr = 0.5}).at(1'000'000), 0.5); }

TEST(Schedule, falls_to_the_least_rate_along_a_line_or_a_cosine) {
  const Schedule line{Kind::linear, 1.0, 0.2, 0, 100}, cosine{Kind::cosine, 1.0, 0.2, 0, 100};
  EXPECT_DOUBLE_EQ(line.at(25), 0.8);
  EXPECT_DOUBLE_EQ(line.at(50), 0.6);
  EXPECT_DOUBLE_EQ(cosine.at(25), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);
  EXPECT_DOUBLE_EQ(cosine.at(50), 0.6);
  for (const Schedule& s : {line, cosine}) {
    EXPECT_DOUBLE_EQ(s.at(100), 0.2);
    EXPECT_DOUBLE_EQ(s.at(1000), 0.2);
    for (int step = 0; step < 100; ++step) EXPECT_GT(s.at(step), s.at(step + 1));
  }
}

TEST(Schedule, a_scheduler_sets_every_group_and_resumes_from_its_step) {
  SGD sgd(std::vector<Group<SGDOptions>>{{{{"a", parameter({1})}}, {}}, {{{"b", parameter({1})}}, {}}});
  const Schedule s{Kind::cosine, 1.0, 0.0, 2, 10};
  LRScheduler scheduler(sgd, s);
  EXPECT_EQ(sgd.lr(0), 0.5);
  scheduler.step();
  EXPECT_EQ(sgd.lr(1), 1.0);
  for (int i = 0; i < 5; ++i) scheduler.step();
  const double rate = sgd.lr();
  LRScheduler resumed(sgd, s, scheduler.steps_done());
  EXPECT_EQ(resumed.lr(), rate);
  EXPECT_EQ(sgd.lr(1), rate);
}

TEST(Schedule, schedules_out_of_their_domain_are_refused) {
  SGD sgd({{"a", parameter({1})}});
  const auto text = [&](const Schedule& s) { return message<ValueError>([&] { LRScheduler scheduler(sgd, s); }); };
  EXPECT_EQ(text({Kind::constant, -1}), "schedule: lr is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(text({Kind::cosine, 1, 2, 0, 10}), "schedule: min_lr is out of range; got 2; expected 0 to lr, 1");
  EXPECT_EQ(text({Kind::cosine, 1, 0, -1, 10}), "schedule: warmup is out of range; got -1; expected at least 0");
  EXPECT_EQ(text({Kind::linear, 1, 0, 10, 10}),
            "schedule: steps do not reach past the warm-up; got 10 steps with a warm-up of 10");
  EXPECT_EQ(text({.kind = Kind::polynomial, .steps = 1, .power = 0}),
            "schedule: power is out of range; got 0; expected a finite number > 0");
  EXPECT_EQ(text({.kind = Kind::exponential, .gamma = NAN}),
            "schedule: gamma is out of range; got nan; expected a finite number >= 0");
  EXPECT_EQ(text({.kind = Kind::step, .step_size = 0}),
            "schedule: step_size is out of range; got 0; expected at least 1");
  EXPECT_EQ(text({.kind = Kind::multi_step, .milestones = {5, 2}}),
            "schedule: milestones are out of order; got [5, 2]; expected them ascending");
  EXPECT_EQ(text({.kind = Kind::cosine_restarts, .t_0 = 2, .t_mult = 0}),
            "schedule: t_mult is out of range; got 0; expected at least 1");
  EXPECT_EQ(text({.kind = Kind::one_cycle, .steps = 9, .pct_start = 0.6, .three_phase = true}),
            "schedule: pct_start is out of range; got 0.6; expected 0 to 0.5");
  EXPECT_EQ(text({.kind = Kind::one_cycle, .min_lr = 1e-4, .steps = 9}),
            "schedule: one_cycle takes no min_lr; got 0.0001; it ends at lr / (div_factor * final_div_factor)");
  EXPECT_EQ(text({.kind = Kind::cosine, .min_lr = 0.5, .steps = 9}),
            "schedule: min_lr is out of range; got 0.5; expected 0 to the lr of group 0, 0.001");
  EXPECT_EQ(message<ValueError>([] { parse_schedule("steps"); }),
            "schedule: unknown name; got 'steps'; expected one of constant, linear, cosine, cosine_restarts, "
            "one_cycle, step, multi_step, exponential, polynomial");
  EXPECT_EQ(message<ValueError>([] { Schedule{}.at(0); }), "schedule: it has no lr of its own; give at() a group's");
  EXPECT_EQ(message<ValueError>([&] { ReduceOnPlateau(sgd, {.factor = 1}); }),
            "reduce_on_plateau: factor is out of range; got 1; expected 0 <= factor < 1");
}

TEST(Schedule, a_rate_is_refused_where_a_scheduler_is) {
  const auto text = [](const Schedule& s) { return message<ValueError>([&] { s.at(5, 0.1); }); };
  EXPECT_EQ(text({.kind = Kind::step, .step_size = 0}),
            "schedule: step_size is out of range; got 0; expected at least 1");
  EXPECT_EQ(text({.kind = Kind::cosine_restarts, .t_0 = 0}),
            "schedule: t_0 is out of range; got 0; expected at least 1");
  EXPECT_EQ(text({.kind = Kind::cosine_restarts, .t_0 = 2, .t_mult = 0}),
            "schedule: t_mult is out of range; got 0; expected at least 1");
  EXPECT_EQ(text({.kind = Kind::linear, .warmup = 3, .steps = 3}),
            "schedule: steps do not reach past the warm-up; got 3 steps with a warm-up of 3");
  EXPECT_EQ(text({.kind = Kind::one_cycle, .steps = 9, .div_factor = 0}),
            "schedule: div_factor is out of range; got 0; expected a finite number >= 1");
  EXPECT_EQ(message<ValueError>([] { Schedule{.lr = 1}.at(-1); }),
            "schedule: the step is out of range; got -1; expected at least 0");
  EXPECT_EQ(message<ValueError>([] { Schedule{}.at(0, -1); }),
            "schedule: lr is out of range; got -1; expected a finite number >= 0");
  EXPECT_EQ(message<ValueError>([] { Schedule{.lr = 1, .min_lr = 2}.at(0); }),
            "schedule: min_lr is out of range; got 2; expected 0 to lr, 1");
}

TEST(Schedule, names_are_those_of_the_kinds) {
  for (const char* text : {"constant", "linear", "cosine", "cosine_restarts", "one_cycle", "step", "multi_step",
                           "exponential", "polynomial"})
    EXPECT_EQ(name(parse_schedule(text)), text);
  EXPECT_EQ(parse_schedule("cosine"), Kind::cosine);
}

TEST(Schedule, a_warm_up_rises_to_the_first_rate_of_any_kind) {
  const Schedule plain{.kind = Kind::one_cycle, .lr = 1, .steps = 20, .div_factor = 10},
      warm{.kind = Kind::one_cycle, .lr = 1, .warmup = 4, .steps = 24, .div_factor = 10};
  for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(warm.at(step), 0.1 * (step + 1) / 4);
  for (int step = 0; step < 30; ++step) EXPECT_EQ(warm.at(step + 4), plain.at(step));
}

TEST(Schedule, restarts_of_ever_longer_periods_end_with_the_integers) {
  const Schedule s{.kind = Kind::cosine_restarts, .lr = 1, .t_0 = 1, .t_mult = std::numeric_limits<int64_t>::max() / 2};
  EXPECT_EQ(s.at(0), 1);
  EXPECT_EQ(s.at(1), 1);
  EXPECT_LT(s.at(std::numeric_limits<int64_t>::max() / 2), 1e-15);
  EXPECT_EQ(s.at(std::numeric_limits<int64_t>::max() / 2 + 1), 1);
}

TEST(Schedule, each_group_keeps_its_own_base_rate_through_a_state_dict) {
  SGD sgd = groups_at({0.4, 0.02}), other = groups_at({7, 7});
  const Schedule s{.kind = Kind::exponential, .warmup = 2, .gamma = 0.5};
  LRScheduler scheduler(sgd, s), resumed(other, s);
  EXPECT_EQ(rates_of(sgd), (std::vector{0.2, 0.01}));
  for (int i = 0; i < 4; ++i) scheduler.step();
  EXPECT_EQ(rates_of(sgd), (std::vector{0.1, 0.005}));
  const SchedulerState state = scheduler.state_dict();
  EXPECT_EQ(state, (SchedulerState{{"base_lr.0", 0.4}, {"base_lr.1", 0.02}, {"steps_done", 4}}));
  resumed.load_state_dict(state);
  EXPECT_EQ(rates_of(other), rates_of(sgd));
  sgd.add_param_group({{{"late", parameter({1})}}, {.lr = 8}});
  scheduler.step();
  EXPECT_EQ(rates_of(sgd), (std::vector{0.05, 0.0025, 1.0}));
}

TEST(Schedule, a_state_dict_has_the_groups_that_were_added_since_the_last_step) {
  SGD sgd = groups_at({0.4}), other = groups_at({7, 7});
  LRScheduler scheduler(sgd, {.kind = Kind::exponential, .gamma = 0.5}),
      resumed(other, {.kind = Kind::exponential, .gamma = 0.5});
  ReduceOnPlateau plateau(sgd), resumed_plateau(other);
  sgd.add_param_group({{{"late", parameter({1})}}, {.lr = 8}});
  EXPECT_EQ(scheduler.state_dict(), (SchedulerState{{"base_lr.0", 0.4}, {"base_lr.1", 8}, {"steps_done", 0}}));
  const SchedulerState bored = plateau.state_dict();
  EXPECT_EQ(bored, (SchedulerState{{"bad", 0}, {"cooldown", 0}, {"warmed_up", 0}, {"lr.0", 0.4}, {"lr.1", 8}}));
  resumed.load_state_dict(scheduler.state_dict());
  EXPECT_EQ(rates_of(other), (std::vector{0.4, 8.0}));
  scheduler.step(), resumed.step();
  EXPECT_EQ(rates_of(other), rates_of(sgd));
  resumed_plateau.load_state_dict(bored);
  EXPECT_EQ(rates_of(other), (std::vector{0.4, 8.0}));
}

TEST(Schedule, reduce_on_plateau_resumes_and_warms_up) {
  SGD whole = groups_at({0.4, 0.02}), parts = groups_at({0.4, 0.02});
  const PlateauOptions options{.factor = 0.5, .patience = 1, .cooldown = 1, .warmup = 4};
  ReduceOnPlateau a(whole, options);
  auto b = std::make_unique<ReduceOnPlateau>(parts, options);
  EXPECT_EQ(rates_of(whole), (std::vector{0.1, 0.005}));
  const double metrics[] = {3, 2, 2, 2, NAN, 2, 2, 2, 1, 1};
  for (const double metric : metrics) {
    for (auto* scheduler : {&a, b.get()}) scheduler->warm_up(), scheduler->step(metric);
    EXPECT_EQ(rates_of(whole), rates_of(parts));
    const SchedulerState state = b->state_dict();
    parts.set_lr(9);
    b = std::make_unique<ReduceOnPlateau>(parts, options);
    b->load_state_dict(state);
    EXPECT_EQ(b->state_dict(), state);
    EXPECT_EQ(rates_of(whole), rates_of(parts));
  }
  EXPECT_EQ(rates_of(whole), (std::vector{0.1, 0.005}));  // reduced twice
}

TEST(Schedule, states_that_do_not_fit_are_refused_and_change_nothing) {
  SGD sgd = groups_at({0.5});
  LRScheduler scheduler(sgd, {.kind = Kind::exponential, .gamma = 0.5}, 1);
  const auto text = [&](const SchedulerState& state) {
    return message<FormatError>([&] { scheduler.load_state_dict(state); });
  };
  EXPECT_EQ(text({{"base_lr.0", 1}}), "schedule: the state has no 'steps_done'");
  EXPECT_EQ(text({{"base_lr.0", 1}, {"steps_done", 1.5}}), "schedule: 'steps_done' is no count; got 1.5");
  EXPECT_EQ(text({{"base_lr.0", -1}, {"steps_done", 1}}), "schedule: 'base_lr.0' is no learning rate; got -1");
  EXPECT_EQ(text({{"base_lr.0", 1}, {"base_lr.1", 1}, {"steps_done", 1}}),
            "schedule: the state has an unexpected 'base_lr.1'");
  EXPECT_EQ(scheduler.lr(), 0.25);
  EXPECT_EQ(message<IndexError>([&] { scheduler.lr(1); }), "schedule: there is no group 1; got 1 groups");
}

}  // namespace
}  // namespace lorry::optim::test
