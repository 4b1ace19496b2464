#pragma once

// What work costs on the device alone: recorded once into a graph and replayed, so that the host's calls, which take
// longer than a small kernel, do not count.

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <vector>

#include "lorry/device/stream.h"

namespace lorry::kernels::cuda {

class Recording {
 public:
  /// Records what `enqueue` enqueues on `stream`, which is not the default one. It must have run once before, so that
  /// everything it loads and allocates is there.
  Recording(Stream stream, const std::function<void()>& enqueue);
  void replay(Stream stream) const;

 private:
  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<CUgraphExec_st, Destroy> graph_;
};

/// The microseconds that each recording took in each of `rounds` rounds, in which they take turns, after one that does
/// not count.
std::vector<std::vector<double>> time_in_turns(const std::vector<Recording>& recordings, Stream stream, int rounds);

}  // namespace lorry::kernels::cuda
