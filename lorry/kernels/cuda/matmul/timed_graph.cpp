#include "lorry/kernels/cuda/matmul/timed_graph.h"

#include "lorry/base/waits.h"
#include "lorry/device/cuda/launch.h"

namespace lorry::kernels::cuda {

TimedGraph::TimedGraph(Stream stream, const std::function<void()>& enqueue) {
  using lorry::cuda::check, lorry::cuda::handle;
  const lorry::cuda::DeviceGuard guard(stream.device.index);
  const device::HideLaunches hidden;
  check(cudaStreamBeginCapture(handle(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue();
  } catch (...) {
    cudaStreamEndCapture(handle(stream), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(handle(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(error, "cudaGraphInstantiate");
  graph_.reset(executable);
}

void TimedGraph::replay(Stream stream) const { lorry::cuda::launch_graph(stream, graph_.get()); }

std::vector<std::vector<double>> time_in_turns(const std::vector<TimedGraph>& graphs, Stream stream, int rounds) {
  std::vector<Event> marks;
  for (int round = -1; round < rounds; ++round) {
    for (const TimedGraph& graph : graphs) {
      if (round >= 0) marks.emplace_back(stream.device, true).record(stream);
      graph.replay(stream);
      if (round >= 0) marks.emplace_back(stream.device, true).record(stream);
    }
  }
  const waits::Reason once_a_shape(waits::Wait::setup);
  stream.synchronize();
  std::vector<std::vector<double>> samples(graphs.size());
  for (size_t i = 0; i < marks.size(); i += 2)
    samples[i / 2 % graphs.size()].push_back(1e3 * marks[i + 1].milliseconds_since(marks[i]));
  return samples;
}

}  // namespace lorry::kernels::cuda
