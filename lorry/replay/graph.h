#pragma once

// Graphs: the work of a function, captured once and replayed at the price of one launch (torch.cuda.CUDAGraph).
//
//   Tensor x = zeros({8, 512});
//   replay::Graph graph([&] { return std::vector{model(x)}; });
//   x.copy_(batch);            // the graph reads x where it is
//   graph.replay();
//   const Tensor& y = graph.outputs()[0];  // overwritten by the next replay
//
// A graph repeats kernels, copies and fills at the addresses of its capture, and no host code. What changes between
// replays lies in memory: tensors that are written in place, random numbers (they advance), learning rates and loss
// scales. On the CPU a graph is a list of kernel calls, which are made again without checks and allocations; it gives
// the same bits.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::memory {
class Pool;
}

namespace lorry::replay {

/// How a graph is captured. The function runs on the current stream, or on one of its own where that is the default
/// stream. Nothing else may be enqueued on that stream meanwhile.
struct CaptureOptions {
  /// How often the function runs before it is captured, so that what is made once (plans, states of an optimizer,
  /// compiled kernels) is there. 0 if it has run.
  int warm_up = 2;
  /// The device whose work is captured; by default the default device.
  std::optional<Device> device = {};
  /// The memory of intermediate and final results. Graphs that share a pool take less, and a replay of one overwrites
  /// the results of the others. Null: a pool of its own.
  std::shared_ptr<memory::Pool> pool = nullptr;
  /// Tensors that may get other memory between replays, with names for messages: nn::Module::named_parameters(). A
  /// replay looks where they are, and changes their addresses in the graph (set_data, to(device)). Tensors that share
  /// their memory move with them. If a dtype, a shape or the alignment has changed, it captures the function again, and
  /// a warning event says so.
  std::vector<std::pair<std::string, Tensor>> follow = {};
};

/// Figures of a graph.
struct GraphStats {
  int64_t nodes = 0;     ///< kernels, copies and fills
  int64_t bytes = 0;     ///< memory of the graph itself, beside its pool (WorkGraph::bytes)
  int64_t replays = 0;   ///< without the run of the capture
  int64_t leases = 0;    ///< pieces of memory that the graph uses and others own
  int64_t rebound = 0;   ///< addresses that were changed
  int64_t rebuilt = 0;   ///< how often the function was captured again
  double capture_s = 0;  ///< seconds, warm-up included
};

class Graph {
 public:
  using Function = std::function<std::vector<Tensor>()>;

  /// Runs the function warm_up times, and once more as captured: outputs() are the results of that run. Everything that
  /// the function uses beside its results must outlive the graph. Results are returned without history.
  ///
  /// Throws what the function throws, and CaptureError where it does something that a graph cannot repeat: the host
  /// reads elements or waits for the device, host memory is copied to the device, another capture begins. The
  /// allocator, the stream and the generators can be used afterwards.
  explicit Graph(Function function, CaptureOptions options = {});
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// Enqueues the work on the device's current stream, after earlier replays of this graph. Throws CaptureError if
  /// memory that the graph uses was released, inside a capture, and if another thread is replaying the graph.
  void replay();
  /// Later replays use the memory of `now` where they used that of `was`. Returns how many addresses that changed.
  /// Throws ShapeError, DTypeError or DeviceError if the tensors differ in more than their memory, and ValueError if
  /// their addresses do not differ by a multiple of 16 bytes (on a GPU, of 256): capture again.
  int64_t rebind(const Tensor& was, const Tensor& now);
  /// The same for pairs of {was, now}, all at once: two tensors may change places. Where several of the `was` share
  /// memory, the first of them counts.
  int64_t rebind(const std::vector<std::pair<Tensor, Tensor>>& pairs);
  /// Whether the next replay captures the function again, because a followed tensor has changed in more than its
  /// memory, or throws, because that has failed before.
  bool is_outdated() const;
  /// The results, in memory that each replay overwrites.
  const std::vector<Tensor>& outputs() const;
  Device device() const;
  GraphStats stats() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lorry::replay
