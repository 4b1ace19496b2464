#include "lorry/cli/lead.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace lorry::cli {
namespace {

constexpr double kMostSeconds = 0.5;

// What rank 0 announces: a word, a space, and what it needs.
constexpr std::string_view kSteps = "steps", kSave = "save", kEnd = "end";

}  // namespace

void Lead::before_step(const Trainer& trainer, int64_t until_event) {
  if (left_ == 0) {
    const double most = seconds_ > 0 ? kMostSeconds / seconds_ : 1;
    left_ = std::clamp<int64_t>(static_cast<int64_t>(most), 1, std::max<int64_t>(until_event, 1));
    const std::optional<LearningRatePlan>& plan = trainer.plan();
    group_.exchange(fmt::format("{} {} {}", kSteps, left_, plan ? plan->text() : ""), true);
  }
  --left_;
}

void Lead::after_step(double seconds) { seconds_ = seconds; }

void Lead::before_save(const std::filesystem::path& directory) {
  group_.exchange(fmt::format("{} {}", kSave, directory.string()), true);
}

void Lead::end() { group_.exchange(fmt::format("{} ", kEnd), true); }

namespace {

/// Cuts the first word off.
std::string next_word(std::string& text) {
  const size_t space = text.find(' ');
  std::string word = text.substr(0, space);
  text.erase(0, space == std::string::npos ? space : space + 1);
  return word;
}

void follow_steps(Trainer& trainer, std::string what) {
  const int64_t steps = std::stoll(next_word(what));
  if (!what.empty()) trainer.set_plan(LearningRatePlan::parse(what));
  for (int64_t i = 0; i < steps; ++i) trainer.step();
}

}  // namespace

void follow(Trainer& trainer, const parallel::ProcessGroup& group) {
  for (;;) {
    std::string what = group.exchange("", true)[0];
    const std::string word = next_word(what);
    if (word == kEnd) return;
    if (word == kSave)
      trainer.save(what);
    else
      follow_steps(trainer, std::move(what));
  }
}

}  // namespace lorry::cli
