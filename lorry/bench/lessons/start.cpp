// Lesson 0: what the first calls of a process cost. They run in a child process, because this one has started long ago.

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lorry/bench/lessons/child.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/device/cpu/team.h"
#include "lorry/memory/process_memory.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

/// What the parent is told at each step, beside what it sees itself.
nlohmann::json memory_now(Device device) {
  return {{"resident", memory::process_memory_resident()}, {"allocated", memory::stats(device).allocated}};
}

/// In the child: makes a call for the first time and then again, and tells the parent each time.
template <class F>
void first_and_later(Device device, const char* key, const F& call) {
  const auto wait = [&] {
    call();
    device::synchronize(device);
  };
  nlohmann::json first = {{"key", key}};
  first["first_us"] = profile::benchmark(wait, profile::first_call(device)).median_us;
  first.update(memory_now(device));
  tell(first);
  const profile::BenchmarkResult again =
      profile::benchmark(wait, {.warmup_s = 0.01, .total_s = 0.05, .min_samples = 3, .device = device});
  nlohmann::json later = {{"later_us", again.median_us}, {"min_us", again.min_us},   {"p90_us", again.p90_us},
                          {"spread", again.spread},      {"samples", again.samples}, {"calls", again.calls_per_sample}};
  later.update(memory_now(device));
  tell(later);
}

profile::BenchmarkResult once(double us) {
  return {.median_us = us, .min_us = us, .p90_us = us, .samples = 1, .calls_per_sample = 1};
}

profile::BenchmarkResult times_of(const nlohmann::json& step) {
  return {.median_us = step.at("later_us"),
          .min_us = step.at("min_us"),
          .p90_us = step.at("p90_us"),
          .spread = step.at("spread"),
          .samples = step.at("samples"),
          .calls_per_sample = step.at("calls")};
}

/// What a first call makes, beside the work of every call.
std::string reason_of(std::string_view key) {
  constexpr std::pair<std::string_view, const char*> kReasons[] = {
      {"the context", "The first call of a GPU makes its context: page tables, the code of kernels, queues."},
      {"a loop on all threads", "The first loop starts the threads; later ones find them waiting."},
      {"a tensor of 64 MiB",
       "The first tensor takes its memory from the system, page by page; later ones find it in "
       "the cache of the allocator."},
      {"an operator", "An operator of its own needs nothing new on a CPU; on a GPU its kernel is loaded."},
      {"a matrix product", "The first product starts the library behind it, which chooses or generates its kernel."}};
  for (const auto& [name, reason] : kReasons)
    if (name == key) return reason;
  return "";
}

/// Bytes in use after a step: of a GPU's memory by everybody, or of the child.
double memory_of(Device device, const nlohmann::json& step) {
  if (device.is_cpu()) return step.at("resident");
  const device::MemoryUse use = device::memory_use(device);
  return static_cast<double>(use.total_bytes - use.free_bytes);
}

}  // namespace

void start_child(Device device) {
  tell({{"resident", memory::process_memory_resident()},
        {"allocated", 0}});  // asking the allocator could start the device
  if (device.is_cuda())
    first_and_later(device, "the context", [&] { device::synchronize(device); });
  else
    first_and_later(device, "a loop on all threads", [&] {
      cpu::parallel_for(cpu::threads(), 1, [](int64_t begin, int64_t) { profile::do_not_optimize(begin); });
    });
  Tensor x, y;
  first_and_later(device, "a tensor of 64 MiB", [&] { x = zeros({4096, 4096}, {.device = device}); });
  first_and_later(device, "an operator", [&] { x.add_(1); });
  const Tensor a = ones({256, 256}, {.device = device});
  first_and_later(device, "a matrix product", [&] { y = matmul(a, a); });
}

void start(LessonRun& run) {
  if (run.settings().child.empty()) return run.absent("The first calls are timed in a process of their own.");
  Child child(run.settings(), "start");
  double in_use = 0, counted = 0, sum_first = 0, sum_later = 0;
  std::string key;
  while (const std::optional<nlohmann::json> step = child.step()) {
    const double now = memory_of(run.device(), *step), grown = now - std::exchange(in_use, now);
    const double allocated = step->at("allocated"), counted_more = allocated - std::exchange(counted, allocated);
    child.go_on();
    if (step->contains("key")) {
      key = step->at("key");
      run.compare(key.c_str());
      Way& cold = run.add(key.c_str(), "the first time", {}, once(step->at("first_us")));
      cold.figures = {{run.on_gpu() ? "device memory taken" : "memory of the process taken", grown, "B"},
                      {"of that counted by the allocator", counted_more, "B"}};
      sum_first += cold.time.median_us;
      if (key == "the context")
        run.note(
            fmt::format("The context took {} of device memory, and the allocator's counter shows {}: it counts "
                        "tensors only. memory::device_use counts all.",
                        quantity(grown, "B"), quantity(allocated, "B")));
    } else if (step->contains("later_us")) {
      sum_later += run.add(key.c_str(), "later", {}, times_of(*step)).time.median_us;
      run.because(reason_of(key));
      run.conclude({.faster = "The difference is paid once in each process.",
                    .same = "What the first call makes takes less than the noise here.",
                    .slower = "What the first call makes takes less than the noise here."});
    }
  }
  const std::string ended = child.wait();
  require<Error>(ended == "exit status 0" && sum_first > 0, "lessons: the process that starts anew ended with {}",
                 ended);
  run.note(fmt::format("All first calls together: {}; the same calls later: {}.", duration_text(sum_first),
                       duration_text(sum_later)));
  if (!run.on_gpu()) run.needs_gpu("what a GPU's context takes, in time and in device memory");
}

}  // namespace lorry::bench::lessons
