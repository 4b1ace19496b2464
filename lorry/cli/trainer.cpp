#include "lorry/cli/trainer.h"

#include <algorithm>

#include "lorry/autograd/grad_mode.h"
#include "lorry/cli/run_parts.h"
#include "lorry/cli/run_settings.h"
#include "lorry/compile/compile.h"
#include "lorry/io/corpus.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/loss_scaler.h"
#include "lorry/optim/schedule.h"
#include "lorry/parallel/checkpoint.h"
#include "lorry/parallel/data_parallel.h"
#include "lorry/replay/graph.h"

namespace lorry::cli {
namespace {

constexpr double kLeastLr = 0.1;  // share of the largest rate, at the end of the run
// initial scale of an f16 loss: the largest power of two that its gradient can be
constexpr double kFirstScale = 32768;
constexpr std::string_view kScalerState = "loss_scaler.";
constexpr const char* kPlanState = "plan";

std::vector<std::filesystem::path> paths(const std::vector<std::string>& texts) { return {texts.begin(), texts.end()}; }

std::vector<Tensor> tensors_of(const std::vector<optim::NamedTensor>& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

namespace {
/// Makes the processes of a run data parallel; null for one alone.
std::unique_ptr<parallel::DataParallel> share(const Together& together, const TrainSettings& s,
                                              const io::Corpus& corpus,
                                              const std::vector<optim::NamedTensor>& parameters) {
  if (!together.group || together.group->size() == 1) return nullptr;
  const parallel::ProcessGroup& group = *together.group;
  require<ValueError>(!adds_up_in_f32(s),
                      "train: several processes do not add up gradients of 16 bits in f32; got --accumulate {} in {}; "
                      "use --dtype f32, or --accumulate 1",
                      s.accumulate, name(s.dtype));
  require<ValueError>(s.batch % group.size() == 0,
                      "train: a batch of {} cannot be split evenly over {} processes; choose a --batch that can",
                      s.batch, group.size());
  group.require_same("the text", fmt::format("{} bytes, {}", corpus.train_bytes(), corpus.fingerprint()));
  TrainSettings known = s;
  known.steps = s.steps.value_or(0), known.warmup = s.warmup.value_or(0);  // where a plan will say them
  for (const auto& [key, value] : to_config(known, {}))
    group.require_same(key, std::visit([](const auto& x) { return fmt::format("{}", x); }, value));
  return std::make_unique<parallel::DataParallel>(parameters, group,
                                                  parallel::DataParallelOptions{.shard = together.shard});
}
}  // namespace

/// The figures of a step, while they are copied from the device.
class Pending {
 public:
  Pending(int64_t step, double lr, const Tensor& loss, const Tensor& norm)
      : metrics_{step, 0, lr, 0, 0},
        loss_(loss.detach().to(kCPU, true)),
        norm_(norm.to(kCPU, true)),
        arrived_(loss.device()) {
    arrived_.record(current_stream(loss.device()));
  }
  StepMetrics get() {
    arrived_.synchronize();
    metrics_.loss = loss_.item<double>();
    metrics_.gradient_norm = norm_.item<double>();
    return metrics_;
  }

 private:
  StepMetrics metrics_;
  Tensor loss_, norm_;
  Event arrived_;
};

struct Trainer::Run {
  Run(TrainSettings s, std::vector<std::string> files, const Together& together)
      : settings(std::move(s)),
        texts(std::move(files)),
        corpus(paths(texts), settings.context, settings.seed),
        model(make_model(settings, device)),
        parameters(model->named_parameters()),
        tensors(tensors_of(parameters)),
        ranks(share(together, settings, corpus, parameters)),
        optimizer(make_optimizer(settings, parameters, [this](const std::vector<optim::NamedTensor>& whole) {
          return ranks ? ranks->own_parts(whole) : whole;
        })) {
    corpus.pin_batches(!device.is_cpu());
    if (settings.dtype == kF16) scaler.emplace(optim::LossScalerOptions{.scale = kFirstScale}, device);
    if (adds_up_in_f32(settings)) make_f32_gradients(parameters);
  }

  void require_same_step() const {
    if (ranks) ranks->group().require_same("the step that a run begins with", fmt::format("{}", steps_taken));
  }
  void require_alone() const {
    require<ValueError>(!ranks,
                        "train: several processes share steps that are neither compiled nor replayed; leave out "
                        "--compile and --replay, or use one device");
  }

  double lr(int64_t step) const {
    const double least = kLeastLr * settings.lr;
    if (plan) return plan->rate(step, settings.lr, least);
    // A run may end during its warm-up.
    if (step < *settings.warmup) return optim::Schedule{.lr = settings.lr, .warmup = *settings.warmup}.at(step);
    return optim::Schedule{optim::Schedule::Kind::cosine, settings.lr, least, *settings.warmup, *settings.steps}.at(
        step);
  }

  void set_plan(const LearningRatePlan& next) {
    plan = next;
    settings.steps = next.steps();
    settings.warmup = next.warmup_steps();
  }

  /// The loss of a batch, which is copied to the device asynchronously.
  Tensor loss(const io::Batch& batch) const { return model->loss(batch.x.to(device, true), batch.y.to(device, true)); }

  /// Returns the next batch of a step: tokens, and the tokens that follow them.
  using NextBatch = std::function<std::pair<Tensor, Tensor>()>;

  /// The own part of it, if there are several ranks.
  std::pair<Tensor, Tensor> next_batch() {
    const int64_t part = ranks ? settings.batch / ranks->group().size() : settings.batch;
    const uint64_t begin = corpus.position();
    if (ranks) corpus.seek(begin + static_cast<uint64_t>(ranks->group().rank() * part));
    const io::Batch batch = corpus.train_batch(part);
    corpus.seek(begin + static_cast<uint64_t>(settings.batch));
    return {batch.x.to(device, true), batch.y.to(device, true)};
  }

  /// Accumulates the gradients of the mean loss over the batches of a step, and returns that loss.
  Tensor accumulate(const NextBatch& next) {
    if (settings.accumulate == 1) return accumulate_batch(next, 1);
    const double share = 1.0 / static_cast<double>(settings.accumulate);
    Tensor mean;
    for (int64_t i = 0; i < settings.accumulate; ++i) {
      std::optional<parallel::DataParallel::NoSync> no_sync;
      if (ranks && i + 1 < settings.accumulate) no_sync.emplace(*ranks);
      const Tensor part = accumulate_batch(next, share).to(kF32).mul(share);
      mean = mean.defined() ? mean.add(part) : part;
    }
    return mean;
  }
  Tensor accumulate_batch(const NextBatch& next, double share) {
    const auto [x, y] = next();
    const double counts = ranks ? share * ranks->share() : share;
    const Tensor whole = model->loss(x, y), part = counts == 1 ? whole : whole.mul(counts);
    (scaler ? scaler->scale(part) : part).backward();
    return whole.detach();
  }

  /// Restores the optimizer and the loss scaler from the result of checkpoint().
  void restore(optim::TensorMap state) {
    if (scaler) {
      optim::TensorMap own;
      for (auto at = state.lower_bound(std::string(kScalerState));
           at != state.end() && at->first.starts_with(kScalerState); at = state.erase(at))
        own[at->first.substr(kScalerState.size())] = at->second;
      scaler->load_state_dict(own);
    }
    optimizer->load_state_dict(ranks ? ranks->own_state(state) : state);
  }

  /// Clips, steps and releases the gradients, in one pass. Returns the norm before clipping.
  Tensor update() {
    const optim::StepOptions options = step_options(settings);
    const auto step = [&](const optim::StepOptions& o) {
      return ranks ? ranks->step(*optimizer, o) : optimizer->step(o);
    };
    const Tensor norm = scaler ? scaler->step(step, options.max_norm, options.zero_grad) : step(options);
    if (scaler) scaler->update();
    if (options.zero_grad) return norm;
    ranks ? ranks->zero_grad() : optimizer->zero_grad();
    return norm;
  }

  /// A whole step. Returns the loss and the norm of the gradients.
  using Step = std::pair<Tensor, Tensor>;
  Step step() {
    if (replays) return replay_step();
    if (!compiled) {
      Tensor loss = accumulate([this] { return next_batch(); });
      parallel::Begun sum;
      if (ranks) loss = loss.to(kF32).mul(ranks->share()), sum = parallel::begin_all_reduce({loss}, ranks->group());
      const Tensor norm = update();
      sum.wait();
      return {loss, norm};
    }
    return (*compiled)(next_batches());
  }
  /// The batches of a step: tokens and targets of each.
  std::vector<Tensor> next_batches() {
    std::vector<Tensor> batches;
    for (int64_t i = 0; i < settings.accumulate; ++i) {
      auto [x, y] = next_batch();
      batches.insert(batches.end(), {std::move(x), std::move(y)});
    }
    return batches;
  }

  /// The first steps make what a graph needs: states of the optimizer, plans, compiled kernels. The next one is
  /// captured, and the others are replays of it, over batches in the same memory.
  Step replay_step() {
    const std::vector<Tensor> batches = next_batches();
    if (static_batches.empty())
      for (const Tensor& x : batches) static_batches.push_back(empty_like(x));
    for (size_t i = 0; i < batches.size(); ++i) static_batches[i].copy_(batches[i]);
    const auto step = [this] { return compiled ? (*compiled)(static_batches) : StepFunction{this}(static_batches); };
    if (warm_steps > 0) {
      --warm_steps;
      return step();
    }
    if (graph)
      graph->replay();
    else
      graph.emplace(
          [step] {
            const auto [loss, norm] = step();
            return std::vector{loss, norm};
          },
          replay::CaptureOptions{.warm_up = 0, .device = device});
    return {graph->outputs()[0], graph->outputs()[1]};
  }

  void set_lr(double rate) {
    if (!replays) return optimizer->set_lr(rate);
    if (!lr_tensor.defined()) {
      lr_tensor = full({}, rate, {.dtype = kF64, .device = device});
      optimizer->set_lr(lr_tensor);
    }
    lr_tensor.fill_(rate);
  }

  /// A whole step for given batches, as a function of tensors.
  struct StepFunction {
    Run* run;
    Step operator()(const std::vector<Tensor>& batches) const {
      size_t at = 0;
      const Tensor loss = run->accumulate([&] {
        at += 2;
        return std::pair(batches[at - 2], batches[at - 1]);
      });
      return {loss, run->update()};
    }
  };

  Device device = default_device();
  TrainSettings settings;
  std::optional<LearningRatePlan> plan;  ///< for a run limited by time
  std::vector<std::string> texts;
  io::Corpus corpus;
  std::unique_ptr<nn::GPT> model;
  std::vector<optim::NamedTensor> parameters;
  std::vector<Tensor> tensors;
  std::unique_ptr<parallel::DataParallel> ranks;  ///< if there are several
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<optim::LossScaler> scaler;  ///< for f16
  std::optional<Compiled<StepFunction>> compiled;
  bool replays = false;
  int warm_steps = 3;  ///< before the capture: operators, then the recording, then the recorded step
  std::vector<Tensor> static_batches;
  Tensor lr_tensor;  ///< captured steps read the learning rate where it lies
  std::optional<replay::Graph> graph;
  int64_t steps_taken = 0;
  std::optional<Pending> pending;
};

Trainer::Trainer(TrainSettings settings, std::vector<std::string> texts, const Together& together)
    : run_(std::make_unique<Run>(std::move(settings), std::move(texts), together)) {
  run_->require_same_step();
}

Trainer::Trainer(const io::Checkpoint& checkpoint, std::vector<std::string> texts, const Together& together) {
  const bool recorded = texts.empty();
  TrainSettings settings = from_config(checkpoint.state.config, texts);
  check_against_tensors(checkpoint);
  try {
    run_ = std::make_unique<Run>(std::move(settings), texts, together);
  } catch (const IoError& error) {
    if (!recorded) throw;
    const std::string all = texts.size() > 1 ? fmt::format(", with all {} files in their order", texts.size()) : "";
    raise<IoError>("{}; if the text has moved, --text FILE says where it is now{}", error.what(), all);
  }
  const std::string fingerprint = io::setting<std::string>(checkpoint.state.config, "text_fingerprint");
  const bool sized = checkpoint.state.config.contains("text_bytes");  // missing in older runs
  require<ValueError>(
      fingerprint == std::to_string(run_->corpus.fingerprint()),
      "train: the text is not the one that this run began with; got {} bytes to train on; expected {} of the same "
      "files; bring them back, name them by --text, or begin a new run with another --out",
      run_->corpus.train_bytes(),
      sized ? fmt::format("the {}", io::setting<int64_t>(checkpoint.state.config, "text_bytes")) : "those");
  io::restore(run_->model->state_dict(), checkpoint.model, "checkpoint: model.safetensors");
  run_->restore(checkpoint.optimizer);
  run_->corpus.seek(checkpoint.state.data_position);
  default_generator().set_state({checkpoint.state.seed, checkpoint.state.random_offset});
  run_->steps_taken = checkpoint.state.step;
  run_->require_same_step();
  if (!checkpoint.state.schedule.contains(kPlanState)) return;
  const LearningRatePlan plan =
      LearningRatePlan::parse(io::setting<std::string>(checkpoint.state.schedule, kPlanState));
  require<FormatError>(plan.steps() == *run_->settings.steps,
                       "checkpoint: state.json says steps {}, and its plan ends after {}; expected the same",
                       *run_->settings.steps, plan.steps());
  run_->set_plan(plan);
}

Trainer::~Trainer() = default;

void Trainer::compile_steps(bool epilogues) {
  run_->require_alone();
  run_->compiled.emplace(compile(Run::StepFunction{run_.get()}, {.wait = run_->replays, .epilogues = epilogues}));
}

void Trainer::replay_steps() {
  run_->require_alone();
  run_->replays = true;
}

std::string Trainer::not_compiled() const {
  if (!run_->compiled) return {};
  const CompileStats stats = run_->compiled->stats();
  return stats.eager_calls + stats.deferred_calls == 0 ? std::string() : run_->compiled->explain();
}

const TrainSettings& Trainer::settings() const { return run_->settings; }
int64_t Trainer::steps_taken() const { return run_->steps_taken; }
int64_t Trainer::tokens_per_step() const {
  return run_->settings.batch * run_->settings.accumulate * run_->settings.context;
}
int64_t Trainer::validation_batches() const { return run_->corpus.validation_batches(run_->settings.batch); }

int64_t Trainer::parameters() const {
  int64_t count = 0;
  for (const Tensor& p : run_->tensors) count += p.numel();
  return count;
}

void Trainer::set_steps(int64_t steps) {
  TrainSettings& s = run_->settings;
  run_->plan.reset();
  s.steps = steps;
  if (s.eval_every == 0) s.eval_every = default_eval_every(steps);
}

void Trainer::set_plan(const LearningRatePlan& plan) { run_->set_plan(plan); }
const std::optional<LearningRatePlan>& Trainer::plan() const { return run_->plan; }

std::optional<StepMetrics> Trainer::step() {
  Run& run = *run_;
  if (run.ranks) run.ranks->group().note_step(run.steps_taken + 1);
  const double lr = run.lr(run.steps_taken);
  run.set_lr(lr);
  const auto [loss, norm] = run.step();
  ++run.steps_taken;
  std::optional<StepMetrics> before = settle();
  run.pending.emplace(run.steps_taken, lr, loss, norm);
  return run.device.is_cpu() ? settle() : before;
}

std::optional<StepMetrics> Trainer::settle() {
  if (!run_->pending) return std::nullopt;
  const StepMetrics metrics = run_->pending->get();
  run_->pending.reset();
  return metrics;
}

std::optional<double> Trainer::validate(int64_t batches, const std::function<bool()>& stop) {
  const NoGrad no_grad;
  const int64_t all = validation_batches();
  batches = std::min(batches, all);
  double sum = 0;
  int64_t tokens = 0;
  for (int64_t i = 0; i < batches; ++i) {
    if (stop()) return std::nullopt;
    const io::Batch batch = run_->corpus.validation_batch(i * all / batches, run_->settings.batch);
    sum += run_->loss(batch).item<double>() * static_cast<double>(batch.y.numel());
    tokens += batch.y.numel();
  }
  return sum / static_cast<double>(tokens);
}

bool Trainer::is_saved_by_all() const { return run_->ranks && run_->ranks->is_sharded(); }

void Trainer::save(const std::filesystem::path& directory, const io::Settings& schedule) {
  io::Checkpoint all = checkpoint();
  all.state.schedule.insert(schedule.begin(), schedule.end());
  if (is_saved_by_all())
    parallel::save_checkpoint(directory, all, *run_->ranks);
  else
    io::save_checkpoint(directory, all);
}

io::Checkpoint Trainer::checkpoint() const {
  io::Checkpoint c;
  c.model = run_->model->state_dict();
  c.optimizer = run_->optimizer->state_dict();
  if (run_->scaler)
    for (const auto& [name, x] : run_->scaler->state_dict()) c.optimizer[std::string(kScalerState) + name] = x;
  c.state.step = run_->steps_taken;
  const Generator::State random = default_generator().state();
  c.state.seed = random.seed;
  c.state.random_offset = random.offset;
  c.state.data_position = run_->corpus.position();
  if (run_->plan) c.state.schedule[kPlanState] = run_->plan->text();
  c.state.config = to_config(run_->settings, run_->texts);
  c.state.config["text_fingerprint"] = std::to_string(run_->corpus.fingerprint());
  c.state.config["text_bytes"] = run_->corpus.train_bytes();
  return c;
}

}  // namespace lorry::cli
