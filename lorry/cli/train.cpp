#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lorry/cli/commands.h"
#include "lorry/cli/interrupt.h"
#include "lorry/cli/metrics.h"
#include "lorry/cli/output.h"
#include "lorry/cli/plot.h"
#include "lorry/cli/progress.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_folder.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/time_budget.h"
#include "lorry/cli/trainer.h"
#include "lorry/cli/units.h"
#include "lorry/io/lock.h"

namespace lorry::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kValidationsInARun = 10;
constexpr int64_t kQuickValidation = 8;   // batches: enough to see the course
constexpr int64_t kFullValidation = 256;  // batches: all of the held-out text unless it is long
constexpr size_t kRecentSteps = 20;       // a training loss is the mean over these

constexpr double kEnding = 0.5;  // seconds that the last checkpoint and the curve may take

constexpr double kProbe = 1;  // seconds of steps that tell how long the run takes

enum class Ending { complete, interrupted, out_of_time };

/// The loop around a Trainer: metrics, validation, checkpoints, and when to stop.
class Session {
 public:
  Session(Trainer& trainer, RunFolder folder, const TrainOptions& options, bool quiet)
      : trainer_(trainer),
        folder_(std::move(folder)),
        metrics_(folder_.metrics(), trainer.steps_taken()),
        checkpoint_every_(options.checkpoint_every),
        max_seconds_(options.max_seconds),
        training_s_(metrics_.course().seconds()),
        progress_("train", trainer.steps_taken(), trainer.settings().steps.value_or(0), quiet) {}

  Ending run();
  const Course& course() const { return metrics_.course(); }
  /// True when the loss on the held-out text is known for where the run stands.
  bool validated() const { return !course().validations.empty() && course().validations.back().step == trainer_.steps_taken(); }
  void say(std::string_view line) { progress_.say(line); }

 private:
  void take_step();
  /// Says how long a long run takes on this machine, once its first steps have told.
  void tell_time(double seconds);
  /// Records a step that is done, if any.
  void record(std::optional<StepMetrics> metrics);
  /// Waits for the last step, which is training too, and records it.
  void settle();
  void decide_steps();
  /// Measures the loss on the held-out text; unless it is `patient`, a signal cuts it short and nothing is recorded.
  void validate(int64_t batches, bool patient = false);
  void save() {
    settle();
    io::save_checkpoint(folder_.checkpoint(), trainer_.checkpoint());
  }
  bool out_of_time() const { return max_seconds_ && seconds_since(start_) > *max_seconds_ - reserve_; }

  Trainer& trainer_;
  RunFolder folder_;
  MetricsFile metrics_;
  int64_t checkpoint_every_;
  std::optional<double> max_seconds_;
  std::optional<TimeBudget> budget_;
  double training_s_;  ///< spent in steps since the run began
  Pace pace_;
  bool told_time_ = false;
  double reserve_ = 0;  // seconds that the end of the run takes
  Progress progress_;
  Interrupt interrupt_;
  Clock::time_point start_ = Clock::now();
};

void Session::take_step() {
  const auto begin = Clock::now();
  std::optional<StepMetrics> done = trainer_.step();
  const double seconds = seconds_since(begin);
  training_s_ += seconds;
  record(std::move(done));
  if (budget_) budget_->add_step(seconds);
  if (!max_seconds_) tell_time(seconds);
}

void Session::tell_time(double seconds) {
  if (told_time_) return;
  pace_.add_step(seconds);
  if (!pace_.known(kProbe)) return;
  told_time_ = true;
  const int64_t left = *trainer_.settings().steps - trainer_.steps_taken();
  if (const auto time = long_time_text(pace_.seconds_a_step() * static_cast<double>(left)))
    progress_.say(fmt::format("{} steps: {} here", left, *time));
}

void Session::settle() {
  const auto begin = Clock::now();
  std::optional<StepMetrics> last = trainer_.settle();
  if (last) training_s_ += seconds_since(begin);
  record(std::move(last));
}

void Session::record(std::optional<StepMetrics> m) {
  if (!m) return;
  m->seconds = training_s_;
  metrics_.add(*m);
  require<ValueError>(std::isfinite(m->loss), "train: the loss is {} after step {}; the run cannot go on; try a smaller --lr{}", m->loss, m->step,
                      trainer_.settings().clip == 0 ? " or --clip 1" : "");
  const double speed = static_cast<double>(trainer_.tokens_per_step() * m->step) / m->seconds;
  progress_.update(m->step, fmt::format("loss {:.3f}", m->loss), quantity(speed, " tokens/s"));
}

void Session::decide_steps() {
  // What is kept for the end: one validation over all held-out text, judged by a quick one, and a checkpoint.
  settle();
  const auto begin = Clock::now();
  validate(kQuickValidation, /*patient=*/true);
  const double quick = seconds_since(begin), batches = static_cast<double>(std::min(trainer_.validation_batches(), kFullValidation));
  reserve_ = kEnding + quick * std::max(1.0, batches / kQuickValidation);
  trainer_.set_steps(budget_->decide(seconds_since(start_), reserve_ + kValidationsInARun * quick));
  progress_.set_total(*trainer_.settings().steps);
  budget_.reset();
}

void Session::validate(int64_t batches, bool patient) {
  settle();
  const std::optional<double> loss = trainer_.validate(batches, [&] { return !patient && interrupt_.raised(); });
  if (!loss) return;
  metrics_.add(ValidationMetrics{trainer_.steps_taken(), *loss});
  // The loss over all of the text is told at the end of the run.
  if (batches < kFullValidation)
    progress_.say(fmt::format("step {}: validation loss {:.4f}", trainer_.steps_taken(), *loss));
}

Ending Session::run() {
  if (!trainer_.settings().steps) budget_.emplace(*max_seconds_);
  Ending ending = Ending::complete;
  // A run that was interrupted while it validated makes up for it.
  const int64_t begun = trainer_.steps_taken();
  if (!budget_ && begun > 0 && begun < *trainer_.settings().steps && begun % trainer_.settings().eval_every == 0 && !validated()) validate(kQuickValidation);
  while (budget_ || trainer_.steps_taken() < *trainer_.settings().steps) {
    take_step();
    // The warm-up does not depend on the length of the run; what follows does.
    if (budget_ && (budget_->ready() || trainer_.steps_taken() == *trainer_.settings().warmup)) decide_steps();
    if (budget_ && interrupt_.raised()) decide_steps();
    if (budget_) continue;
    const int64_t step = trainer_.steps_taken(), eval_every = trainer_.settings().eval_every;
    if (step == *trainer_.settings().steps) break;
    if (step % eval_every == 0 && !validated()) validate(kQuickValidation);
    if (step % (checkpoint_every_ > 0 ? checkpoint_every_ : eval_every) == 0) save();
    if (out_of_time()) ending = Ending::out_of_time;
    if (interrupt_.raised()) ending = Ending::interrupted;
    if (ending != Ending::complete) break;
  }
  if (ending != Ending::interrupted) {
    validate(kFullValidation);
    if (!validated()) ending = Ending::interrupted;
  }
  save();
  return ending;
}

void draw_curve(const RunFolder& folder, const Course& course, Session& session) {
  Curve train{"training", {}}, validation{"held-out tenth", {}, true};
  for (const StepMetrics& m : course.steps) train.points.emplace_back(m.step, m.loss);
  for (const ValidationMetrics& m : course.validations) validation.points.emplace_back(m.step, m.loss);
  if (!can_plot()) {
    session.say("gnuplot is not installed: no loss curve is drawn");
    return;
  }
  const std::optional<std::string> svg = plot_curves("Loss", "step", "nats per byte", {train, validation});
  if (svg)
    write_file(folder.curve().string(), *svg);
  else
    session.say(fmt::format("gnuplot could not draw {}", folder.curve().string()));
}

/// What the end of a run tells.
struct Outcome {
  int64_t parameters, steps, tokens_per_step;
};

Outcome outcome_of(const Trainer& trainer) {
  return {trainer.parameters(), trainer.steps_taken(), trainer.tokens_per_step()};
}

void report(const Outcome& run, const RunFolder& folder, const Course& course, const std::string& json) {
  const Table table{json};
  const double tokens = static_cast<double>(run.tokens_per_step * run.steps);
  const double seconds = course.seconds(), train_loss = course.recent_loss(kRecentSteps);
  const double validation_loss = course.validation_loss().value_or(std::nan(""));
  table.print("validation loss  {:.4f} nats per byte\ntraining loss    {:.4f}\n", validation_loss, train_loss);
  table.print("steps            {} in {}, {}\n", run.steps, clock_text(seconds),
              quantity(tokens / seconds, " tokens/s"));
  table.print("parameters       {}\n", quantity(static_cast<double>(run.parameters), ""));
  table.print("checkpoint       {}\n", folder.folder.string());
  write_json(json, {{"parameters", run.parameters},
                    {"checkpoint", folder.checkpoint().string()},
                    {"validation_loss", validation_loss},
                    {"train_loss", train_loss},
                    {"tokens_per_s", tokens / seconds},
                    {"steps", run.steps},
                    {"seconds", seconds}});
}

/// The steps of a resumed run: those that the command line says, or `before`. Throws ValueError when fewer than were
/// taken.
int64_t total_steps(const TrainOptions& options, int64_t taken, int64_t before) {
  const int64_t steps = options.settings.steps.value_or(before);
  require<ValueError>(!options.settings.steps || steps >= taken,
                      "train: '{}' has taken {} steps; got --steps {}; expected at least as many", options.resume,
                      taken, steps);
  return steps;
}

/// Tells of a run that has nothing left to do, without writing to its folder. False when there is something left.
bool report_finished(const RunFolder& folder, const io::Checkpoint& checkpoint, const TrainOptions& options,
                     const CommonOptions& common) {
  std::vector<std::string> texts;
  const TrainSettings settings = from_config(checkpoint.state.config, texts);
  const int64_t step = checkpoint.state.step;
  if (step < total_steps(options, step, *settings.steps)) return false;
  const Course course = read_course(folder.metrics(), step);
  if (course.validations.empty() || course.validations.back().step != step) return false;
  check_against_tensors(checkpoint);
  if (!common.quiet) fmt::print(stderr, "{} has taken all of its {} steps\n", folder.folder.string(), step);
  Outcome run{0, step, settings.batch * settings.accumulate * settings.context};
  for (const auto& [name, tensor] : checkpoint.model) run.parameters += tensor.numel();
  report(run, folder, course, common.json);
  return true;
}

/// The trainer of a run that goes on, of as many steps as the command line says.
std::unique_ptr<Trainer> resume(const RunFolder& folder, const TrainOptions& options) {
  auto trainer = std::make_unique<Trainer>(io::load_checkpoint(folder.checkpoint()), options.texts);
  trainer->set_steps(total_steps(options, trainer->steps_taken(), *trainer->settings().steps));
  return trainer;
}

/// The trainer of a new run.
std::unique_ptr<Trainer> begin(const TrainOptions& options) {
  TrainSettings settings = options.settings;
  complete(settings, options.max_seconds.has_value());
  return std::make_unique<Trainer>(settings, options.texts);
}

}  // namespace

int run_train(const TrainOptions& options, const CommonOptions& common) {
  const bool resumed = !options.resume.empty();
  const RunFolder folder{resumed ? options.resume : options.out};
  std::unique_ptr<Trainer> trainer;
  std::optional<io::FileLock> lock;
  if (resumed) {
    if (report_finished(folder, io::load_checkpoint(folder.checkpoint()), options, common)) return 0;
    lock.emplace(folder.lock());
    trainer = resume(folder, options);
  } else {
    const auto require_new = [&] {
      require<ValueError>(!folder.has_checkpoint(),
                          "train: '{0}' holds a run already; go on with it by --resume {0}, or choose another --out",
                          folder.folder.string());
    };
    require_new();
    trainer = begin(options);
    std::error_code error;
    std::filesystem::create_directories(folder.folder, error);
    require<IoError>(!error, "train: cannot make the folder '{}': {}", folder.folder.string(), error.message());
    lock.emplace(folder.lock());
    require_new();  // another process may have begun meanwhile
    folder.require_own();
  }

  Session session(*trainer, folder, options, common.quiet);
  const Ending ending = session.run();
  draw_curve(folder, session.course(), session);
  if (ending == Ending::interrupted) {
    raise<Error>("train: interrupted after step {} of {}; everything is saved; go on with: lorry train --resume {}", trainer->steps_taken(),
                 *trainer->settings().steps, folder.folder.string());
  }
  if (ending == Ending::out_of_time)
    session.say(fmt::format("the time is over after step {} of {}; go on with: lorry train --resume {}", trainer->steps_taken(), *trainer->settings().steps,
                            folder.folder.string()));
  report(outcome_of(*trainer), folder, session.course(), common.json);
  return 0;
}

}  // namespace lorry::cli
