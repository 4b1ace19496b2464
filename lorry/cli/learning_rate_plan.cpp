#include "lorry/cli/learning_rate_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lorry/base/error.h"
#include "lorry/optim/schedule.h"

namespace lorry::cli {
namespace {

/// The progress per step.
double progress_per_step(const PlannedPart& part) {
  return part.steps > part.step ? (1 - part.progress) / static_cast<double>(part.steps - part.step) : 0;
}

double progress_in(const PlannedPart& part, int64_t step) {
  if (step >= part.steps && part.steps > part.step) return 1;
  return part.progress + static_cast<double>(step - part.step) * progress_per_step(part);
}

bool follows(const PlannedPart& part, const PlannedPart& before) {
  return part.step >= before.step && part.progress >= before.progress && part.progress <= 1 &&
         part.steps >= part.step && part.warmup >= 0 && std::isfinite(part.warmup);
}

bool begins(const PlannedPart& part) { return part.step == 0 && part.progress == 0 && follows(part, {}); }

}  // namespace

LearningRatePlan::LearningRatePlan(const PlannedPart& first) : parts_{first} {
  require<ValueError>(begins(first), "plan: a run begins at step 0 with progress 0; got step {} with progress {}",
                      first.step, first.progress);
}

LearningRatePlan LearningRatePlan::parse(const std::string& text) {
  std::istringstream lines(text);
  std::vector<PlannedPart> parts;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    PlannedPart part;
    words >> part.step >> part.progress >> part.steps >> part.warmup;
    const bool fits = words && (words >> std::ws).eof() && (parts.empty() ? begins(part) : follows(part, parts.back()));
    require<FormatError>(fits,
                         "checkpoint: line {} of the plan is '{}'; expected a step, the progress, the steps and "
                         "the warm-up, from step 0 and progress 0 on and none of the two falling",
                         parts.size() + 1, line);
    parts.push_back(part);
  }
  require<FormatError>(!parts.empty(), "checkpoint: the plan of a timed run is empty");
  LearningRatePlan plan(parts.front());
  plan.parts_ = std::move(parts);
  return plan;
}

std::string LearningRatePlan::text() const {
  std::string text;
  for (const PlannedPart& p : parts_) text += fmt::format("{} {} {} {}\n", p.step, p.progress, p.steps, p.warmup);
  return text;
}

void LearningRatePlan::add(const PlannedPart& part) {
  const PlannedPart& last = parts_.back();
  require<ValueError>(follows(part, last), "plan: step {} with progress {} cannot follow step {} with progress {}",
                      part.step, part.progress, last.step, last.progress);
  if (part.step == last.step) parts_.pop_back();
  parts_.push_back(part);
}

const PlannedPart& LearningRatePlan::part_of(int64_t step) const {
  const auto after = std::ranges::upper_bound(parts_, step, {}, &PlannedPart::step);
  return after == parts_.begin() ? *after : *std::prev(after);
}

double LearningRatePlan::progress(int64_t step) const { return progress_in(part_of(step), step); }

int64_t LearningRatePlan::warmup_steps() const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PlannedPart& part = parts_[i];
    const double missing = part.warmup - part.progress, each = progress_per_step(part);
    const int64_t end = i + 1 < parts_.size() ? parts_[i + 1].step : part.steps;
    if (missing <= 0) return part.step;
    if (missing < each * static_cast<double>(end - part.step))
      // tolerance, because exact integers are rounded too
      return part.step + static_cast<int64_t>(std::ceil(missing / each - 1e-6));
  }
  return steps();
}

double LearningRatePlan::rate(int64_t step, double lr, double least) const {
  const PlannedPart& part = part_of(step);
  const double before = progress_in(part, step), warmup = part.warmup;
  if (before < warmup) return lr * std::min(1.0, progress_in(part, step + 1) / warmup);
  return optim::cosine_decay(lr, least, warmup < 1 ? (before - warmup) / (1 - warmup) : 1);
}

}  // namespace lorry::cli
