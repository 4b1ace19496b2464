// Lesson 3: copies, and memory that is touched for the first time.

#include <fmt/core.h>

#include <cstring>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"

namespace lorry::bench::lessons {
namespace {

void tell_link_rate(LessonRun& run) {
  run.because(
      fmt::format("The link to the GPU was measured at {}.", quantity(1e6 * run.ceilings().to_device_bytes, "B/s")));
}

void small_and_large_copies(LessonRun& run) {
  const int64_t pieces = 1024, piece = 4096;
  const Device device = run.device();
  // given: small and large copies
  const Tensor from = ones({pieces, piece}, {.device = kCPU}).pin_memory();
  const Tensor to = empty({pieces, piece}, {.device = device});

  const auto bytes = static_cast<double>(from.nbytes());
  const Work whole{.bytes = run.on_gpu() ? bytes : 2 * bytes};
  Work in_pieces = whole;
  in_pieces.calls = static_cast<double>(pieces);
  run.compare("small and large copies", fmt::format("{} in {} pieces, or at once{}", quantity(bytes, "B"), pieces,
                                                    run.on_gpu() ? ", from pinned memory to the GPU" : ""));
  run.way("in pieces", in_pieces, [&] {
    for (int64_t i = 0; i < pieces; ++i) to[i].copy_(from[i]);
  });
  run.way("at once", whole, [&] { to.copy_(from); });
  run.conclude({.faster = "Each piece pays for a call beside its bytes.",
                .same = "The pieces are large enough to hide what a call costs.",
                .slower = "The pieces stay in a cache here, and the large copy does not."});
  if (run.on_gpu()) tell_link_rate(run);
}

void first_touch(LessonRun& run) {
  const int64_t n = int64_t{1} << 24;
  // given: first touch
  const Tensor kept = empty({n}, {.device = kCPU});
  const auto fresh = [&] {
    memory::empty_cache(kCPU);
    return empty({n}, {.device = kCPU});
  };

  const auto bytes = static_cast<double>(kept.nbytes());
  const Work work{.bytes = run.on_gpu() ? 0 : bytes};  // the ceilings are the GPU's there
  run.compare("first touch",
              fmt::format("{} of host memory filled: new memory or memory that was used before", quantity(bytes, "B")),
              {.page_faults = true});
  run.way_with_setup(
      "new memory", work, [&] { return fresh(); }, [&](const Tensor& x) { x.fill_(1); });
  run.way("memory used before", work, [&] { kept.fill_(1); });
  run.conclude({.faster =
                    "The system makes and clears a page of new memory when it is first written. An allocator that "
                    "keeps memory pays once.",
                .same = "The system's work for new pages is hidden here.",
                .slower = "New pages cost nothing here."});
  if (const double faults = run.last().ways[0].figures[0].value; faults > 0)
    run.because(fmt::format("{} in {} faults: {} each.", quantity(bytes, "B"), faults, quantity(bytes / faults, "B")));
}

void pinned(LessonRun& run) {
  const int64_t n = int64_t{1} << 24;
  const Device device = run.device();
  // given: pageable and pinned memory
  const Tensor pageable = ones({n}, {.device = kCPU});
  const Tensor pinned = pageable.pin_memory();
  const Tensor there = empty({n}, {.device = device});

  const auto bytes = static_cast<double>(there.nbytes());
  run.compare("pageable and pinned memory", fmt::format("{} from the host to the GPU", quantity(bytes, "B")));
  const auto rate = [&](Way& way) {
    way.figures = {{"bytes a second", 1e6 * bytes / way.time.median_us, "B/s"},
                   {"the host goes on after", way.time.submit_us, "us"}};
  };
  rate(run.way("pageable", {}, [&] { there.copy_(pageable); }));
  rate(run.way("pinned", {}, [&] { there.copy_(pinned); }));
  rate(run.way("pinned, non_blocking", {}, [&] { return pinned.to(device, /*non_blocking=*/true); }));
  run.conclude(
      {.faster = "The GPU reads pinned memory itself; pageable memory is copied through a pinned buffer first.",
       .same = "This driver hides the difference.",
       .slower = "Pinning gains nothing here."},
      1);
  tell_link_rate(run);
}

void managed(LessonRun& run) {
  const int64_t n = int64_t{1} << 22;
  const Device device = run.device();
  // given: managed memory
  const Tensor managed = empty_managed({n}, {.device = device});
  const Tensor host = empty_pinned({n}, kF32);
  const Tensor there = empty({n}, {.device = device});
  const auto bytes = static_cast<size_t>(managed.nbytes());

  run.compare("managed memory",
              fmt::format("{} written by the host, then used by the GPU", quantity(static_cast<double>(bytes), "B")),
              {.page_faults = true});
  run.way("managed, page by page", {}, [&] {
    device::synchronize(device);
    std::memset(managed.data_ptr(), 0, bytes);
    managed.add_(1);
  });
  run.way("pinned, one copy", {}, [&] {
    device::synchronize(device);
    std::memset(host.data_ptr(), 0, bytes);
    there.copy_(host);
    there.add_(1);
  });
  run.conclude({.faster = "A page of managed memory moves when it is touched, after a fault, in each direction.",
                .same = "The driver moves the pages as fast as a copy does.",
                .slower = "Moving pages is the cheaper way here."});
}

}  // namespace

void transfers(LessonRun& run) {
  small_and_large_copies(run);
  first_touch(run);
  if (!run.on_gpu()) return run.needs_gpu("pageable, pinned and managed memory");
  pinned(run);
  managed(run);
}

}  // namespace lorry::bench::lessons
