// What a GPU's trace becomes in a recording.

#include "lorry/profile/assembly.h"

#include <gtest/gtest.h>

namespace lorry::profile {
namespace {

TracedWork work(int8_t device, int32_t stream, int64_t begin, int64_t end, DeviceWork kind = DeviceWork::kernel) {
  TracedWork made;
  made.record.work = kind;
  made.record.device = device, made.record.stream = stream, made.record.begin = begin, made.record.end = end;
  return made;
}

TEST(Assembly, counts_the_time_in_which_a_kernel_waits_for_the_one_before_it_once) {
  std::vector<TracedWork> all = {work(0, 7, 0, 100),
                                 work(0, 7, 40, 150),   // waits for the first
                                 work(0, 7, 120, 140),  // ends inside it: no time is left
                                 work(0, 7, 200, 260),  // starts after it
                                 work(0, 8, 50, 90),
                                 work(1, 7, 50, 90),                       // another stream, another device
                                 work(0, 7, 250, 270, DeviceWork::copy)};  // copies do not start early
  count_time_once(all);
  std::vector<std::vector<int64_t>> times;
  for (const TracedWork& x : all) times.push_back({x.record.device, x.record.stream, x.record.begin, x.record.end});
  EXPECT_EQ(times, (std::vector<std::vector<int64_t>>{{0, 7, 0, 100},
                                                      {0, 7, 100, 150},
                                                      {0, 8, 50, 90},
                                                      {1, 7, 50, 90},
                                                      {0, 7, 140, 140},
                                                      {0, 7, 200, 260},
                                                      {0, 7, 250, 270}}));
}

}  // namespace
}  // namespace lorry::profile
