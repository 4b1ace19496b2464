// Chooses the fastest algorithm by timing on the device; the library's estimate is good but not perfect.

#include <algorithm>

#include "lorry/base/waits.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "lorry/kernels/cuda/matmul/timed_graph.h"

namespace lorry::kernels::cuda {
namespace {

/// The bytes from out's first element to one past its last.
int64_t extent_of_out(const Problem& p) {
  const int64_t batches = p.batch_rank == 0 ? 0 : (p.batch_sizes[0] - 1) * p.batch_strides[kOut][0];
  return size_of(p.dtype == kI8 ? kI32 : p.dtype) * (batches + (p.n - 1) * p.column[kOut] + p.m);
}

/// The number of products to time at once, so that the time is well above an event's resolution: about 0.2 ms at 200
/// TFLOP/s; at most 20.
int repeats(const Problem& p) {
  const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) *
                       static_cast<double>(p.batches());
  return static_cast<int>(std::clamp(4e10 / flops, 1.0, 20.0));
}

}  // namespace

Algorithm fastest_algorithm(MatmulPlan& plan, const Problem& part, Stream stream) {
  constexpr int kCandidates = 8, kRounds = 5;
  /// The library's first choice is used unless another algorithm is faster by more than the timer's noise.
  constexpr double kWorthIt = 0.99;
  Algorithm algorithms[kCandidates];
  const int count = plan.candidates(algorithms, kCandidates);
  if (count < 2) return plan.algorithm;

  const OwnedStream aside(stream.device);
  Event ready(stream.device);
  ready.record(stream);
  ready.block(aside);
  int64_t workspace_bytes = 0;
  for (int i = 0; i < count; ++i) workspace_bytes = std::max(workspace_bytes, algorithms[i].workspace_bytes);
  const Scratch out(extent_of_out(part), stream), workspace(workspace_bytes, stream);
  // wait before these are destroyed, even on an exception: `stream` does not order the work on `aside`
  const struct Wait {
    Stream stream;
    ~Wait() {
      const lorry::cuda::DeviceGuard guard(stream.device.index, std::nothrow);
      const waits::Reason once_a_shape(waits::Wait::setup);
      if (guard.holds())
        waits::around_noexcept("the host waited for a stream",
                               [&] { cudaStreamSynchronize(lorry::cuda::handle(stream)); });
    }
  } wait{aside};

  std::vector<Algorithm> timed;
  std::vector<TimedGraph> graphs;
  for (int i = 0; i < count; ++i) {
    const auto run = [&] { return plan.run(algorithms[i], part, out.data(), workspace.data(), aside); };
    if (run() != CUBLAS_STATUS_SUCCESS) continue;
    timed.push_back(algorithms[i]);
    graphs.emplace_back(aside, [&] {
      for (int r = 0; r < repeats(part); ++r) check_cublas_lt(run(), "cublasLtMatmul");
    });
  }
  const auto samples = time_in_turns(graphs, aside, kRounds);
  if (timed.empty()) return plan.algorithm;
  const auto least = [&](size_t i) { return *std::min_element(samples[i].begin(), samples[i].end()); };
  size_t best = 0;
  for (size_t i = 1; i < timed.size(); ++i)
    if (least(i) < kWorthIt * least(best)) best = i;
  return timed[best];
}

}  // namespace lorry::kernels::cuda
