#pragma once

// Nodes of a CUDA graph, with copies of their parameters in which addresses can be replaced. The copies are given to
// the instantiated graph; the graph that it was made from keeps the addresses of the capture.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lorry/device/address_slots.h"
#include "lorry/device/launches.h"

namespace lorry::cuda {

/// What Lorry knows of a kernel that it launched into a capture. All else in the parameters are values.
struct KnownKernel {
  cudaGraphNode_t node;
  size_t parameters;  ///< how many it has
  std::vector<device::LaunchAddress> addresses;
};

/// The node that the stream's capture has added last; null if that is not known.
cudaGraphNode_t last_captured(cudaStream_t stream) noexcept;
/// How many nodes the graph has that the stream is being captured into; 0 without a capture.
int64_t captured_nodes(cudaStream_t stream) noexcept;

class GraphNode {
 public:
  virtual ~GraphNode() = default;
  /// Adds the places of the copy's addresses, under this number.
  virtual void add_slots(device::AddressSlots& slots, int32_t number) = 0;
  /// Gives the copy to the instantiated graph. Throws CudaError.
  virtual void update(cudaGraphExec_t graph) = 0;
};

/// A node with a copy of its parameters: a kernel, a copy or a fill; null for others. `known` is null for a library's
/// kernel, and must live until add_slots(); without it each aligned word of the parameters is taken for an address.
/// Throws CudaError.
std::unique_ptr<GraphNode> read_node(cudaGraphNode_t node, const KnownKernel* known);

}  // namespace lorry::cuda
