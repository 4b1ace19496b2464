#pragma once

// Measures the time of work on the device alone. The work is captured into a graph once and replayed, because the
// host's calls take longer than a small kernel.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "lorry/device/stream.h"

namespace lorry::kernels::cuda {

class TimedGraph {
 public:
  /// Captures the work that `enqueue` enqueues on `stream`, which must not be the default one. `enqueue` must have run
  /// once before, so that everything it loads and allocates exists already.
  TimedGraph(Stream stream, const std::function<void()>& enqueue);
  void replay(Stream stream) const;

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
};

/// The microseconds that each graph took in each of `rounds` rounds, in which they take turns, after one that does
/// not count.
std::vector<std::vector<double>> time_in_turns(const std::vector<TimedGraph>& graphs, Stream stream, int rounds);

}  // namespace lorry::kernels::cuda
