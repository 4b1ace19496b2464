// Lesson 11: what makes the host wait.

#include <fmt/core.h>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void loss_in_each_step(LessonRun& run) {
  const int64_t width = 128, steps = 32;
  // given: a number in each step
  const Tensor x = randn({8, width});
  const Tensor weight = randn({width, width});
  const auto model = [&] { return relu(matmul(x, weight)).mean(); };
  double total = 0;

  const Work work{.calls = 3.0 * static_cast<double>(steps)};
  run.compare("a number in each step", fmt::format("{} steps of a small model, and the sum of their losses", steps),
              {.waits = true});
  run.way("item() in each step", work, [&] {
    total = 0;
    for (int64_t i = 0; i < steps; ++i) total += model().item<double>();
  });
  run.way("one item() at the end", work, [&] {
    Tensor sum = zeros({});
    for (int64_t i = 0; i < steps; ++i) sum.add_(model());
    total = sum.item<double>();
  });
  run.conclude({.faster = "While the host waits it enqueues nothing, and the device idles after each step.",
                .same = "On this device reading a number makes nobody wait: there is nothing to hide.",
                .slower = "Reading the number makes nobody wait here, and adding it up is one operator more a step."});
}

void nonzero_in_each_step(LessonRun& run) {
  const int64_t rows = 256, steps = 16;
  // given: nonzero in each step
  const Tensor x = randn({rows, 128});
  const Tensor y = relu(x);
  double found = 0;

  run.compare("nonzero in each step", fmt::format("how many elements are not 0, in each of {} steps", steps),
              {.waits = true});
  run.way("nonzero() in each step", {.calls = static_cast<double>(steps)}, [&] {
    for (int64_t i = 0; i < steps; ++i) found += static_cast<double>(y.nonzero().size(0));
  });
  run.way("counted on the device", {.calls = 2.0 * static_cast<double>(steps)}, [&] {
    Tensor sum = zeros({}, {.dtype = kI64});
    for (int64_t i = 0; i < steps; ++i) sum.add_(y.count_nonzero());
    found = sum.item<double>();
  });
  run.conclude({.faster =
                    "The size of nonzero's result is a number that the host needs, so each call waits on a GPU; and "
                    "it writes the indices, which nobody asked for.",
                .same = "nonzero costs no more than counting here.",
                .slower = "nonzero costs less than counting here."});
}

void wait_that_is_not_to_blame(LessonRun& run) {
  const int64_t n = run.pick(512, 8192);
  const Device device = run.device();
  // given: a wait that is not to blame
  const Tensor x = randn({n, n});
  const Tensor finished = ones({});
  double sum = 0;

  const auto size = static_cast<double>(n);
  const Work work{.bytes = 4 * static_cast<double>(x.nbytes()), .flops = 2 * size * size * size, .calls = 2};
  run.compare("a wait that is not to blame", fmt::format("a product of {0} x {0} f32, and a number of it", n),
              {.waits = true});
  run.way("read by item()", work, [&] { sum = matmul(x, x).sum().item<double>(); });
  run.way("not read", work, [&] {
    const Tensor total = matmul(x, x).sum();
    device::synchronize(device);
    return total;
  });
  run.way("item() of a finished number", {.calls = 0}, [&] { sum = finished.item<double>(); });
  run.conclude(
      {.faster = "Here reading the number has a price beside the work before it.",
       .same = "A profiler shows a long wait in item(), but the time is that of the product before it. Without "
               "the read, it is spent all the same.",
       .slower = "Reading the number costs nothing here."},
      1);
}

void joining_the_team(LessonRun& run) {
  const int64_t loops = 64, n = int64_t{1} << 16;
  // given: joining the threads
  const Tensor x = zeros({loops, n});
  const int64_t share = n / cpu::threads();
  const auto add_one = [](float* from, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) from[i] += 1;
  };
  float* const elements = x.data<float>();

  run.compare("joining the threads", fmt::format("{} loops on {} threads, or one", loops, cpu::threads()));
  run.way("a loop for each row", {.bytes = 2.0 * static_cast<double>(x.nbytes()), .calls = 0}, [&] {
    for (int64_t i = 0; i < loops; ++i)
      cpu::parallel_for(n, share, [&](int64_t begin, int64_t end) { add_one(elements + i * n, begin, end); });
  });
  run.way("one loop over all rows", {.bytes = 2.0 * static_cast<double>(x.nbytes()), .calls = 0}, [&] {
    cpu::parallel_for(loops * n, loops * share, [&](int64_t begin, int64_t end) { add_one(elements, begin, end); });
  });
  run.conclude({.faster = "What waits on a CPU is the end of each loop: its threads wait for the slowest.",
                .same = "The threads end each loop together, so joining them costs little here.",
                .slower = "Joining the threads costs nothing here."});
}

}  // namespace

void hidden_waits(LessonRun& run) {
  loss_in_each_step(run);
  nonzero_in_each_step(run);
  wait_that_is_not_to_blame(run);
  if (run.on_gpu()) return;
  joining_the_team(run);
  run.needs_gpu("waits of the host for a device, and the device idling after them");
}

}  // namespace lorry::bench::lessons
