#include "lorry/cli/trainer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "lorry/cli/run_settings.h"
#include "tests/io/scratch.h"
#include "tests/support/host.h"

namespace lorry::cli {
namespace {

using Bits = std::map<std::string, std::string>;

Bits bits(const io::TensorMap& tensors) {
  Bits bits;
  for (const auto& [name, tensor] : tensors) bits[name] = test::bytes_of(tensor);
  return bits;
}

TEST(Trainer, a_run_of_a_given_time_resumes_to_the_bit_under_the_same_plan) {
  const io::test::Scratch scratch;
  const std::string text = scratch / "text.txt";
  std::ofstream(text) << [] {
    std::string words;
    for (int i = 0; i < 300; ++i) words += std::to_string(i * i) + " is a square.\n";
    return words;
  }();
  TrainSettings settings{.batch = 2, .context = 16};
  complete(settings, /*timed=*/true);
  LearningRatePlan plan({0, 0, 1000, 0.1});
  plan.add({3, 0.003, 14, 0.3});
  plan.add({6, 0.6, 11, 0.3});

  const auto losses = [](Trainer& trainer, int64_t to) {
    std::vector<double> losses;
    while (trainer.steps_taken() < to) losses.push_back(trainer.step()->loss);
    return losses;
  };
  Trainer whole(settings, {text});
  whole.set_plan(plan);
  EXPECT_EQ(whole.settings().steps, 11);
  const std::vector<double> expected = losses(whole, 11);
  for (const int64_t at : {1, 3, 7, 10}) {
    SCOPED_TRACE(at);
    {
      Trainer first(settings, {text});
      first.set_plan(plan);
      losses(first, at);
      io::save_checkpoint(scratch / "checkpoint", first.checkpoint());
    }
    Trainer second(io::load_checkpoint(scratch / "checkpoint"), {});
    ASSERT_TRUE(second.plan());
    EXPECT_EQ(second.plan()->parts(), plan.parts());
    EXPECT_EQ(losses(second, 11), std::vector<double>(expected.begin() + at, expected.end()));
    EXPECT_EQ(bits(second.checkpoint().model), bits(whole.checkpoint().model));
    EXPECT_EQ(bits(second.checkpoint().optimizer), bits(whole.checkpoint().optimizer));
    second.set_steps(20);
    EXPECT_FALSE(second.plan()) << "a run of so many steps follows no plan";
  }
}

}  // namespace
}  // namespace lorry::cli
