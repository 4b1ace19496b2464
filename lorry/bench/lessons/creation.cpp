// Lesson 1: making tensors where they are needed.

#include <fmt/core.h>

#include <numeric>
#include <random>
#include <vector>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {

void creation(LessonRun& run) {
  const Device device = run.device();
  const int64_t n = run.pick<int64_t>(1 << 20, 1 << 22);
  const double bytes = 4.0 * static_cast<double>(n);

  run.compare("normal numbers", fmt::format("{} normal random numbers, f32", quantity(static_cast<double>(n), "")));
  run.way("std::vector, then a copy", {.bytes = bytes}, [&] {
    static std::mt19937 generator;
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& number : numbers) number = normal(generator);
    return from_data(numbers, device);
  });
  if (run.on_gpu())
    run.way("a tensor of the CPU, then a copy", {.bytes = bytes},
            [&] { return randn({n}, {.device = kCPU}).to(device); });
  run.way("made on the device", {.bytes = bytes}, [&] { return randn({n}, {.device = device}); });
  run.conclude({.faster = "Each number is a function of the seed and its position, so all can be made at once, where "
                          "they are needed.",
                .same = "Making the numbers costs the same on both sides here.",
                .slower = "The host's generator is the faster one here."});

  run.compare("whole numbers", fmt::format("0, 1, 2, ... as {} i64", quantity(static_cast<double>(n), "")));
  run.way("a list, then a copy", {.bytes = 2 * bytes}, [&] {
    std::vector<int64_t> numbers(static_cast<size_t>(n));
    std::iota(numbers.begin(), numbers.end(), 0);
    return from_data(numbers, device);
  });
  run.way("arange", {.bytes = 2 * bytes}, [&] { return arange(n, {.dtype = kI64, .device = device}); });
  run.conclude({.faster = "arange writes each element once; the list is written, read and written again.",
                .same = "The detour costs nothing that can be measured here.",
                .slower = "The detour is no slower here."});
}

}  // namespace lorry::bench::lessons
