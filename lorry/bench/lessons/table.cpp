// The table of lessons, and running one.

#include <chrono>
#include <exception>
#include <new>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/bench/lessons/source.h"

namespace lorry::bench::lessons {

namespace {

// clang-format off
constexpr Entry kLessons[] = {
    {0, "What starting costs",
     "The first call of each kind makes what later ones find: a context, threads, memory, a library's state. Time a "
     "program after its first calls, and start long-lived processes instead of many short ones.",
     "start.cpp", start},
    {1, "Create on the device",
     "Tensors can be made where they are needed. Making their elements on the host takes a slow generator or loop, and "
     "then a copy.",
     "creation.cpp", creation},
    {2, "Data types",
     "Fewer bytes an element are moved sooner. How fast products of a type are depends on the units of this "
     "processor, so measure the types instead of trusting figures of another machine.",
     "data_types.cpp", data_types},
    {3, "Transfers",
     "A copy has a price of its own beside that of its bytes. One large copy beats many small ones, and memory that is "
     "touched for the first time is made page by page.",
     "transfers.cpp", transfers},
    {4, "Batching",
     "A small operation is mostly the call around it. Many small products in one call, or many rows in one product, "
     "share it.",
     "batching.cpp", batching},
    {5, "In place",
     "An operator in place needs no memory for its result and moves no more bytes. Whether it is faster depends on the "
     "size, so use it where memory is what is short.",
     "in_place.cpp", in_place},
    {6, "Vector units and alignment",
     "Matrix units and vector registers take elements in groups. A size that is off by one can leave them partly idle; "
     "a little padding avoids that.",
     "alignment.cpp", alignment},
    {7, "Memory layout",
     "Strides say how elements lie in memory. Kernels read any strides, so copying a tensor into another order first "
     "pays only if it is read more than once.",
     "memory_layout.cpp", memory_layout},
    {8, "Measuring time",
     "A clock around a call also measures what else happens in between: making data, the first call, work that is "
     "still running. These are the usual mistakes beside what a call really takes.",
     "timing.cpp", timing},
    {9, "The price of a call",
     "Every operator call has a fixed price. A loop over elements pays it once an element, an operator over the "
     "whole tensor once.",
     "call_overhead.cpp", call_overhead},
    {10, "Many tensors in one step",
     "An optimizer walks over many small tensors. Fusing the operations of one tensor saves memory traffic; handing "
     "all tensors to one call saves calls. The list of their addresses then has to reach the kernel.",
     "optimizer_steps.cpp", optimizer_steps},
    {11, "Hidden synchronisation",
     "Reading a number on the host waits for the work before it. That stops the host from working ahead; but the wait "
     "is not the cost where the work before it is.",
     "hidden_waits.cpp", hidden_waits},
    {12, "Graphs and buckets",
     "Capturing the work of a function and replaying it skips the host's share of every call. A set of buckets keeps "
     "graphs for a few batch sizes and pads the others.",
     "device_graphs.cpp", device_graphs},
    {13, "Compiling",
     "A chain of operators writes each intermediate result to memory and reads it again. Compiled as one function, "
     "they stay in registers; the first call pays for that.",
     "compiling.cpp", compiling},
    {14, "Lossy compression",
     "Numbers in 16 bits take half the memory and half the time to move. What is lost is range, precision, or both.",
     "compression.cpp", compression},
};
// clang-format on

}  // namespace

std::span<const Entry> table() { return kLessons; }

Lesson run(const Entry& entry, const Settings& settings, const Ceilings& ceilings) {
  using Clock = std::chrono::steady_clock;
  Lesson lesson{.number = entry.number, .title = entry.title, .teaches = entry.teaches};
  const Clock::time_point start = Clock::now();
  try {
    const NoGrad no_grad;
    LessonRun measured(lesson, settings, ceilings, source_of(entry.file));
    entry.run(measured);
  } catch (const std::bad_alloc&) {
    lesson.error = "the host is out of memory";
  } catch (const std::exception& error) {
    lesson.error = error.what();
  }
  // A comparison that was not finished has nothing to say.
  std::erase_if(lesson.comparisons, [](const Comparison& c) { return c.verdict.empty(); });
  memory::empty_cache(settings.device);
  lesson.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return lesson;
}

}  // namespace lorry::bench::lessons
