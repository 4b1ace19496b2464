// Lesson 12: work that is captured once and replayed.

#include <fmt/core.h>

#include <deque>

#include "lorry/bench/lessons/lesson_run.h"
#include "lorry/bench/lessons/lessons_list.h"
#include "lorry/ops/ops.h"
#include "lorry/replay/buckets.h"
#include "lorry/replay/graph.h"

namespace lorry::bench::lessons {

void device_graphs(LessonRun& run) {
  const int64_t width = run.pick(64, 256);
  // given: a deep narrow network
  std::vector<Tensor> weights;
  for (int layer = 0; layer < 24; ++layer) weights.push_back(randn({width, width}).div_(width));
  const auto model = [&](const Tensor& x) {
    Tensor y = x;
    for (const Tensor& weight : weights) y = relu(matmul(y, weight));
    return y;
  };
  const Tensor one = randn({1, width});
  replay::Graph graph([&] { return std::vector{model(one)}; });

  const auto layers = static_cast<double>(weights.size()), w = static_cast<double>(width);
  const Work work{.bytes = 4 * layers * w * w, .flops = 2 * layers * w * w, .calls = 2 * layers};
  Work replayed = work;
  replayed.calls = 1;
  run.compare("a deep narrow network", fmt::format("24 layers of {0} x {0}, each a product and relu, one row", width));
  run.way("operator by operator", work, [&] { return model(one); });
  run.way("replayed", replayed, [&] { graph.replay(); });
  run.conclude({.faster = "The replay makes the same kernel calls without checks, allocations and, on a GPU, without a "
                          "launch each.",
                .same = "The work hides the host's share of the calls here.",
                .slower = "The replay is no gain here."});
  const replay::GraphStats stats = graph.stats();
  const Comparison& replays = run.last();
  const double gain = replays.ways[0].time.median_us - replays.ways[1].time.median_us;
  run.because(
      fmt::format("Capturing took {}{}.", duration_text(1e6 * stats.capture_s),
                  gain > 0 ? fmt::format(", which {:.0f} replays earn back", 1e6 * stats.capture_s / gain) : ""));

  // given: a batch between two buckets
  const Tensor three = randn({3, width});
  replay::BucketSet buckets(model, {.sizes = {1, 2, 4, 8}});
  buckets.prepare(three);

  run.compare("a batch between two buckets", "3 rows, where graphs exist for 1, 2, 4 and 8");
  run.way("as it is", work, [&] { return model(three); });
  run.way("padded to 4 and replayed", replayed, [&] { return buckets(three); });
  run.conclude({.faster = "The row of padding costs less than the calls that the replay saves.",
                .same = "The row of padding costs what the replay saves.",
                .slower = "Padding and copying cost more than the replay saves here."});
}

}  // namespace lorry::bench::lessons
