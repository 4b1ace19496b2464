// What a GPU would have done with an earlier host, of recordings that are made by hand.

#include "lorry/profile/queue.h"

#include <gtest/gtest.h>

#include "tests/profile/made_recording.h"

namespace lorry::profile {
namespace {

using test::kKernelGap;
using test::kMicro;
using test::RecordingMaker;

/// Kernels of `work` that are launched every `every`, and begin 5 us later at the earliest.
class Steps {
 public:
  Steps(int64_t count, int64_t every, int64_t work) {
    int64_t done = -kKernelGap;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = every * i, begin = std::max(at + 5 * kMicro, done + kKernelGap);
      maker.kernel(maker.call(Op::add, at, at + kMicro), at, begin, begin + work);
      done = begin + work;
    }
    maker.recording().costs = {.span_ns = 200, .launch_ns = 700, .link_ns = 100};
  }
  double held_up() {
    const std::vector<Ceilings> none;
    return held_up_by_recording_ns(ProgramView(maker.recording(), none), {0, maker.recording().duration});
  }
  RecordingMaker maker;
};

TEST(Queue, is_held_up_by_recording_while_it_waits_for_the_host) {
  // What is recorded before a launch delays it: 1 us of each of those before.
  EXPECT_DOUBLE_EQ(Steps(20, 10 * kMicro, 2 * kMicro).held_up(), 19 * kMicro);
}

TEST(Queue, with_work_for_longer_than_the_host_takes_is_held_up_by_nothing) {
  EXPECT_DOUBLE_EQ(Steps(20, 10 * kMicro, 30 * kMicro).held_up(), 0);
}

TEST(Queue, is_held_up_no_longer_than_it_waits) {
  // Every 10 us the queue waits for the host for 0.4 us beyond the usual gap, and recording takes 1 us.
  EXPECT_NEAR(Steps(20, 10 * kMicro, 8500).held_up(), 19 * 400, 1e-6);
}

TEST(Queue, of_a_host_that_waited_for_it_follows_no_earlier_than_it_was_done) {
  // The host records for 20 us while a kernel of 1 ms runs, and waits for it: that held nothing up.
  RecordingMaker m;
  m.kernel(m.call(Op::add, 0, kMicro), 0, 5 * kMicro, 1005 * kMicro);
  for (int64_t i = 1; i <= 20; ++i) m.call(Op::view, i * kMicro, i * kMicro + 1);
  m.wait(100 * kMicro, 1005 * kMicro);
  m.kernel(m.call(Op::add, 1010 * kMicro, 1011 * kMicro), 1010 * kMicro, 1015 * kMicro, 1020 * kMicro);
  m.recording().costs = {.span_ns = 1000};
  const std::vector<Ceilings> none;
  EXPECT_DOUBLE_EQ(held_up_by_recording_ns(ProgramView(m.recording(), none), {0, 1020 * kMicro}), 1000)
      << "only noting the wait itself";
}

}  // namespace
}  // namespace lorry::profile
