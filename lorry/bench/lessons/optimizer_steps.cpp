// Lesson 10: one step over many tensors, and how the list of their addresses reaches the kernels.

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/bench/lessons/child.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/bench/lessons/source.h"
#include "lorry/device/cpu/team.h"
#include "lorry/foreach/foreach.h"
#include "lorry/ops/ops.h"
#include "lorry/optim/optimizers.h"

namespace lorry::bench::lessons {
namespace {

constexpr int64_t kTensors = 200, kElements = 4096;

std::vector<Tensor> parameters() {
  std::vector<Tensor> all;
  for (int64_t i = 0; i < kTensors; ++i) {
    all.push_back(randn({kElements}).requires_grad_());
    all.back().set_grad(randn({kElements}));
  }
  return all;
}

void executions(LessonRun& run) {
  // given: executions of a step
  using enum optim::Execution;
  const auto params = optim::numbered(parameters());
  optim::AdamW by_loop(params, {.lr = 1e-3}, loop);
  optim::AdamW by_foreach(params, {.lr = 1e-3}, foreach);
  optim::AdamW by_fused(params, {.lr = 1e-3}, fused);
  optim::AdamW by_compiled(params, {.lr = 1e-3}, compiled);

  // Parameter, mean and variance are read and written, the gradient is read.
  const double bytes = 7.0 * sizeof(float) * kTensors * kElements;
  run.compare("executions of a step", fmt::format("AdamW over {} tensors of {} f32", kTensors, kElements),
              {.memory = true, .launches = true});
  run.way("loop", {.bytes = bytes, .calls = kTensors}, [&] { by_loop.step(); });
  run.way("foreach", {.bytes = bytes}, [&] { by_foreach.step(); });
  run.way("fused", {.bytes = bytes}, [&] { by_fused.step(); });
  run.way("compiled", {.bytes = bytes}, [&] { by_compiled.step(); });
  run.conclude(
      {.faster = "loop makes a call for each operation of each tensor, foreach one for each operation over all "
                 "tensors (horizontal fusion); fused makes one for all of both (vertical fusion), and keeps "
                 "intermediate results in registers.",
       .same = "The calls are hidden by the work here.",
       .slower = "One call for all is no gain here."},
      2);
}

void plans(LessonRun& run) {
  // given: the plan of a list
  const std::vector<Tensor> tensors = parameters();
  const foreach::TensorList kept(tensors);

  const double bytes = 2.0 * sizeof(float) * kTensors * kElements;
  run.compare("the plan of a list", fmt::format("{} tensors of {} f32, each multiplied", kTensors, kElements));
  run.way("one call for each tensor", {.bytes = bytes, .calls = kTensors}, [&] {
    for (const Tensor& x : tensors) x.mul_(1);
  });
  run.way("a list made for each call", {.bytes = bytes}, [&] { foreach::mul_(foreach::TensorList(tensors), 1); });
  run.way("the list and its plan kept", {.bytes = bytes}, [&] { foreach::mul_(kept, 1); });
  run.conclude({.faster = "A kept list has its plan: which tensors, where, how they are divided. Nothing of that is "
                          "computed again.",
                .same = "The calls are hidden by the work here.",
                .slower = "The list is no gain here."});
}

void threads(LessonRun& run) {
  struct Restore {
    int before = cpu::threads();
    ~Restore() { cpu::set_threads(before); }
  } const restore;
  if (restore.before == 1) return run.absent("One thread against all: this process has one processor.");
  // given: one thread and all
  optim::AdamW optimizer(optim::numbered(parameters()), {.lr = 1e-3}, optim::Execution::fused);

  const double bytes = 7.0 * sizeof(float) * kTensors * kElements;
  run.compare("one thread and all", fmt::format("the fused step on 1 thread and on {}", restore.before));
  for (const int count : {1, restore.before}) {
    cpu::set_threads(count);
    run.way("a step", fmt::format("{} thread{}", count, count == 1 ? "" : "s"), {.bytes = bytes},
            [&] { optimizer.step(); });
  }
  run.conclude({.faster = "The elements of all tensors are one sequence, of which each thread takes a share.",
                .same = "One thread moves as many bytes as all do here.",
                .slower = "Starting the team costs more than it gains here."});
}

void strategies(LessonRun& run) {
  // given: ways of passing a list
  const foreach::TensorList x(parameters());
  const foreach::TensorList y(parameters());

  const double bytes = 3.0 * sizeof(float) * kTensors * kElements;
  run.compare("ways of passing a list", fmt::format("the addresses of {} tensors on their way to a kernel", kTensors),
              {.launches = true});
  for (const Strategy strategy :
       {Strategy::per_tensor, Strategy::kernel_args_4k, Strategy::kernel_args_32k, Strategy::mapped_table,
        Strategy::managed_table, Strategy::device_table, Strategy::automatic}) {
    run.way("a strategy", std::string(name(strategy)),
            {.bytes = bytes, .calls = strategy == Strategy::per_tensor ? 1.0 * kTensors : 1.0}, [&] {
              const foreach::StrategyScope scope(strategy);
              foreach::add_(x, y);
            });
  }
  run.conclude({.faster = "Addresses go along as arguments of the kernel, or lie in a table that is kept; `automatic` "
                          "chooses.",
                .same = "The way of the addresses makes no difference here.",
                .slower = "One launch for each tensor is the faster way here."});
}

#ifdef LORRY_WITH_CUDA
/// What became of a kernel that was given the list as the host has it.
void fault(LessonRun& run, const char* experiment, const char* what, const char* kernel) {
  if (run.settings().child.empty()) return run.absent("Kernels that fault run in a process of their own.");
  Child child(run.settings(), experiment);
  const std::optional<nlohmann::json> step = child.step();
  child.go_on();
  while (child.step()) child.go_on();
  const std::string ended = child.wait();
  std::string outcome = fmt::format("It ended its process: {}.", ended);
  if (step && step->contains("error"))
    outcome = fmt::format("It fails: {}", step->at("error").get<std::string>());
  else if (step && step->at("sum") == step->at("expected"))
    outcome = "It works here: this GPU can read the host's memory.";
  else if (step)
    outcome = fmt::format("It gives a sum of {} instead of {}.", step->at("sum").get<double>(),
                          step->at("expected").get<double>());
  run.tried(what, function_of(source_of("faults.cu"), kernel), outcome);
}
#endif

}  // namespace

void optimizer_steps(LessonRun& run) {
  executions(run);
  plans(run);
  if (!run.on_gpu()) {
    threads(run);
    run.needs_gpu(
        "the ways of passing addresses to a kernel, from a std::vector and a float** (which fault) to mapped "
        "memory");
    return;
  }
  strategies(run);
#ifdef LORRY_WITH_CUDA
  fault(run, "vector", "A kernel that is given a std::vector of addresses", "__global__ void scale_vector");
  fault(run, "pointers", "A kernel that is given a float** of the host", "__global__ void scale_pointers");
#endif
}

}  // namespace lorry::bench::lessons
