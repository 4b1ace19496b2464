// Lesson 0: what the first calls of a process cost. They run in a child process, because this one has started long ago.

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lorry/bench/lessons/child.h"
#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

/// Bytes of this process in memory.
int64_t resident_bytes() {
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGE_SIZE);
}

/// In the child: makes a call for the first time and again, and tells the parent both times.
template <class F>
void first_and_later(Device device, const char* key, const F& call) {
  const auto keep = [&] {
    call();
    device::synchronize(device);
  };
  const double first = profile::benchmark(keep, profile::first_call(device)).median_us;
  const int64_t resident = resident_bytes();
  const int64_t allocated = memory::stats(device).peak_allocated;
  const profile::BenchmarkResult later =
      profile::benchmark(keep, {.warmup_s = 0.01, .total_s = 0.05, .min_samples = 3, .device = device});
  tell({{"key", key},
        {"first_us", first},
        {"later_us", later.median_us},
        {"later_min_us", later.min_us},
        {"later_p90_us", later.p90_us},
        {"spread", later.spread},
        {"samples", later.samples},
        {"calls_per_sample", later.calls_per_sample},
        {"resident", resident},
        {"allocated", allocated}});
}

profile::BenchmarkResult once(double us) {
  return {.median_us = us, .min_us = us, .p90_us = us, .samples = 1, .calls_per_sample = 1};
}

}  // namespace

void start_child(Device device) {
  tell({{"resident", resident_bytes()}});
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
  const auto in_use = [&] {
    const device::MemoryUse use = device::memory_use(run.device());
    return static_cast<double>(use.total_bytes - use.free_bytes);
  };
  double memory_before = run.on_gpu() ? in_use() : 0;
  double sum_first = 0, sum_later = 0;
  while (const std::optional<nlohmann::json> step = child.step()) {
    const double memory = run.on_gpu() ? in_use() : step->at("resident").get<double>();
    const double grown = memory - std::exchange(memory_before, memory);
    child.go_on();
    if (!step->contains("key")) continue;
    const std::string key = step->at("key");
    const double first = step->at("first_us"), later = step->at("later_us");
    sum_first += first, sum_later += later;
    run.compare(key.c_str());
    Way& cold = run.add(key.c_str(), "the first time", {}, once(first));
    cold.figures = {{run.on_gpu() ? "device memory that it took" : "memory of the process that it took", grown, "B"},
                    {"the allocator's counter", step->at("allocated").get<double>(), "B"}};
    run.add(key.c_str(), "later", {},
            {.median_us = later,
             .min_us = step->at("later_min_us"),
             .p90_us = step->at("later_p90_us"),
             .spread = step->at("spread"),
             .samples = step->at("samples"),
             .calls_per_sample = step->at("calls_per_sample")});
    run.conclude({.faster = "The difference is paid once in each process.",
                  .same = "Nothing is made here at the first call.",
                  .slower = "Nothing is made here at the first call."});
    if (key == "the context")
      run.note(
          fmt::format("The context took {} of device memory, while the allocator's counter showed {}: it counts "
                      "tensors only. memory::device_use counts all.",
                      quantity(grown, "B"), quantity(step->at("allocated").get<double>(), "B")));
  }
  const std::string ended = child.wait();
  require<Error>(ended == "exit status 0" && sum_first > 0, "lessons: the process that starts anew ended with {}",
                 ended);
  run.note(fmt::format("All first calls together: {}; the same calls later: {}.", duration_text(sum_first),
                       duration_text(sum_later)));
  if (!run.on_gpu()) run.needs_gpu("what a GPU's context takes, in time and in device memory");
}

}  // namespace lorry::bench::lessons
