#include "lorry/optim/schedule.h"

#include <cmath>

#include "tests/optim/support.h"

namespace lorry::optim::test {
namespace {

using Kind = Schedule::Kind;

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
  EXPECT_EQ(text({Kind::linear, 1, 0, 10, 10}), "schedule: steps do not reach past the warm-up; got 10 steps with a warm-up of 10");
  EXPECT_EQ(message<ValueError>([] { parse_schedule("step"); }), "schedule: unknown name; got 'step'; expected constant, linear or cosine");
  EXPECT_EQ(parse_schedule("cosine"), Kind::cosine);
}

}  // namespace
}  // namespace lorry::optim::test
