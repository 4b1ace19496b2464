#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lorry/base/units.h"
#include "lorry/bench/plot.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/forecast.h"
#include "lorry/cli/interrupt.h"
#include "lorry/cli/lead.h"
#include "lorry/cli/metrics.h"
#include "lorry/cli/output.h"
#include "lorry/cli/processes.h"
#include "lorry/cli/progress.h"
#include "lorry/cli/report.h"
#include "lorry/cli/run_folder.h"
#include "lorry/cli/run_settings.h"
#include "lorry/cli/step_timer.h"
#include "lorry/cli/time_plan.h"
#include "lorry/cli/trainer.h"
#include "lorry/io/lock.h"
#include "lorry/parallel/launch.h"

namespace lorry::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr int64_t kFullValidation = 256;  // in batches: all of the held-out text unless it is long
constexpr double kProbe = 1;              // seconds of steps from which the duration of the run is estimated

/// A run limited by time: its plan and its clock.
struct TimedRun {
  TimePlan plan;
  double before = 0;  ///< seconds of the run before this process
  Clock::time_point start;

  double now() const { return before + seconds_since(start); }
};

/// The training loop: metrics, validation, checkpoints, and when to stop.
class Session {
 public:
  /// timed: the plan, for a run limited by time.
  /// lead: leads other processes; none if there are none.
  Session(Trainer& trainer, RunFolder folder, const TrainOptions& options, std::optional<TimedRun> timed,
          std::optional<Lead> lead, bool quiet)
      : trainer_(trainer),
        lead_(std::move(lead)),
        folder_(std::move(folder)),
        metrics_(folder_.metrics(), trainer.steps_taken()),
        checkpoint_every_(options.checkpoint_every),
        timed_(std::move(timed)),
        training_s_(metrics_.history().seconds()),
        progress_("train", trainer.steps_taken(), timed_ && !timed_->plan.planned() ? 0 : *trainer.settings().steps,
                  quiet) {}

  /// Trains to the end of the run. Returns false if a signal came first.
  bool run();
  /// Lets the other processes end, if there are any.
  void end() {
    if (lead_) lead_->end();
  }
  const RunHistory& history() const { return metrics_.history(); }
  /// Whether the validation loss at the current step has been measured.
  bool validated() const {
    return !history().validations.empty() && history().validations.back().step == trainer_.steps_taken();
  }
  void say(std::string_view line) { progress_.say(line); }
  /// The position of the run: "step 7 of 30".
  std::string position() const;

 private:
  void take_step();
  /// How many steps until something else than a step may be due.
  int64_t steps_until_event() const;
  /// Reports how long a long run will take on this machine, after its first steps.
  void announce_time(double seconds);
  /// Records a finished step, if there is one.
  void record(std::optional<StepMetrics> metrics);
  /// Waits for the last step, whose time counts as training, and records it.
  void settle();
  /// The batches of the validation due after a step; 0: none.
  int64_t validation_due() const;
  bool checkpoint_due() const;
  /// Measures the time of a validation batch.
  void probe();
  /// Measures the validation loss and returns it. A signal interrupts it; then nothing is recorded.
  std::optional<double> validate(int64_t batches);
  /// The same during the run, with a message.
  void validate_between(int64_t batches);
  void save();
  /// Whether a signal has arrived; reports it the first time.
  bool stopping();

  Trainer& trainer_;
  std::optional<Lead> lead_;
  RunFolder folder_;
  MetricsFile metrics_;
  int64_t checkpoint_every_;
  std::optional<TimedRun> timed_;
  double training_s_;  ///< time spent in steps since the run began
  StepTimer step_timer_;
  bool announced_time_ = false, announced_stop_ = false;
  Progress progress_;
  Interrupt interrupt_;
};

int64_t Session::steps_until_event() const {
  if (timed_) return 1;  // the plan changes with every step
  const int64_t taken = trainer_.steps_taken(), eval_every = trainer_.settings().eval_every;
  int64_t until = std::min(*trainer_.settings().steps - taken, eval_every - taken % eval_every);
  if (checkpoint_every_ > 0) until = std::min(until, checkpoint_every_ - taken % checkpoint_every_);
  return until;
}

void Session::take_step() {
  if (lead_) lead_->before_step(trainer_, steps_until_event());
  const auto begin = Clock::now();
  std::optional<StepMetrics> done = trainer_.step();
  const double seconds = seconds_since(begin);
  if (lead_) lead_->after_step(seconds);
  training_s_ += seconds;
  if (timed_ && timed_->plan.step_taken(timed_->now(), seconds)) {
    trainer_.set_plan(timed_->plan.steps());
    progress_.set_total(*trainer_.settings().steps);
  }
  record(std::move(done));
  if (!timed_) announce_time(seconds);
}

void Session::announce_time(double seconds) {
  if (announced_time_) return;
  step_timer_.add_step(seconds);
  if (!step_timer_.known(kProbe)) return;
  announced_time_ = true;
  const int64_t left = *trainer_.settings().steps - trainer_.steps_taken();
  if (const auto time = approximate_time_text(step_timer_.seconds_per_step() * static_cast<double>(left)))
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
  require<ValueError>(std::isfinite(m->loss),
                      "train: the loss is {} after step {}; the run cannot go on; try a smaller --lr{}", m->loss,
                      m->step, trainer_.settings().clip == 0 ? " or --clip 1" : "");
  const double speed = static_cast<double>(trainer_.tokens_per_step() * m->step) / m->seconds;
  std::optional<double> left;
  if (timed_) left = timed_->plan.left(timed_->now());
  progress_.update(m->step, fmt::format("loss {:.3f}", m->loss), quantity(speed, " tokens/s"), left);
}

int64_t Session::validation_due() const {
  if (timed_) return timed_->plan.validation_due(timed_->now());
  return trainer_.steps_taken() % trainer_.settings().eval_every == 0 && !validated() ? kInterimValidationBatches : 0;
}

bool Session::checkpoint_due() const {
  if (timed_) return timed_->plan.checkpoint_due(timed_->now());
  return trainer_.steps_taken() % (checkpoint_every_ > 0 ? checkpoint_every_ : trainer_.settings().eval_every) == 0;
}

void Session::probe() {
  settle();
  const auto begin = Clock::now();
  trainer_.validate(1, [] { return false; });
  timed_->plan.probed(seconds_since(begin));
}

std::optional<double> Session::validate(int64_t batches) {
  settle();
  const auto begin = Clock::now();
  batches = std::min(batches, trainer_.validation_batches());
  const std::optional<double> loss = trainer_.validate(batches, [&] { return stopping(); });
  if (!loss) return loss;
  metrics_.add(ValidationMetrics{trainer_.steps_taken(), *loss});
  if (timed_) timed_->plan.validated(seconds_since(begin), batches);
  return loss;
}

void Session::validate_between(int64_t batches) {
  if (const std::optional<double> loss = validate(batches))
    progress_.say(fmt::format("step {}: validation loss {:.4f}", trainer_.steps_taken(), *loss));
}

void Session::save() {
  settle();
  const auto begin = Clock::now();
  if (lead_ && trainer_.is_saved_by_all()) lead_->before_save(folder_.checkpoint());
  trainer_.save(folder_.checkpoint(), timed_ ? timed_->plan.state(timed_->now()) : io::Settings());
  if (timed_) timed_->plan.saved(seconds_since(begin));
}

bool Session::stopping() {
  if (!interrupt_.raised()) return false;
  if (!announced_stop_) progress_.say(fmt::format("saving; {} again gives up", interrupt_.name()));
  announced_stop_ = true;
  return true;
}

std::string Session::position() const {
  const int64_t step = trainer_.steps_taken(), steps = *trainer_.settings().steps;
  if (!timed_ || step == steps) return fmt::format("step {} of {}", step, steps);
  return fmt::format("step {} of about {}, {} before the end", step, steps, hms_text(timed_->plan.left(timed_->now())));
}

bool Session::run() {
  // If the run was interrupted during a validation, that is done now.
  const auto over = [&] { return trainer_.steps_taken() >= *trainer_.settings().steps; };
  if (!timed_ && trainer_.steps_taken() > 0 && !over())
    if (const int64_t batches = validation_due()) validate_between(batches);
  while (!over()) {
    take_step();
    stopping();  // report it before anything that takes time
    if (over()) break;
    if (lead_ && lead_->is_under_way()) continue;  // nothing is due
    if (timed_ && timed_->plan.needs_probe()) probe();
    if (const int64_t batches = validation_due()) validate_between(batches);
    if (!stopping() && checkpoint_due()) save();
    if (stopping()) break;  // the checkpoint is saved below
  }
  // The loss over all of the text is reported at the end of the run.
  if (over()) validate(timed_ ? timed_->plan.last_validation() : kFullValidation);
  save();
  return over() && validated();
}

void draw_curve(const RunFolder& folder, const RunHistory& history, Session& session) {
  bench::Curve train{"training", {}}, validation{"held-out tenth", {}, true};
  for (const StepMetrics& m : history.steps) train.points.emplace_back(m.step, m.loss);
  for (const ValidationMetrics& m : history.validations) validation.points.emplace_back(m.step, m.loss);
  if (!bench::can_plot()) {
    session.say("gnuplot is not installed: no loss curve is drawn");
    return;
  }
  const std::optional<std::string> svg = bench::plot_curves("Loss", "step", "nats per byte", {train, validation});
  if (svg)
    write_file(folder.curve().string(), *svg);
  else
    session.say(fmt::format("gnuplot could not draw {}", folder.curve().string()));
}

/// The results that are reported at the end of a run.
struct Outcome {
  int64_t parameters, steps, tokens_per_step;
};

Outcome outcome_of(const Trainer& trainer) {
  return {trainer.parameters(), trainer.steps_taken(), trainer.tokens_per_step()};
}

void report(const Outcome& run, const RunFolder& folder, const RunHistory& history, const std::string& json) {
  const Table table{json};
  const double tokens = static_cast<double>(run.tokens_per_step * run.steps);
  const double seconds = history.seconds(), train_loss = history.recent_loss(kRecentSteps);
  const double validation_loss = history.validation_loss().value_or(std::nan(""));
  table.print("validation loss  {:.4f} nats per byte\n", validation_loss);
  table.print("training loss    {:.4f}, mean of the last {} steps\n", train_loss,
              std::min(kRecentSteps, history.steps.size()));
  table.print("steps            {} in {}, {}\n", run.steps, hms_text(seconds), quantity(tokens / seconds, " tokens/s"));
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

/// The steps of a resumed run: those of the command line, else `before`. Throws ValueError if they are fewer than were
/// taken.
int64_t total_steps(const TrainOptions& options, int64_t taken, int64_t before) {
  const int64_t steps = options.settings.steps.value_or(before);
  require<ValueError>(!options.settings.steps || steps >= taken,
                      "train: '{}' has taken {} steps; got --steps {}; expected at least as many", options.resume,
                      taken, steps);
  return steps;
}

/// Whether a run has taken all of its steps, and has measured its loss.
bool is_finished(const RunFolder& folder, const io::Checkpoint& checkpoint, const TrainOptions& options) {
  std::vector<std::string> texts;
  const int64_t step = checkpoint.state.step;
  if (step < total_steps(options, step, *from_config(checkpoint.state.config, texts).steps)) return false;
  const RunHistory history = read_history(folder.metrics(), step);
  return !history.validations.empty() && history.validations.back().step == step;
}

/// Reports a run with no steps left, without writing to its folder. Returns false if there are steps left.
bool report_finished(const RunFolder& folder, const io::Checkpoint& checkpoint, const TrainOptions& options,
                     const CommonOptions& common) {
  if (!is_finished(folder, checkpoint, options)) return false;
  check_against_tensors(checkpoint);
  std::vector<std::string> texts;
  const TrainSettings settings = from_config(checkpoint.state.config, texts);
  const int64_t step = checkpoint.state.step;
  const RunHistory history = read_history(folder.metrics(), step);
  if (!common.quiet)
    fmt::print(stderr, "{} has taken all of its {} steps; a larger --steps makes it longer\n", folder.folder.string(),
               step);
  Outcome run{0, step, settings.batch * settings.accumulate * settings.context};
  for (const auto& [name, tensor] : checkpoint.model) run.parameters += tensor.numel();
  report(run, folder, history, common.json);
  return true;
}

/// The options that start as many processes again.
std::string processes_text(const TrainOptions& options, const parallel::ProcessGroup& group) {
  std::string text;
  if (group.size() > 1) text += fmt::format(" --devices {}", group.size());
  if (options.shard) text += " --shard";
  if (options.restarts > 0) text += fmt::format(" --restarts {}", options.restarts);
  return text;
}

/// The options of a run's plan, from its settings.
TimePlanOptions plan_options(const Trainer& trainer, const TrainOptions& options) {
  // Estimated as parameters and two moments in f32, at 500 MB/s.
  const double checkpoint_s = 0.05 + 12 * static_cast<double>(trainer.parameters()) / 500e6;
  return {.warmup = options.settings.warmup,
          .eval_every = trainer.settings().eval_every,
          .checkpoint_every = options.checkpoint_every,
          .batches_per_step = trainer.settings().accumulate,
          .validation_batches = std::min(kFullValidation, trainer.validation_batches()),
          .checkpoint_s = checkpoint_s};
}

/// A trainer, and the plan of a run limited by time.
struct Training {
  std::unique_ptr<Trainer> trainer;
  std::optional<TimedRun> timed;
};

/// Resumes a run, with the number of steps of the command line; without one, a run limited by time takes what is left
/// of it.
Training resume(const RunFolder& folder, const TrainOptions& options, const parallel::ProcessGroup& group,
                Clock::time_point start) {
  const io::Checkpoint checkpoint = io::load_checkpoint(folder.checkpoint());
  Training training{std::make_unique<Trainer>(checkpoint, options.texts, Together{group, options.shard}), {}};
  Trainer& trainer = *training.trainer;
  const int64_t taken = trainer.steps_taken(), steps = total_steps(options, taken, *trainer.settings().steps);
  const io::Settings& schedule = checkpoint.state.schedule;
  if (options.settings.steps || !trainer.plan()) {
    trainer.set_steps(steps);
    return training;
  }
  const auto elapsed = io::setting<double>(schedule, "elapsed_s");
  training.timed = TimedRun{TimePlan(*trainer.plan(), schedule, taken, plan_options(trainer, options)), elapsed, start};
  return training;
}

/// Starts a new run.
Training begin(const TrainOptions& options, const parallel::ProcessGroup& group, Clock::time_point start) {
  TrainSettings settings = options.settings;
  complete(settings, options.max_seconds.has_value());
  Training training{std::make_unique<Trainer>(settings, options.texts, Together{group, options.shard}), {}};
  if (!options.max_seconds) return training;
  training.timed = TimedRun{TimePlan(*options.max_seconds, plan_options(*training.trainer, options)), 0.0, start};
  training.trainer->set_plan(training.timed->plan.steps());
  return training;
}

/// A process that does what rank 0 announces.
int run_follower(const TrainOptions& options, const parallel::ProcessGroup& group) {
  const auto start = Clock::now();
  const Interrupt interrupt;  // rank 0 decides when to stop
  if (!options.resume.empty()) {
    const RunFolder folder = find_run(options.resume, "train");
    if (is_finished(folder, io::load_checkpoint(folder.checkpoint()), options)) return 0;
  }
  Training training = options.resume.empty() ? begin(options, group, start)
                                             : resume(find_run(options.resume, "train"), options, group, start);
  follow(*training.trainer, group);
  return 0;
}

/// The only process, or rank 0.
int run_leader(const TrainOptions& options, const CommonOptions& common, const parallel::ProcessGroup& group) {
  const auto start = Clock::now();
  const bool resumed = !options.resume.empty();
  const RunFolder folder = resumed ? find_run(options.resume, "train") : RunFolder{options.out};
  Training training;
  std::optional<io::FileLock> lock;
  if (resumed) {
    if (report_finished(folder, io::load_checkpoint(folder.checkpoint()), options, common)) return 0;
    lock.emplace(folder.lock());
    training = resume(folder, options, group, start);
  } else {
    const auto require_new = [&] {
      if (!folder.has_checkpoint()) return;
      const std::optional<std::string> holder = io::lock_holder(folder.lock());
      require<ValueError>(!holder, "train: '{}' is being trained by {}; wait for its end, or choose another --out",
                          folder.folder.string(), holder.value_or(""));
      raise<ValueError>("train: '{0}' holds a run already; go on with it by --resume {0}, or choose another --out",
                        folder.folder.string());
    };
    require_new();
    training = begin(options, group, start);
    std::error_code error;
    std::filesystem::create_directories(folder.folder, error);
    require<IoError>(!error, "train: cannot make the folder '{}': {}", folder.folder.string(), error.message());
    lock.emplace(folder.lock());
    require_new();  // another process may have started a run meanwhile
    folder.require_own();
  }

  require_writable(common.json);  // it may be in the folder, which exists now
  if (options.replay) training.trainer->replay_steps();
  if (options.compile) training.trainer->compile_steps(options.epilogues);
  std::optional<Lead> lead;
  if (group.size() > 1) lead.emplace(group);
  Session session(*training.trainer, folder, options, std::move(training.timed), std::move(lead), common.quiet);
  const bool complete = session.run();
  session.end();
  draw_curve(folder, session.history(), session);
  require<Error>(complete, "train: interrupted after {}; everything is saved; go on with: lorry train --resume {}{}",
                 session.position(), folder.folder.string(), processes_text(options, group));
  if (const std::string why = training.trainer->not_compiled(); !why.empty() && !common.quiet)
    fmt::print(stderr, "--compile: steps are not one function; {}\n", why);
  report(outcome_of(*training.trainer), folder, session.history(), common.json);
  return 0;
}

}  // namespace

int run_train(const TrainOptions& given, const CommonOptions& common) {
  if (given.forecast) return run_forecast(given, common);
  require<ValueError>(given.restarts == 0 || given.devices > 1,
                      "train: --restarts starts several processes again; got --devices {}", given.devices);
  if (given.devices > 1 && parallel::launched().size == 1) return run_as_processes(given);
  TrainOptions options = given;
  if (was_restarted() && options.resume.empty() && RunFolder{options.out}.has_checkpoint())
    options.resume = options.out;
  const parallel::ProcessGroup group = parallel::join();
  if (group.size() == 1) return run_leader(options, common, group);
  try {
    if (default_device().is_cuda()) set_default_device(group.device());
    return group.rank() == 0 ? run_leader(options, common, group) : run_follower(options, group);
  } catch (const ParallelError&) {
    throw;
  } catch (const std::exception& error) {
    group.fail(error.what());
    throw;
  }
}

}  // namespace lorry::cli
