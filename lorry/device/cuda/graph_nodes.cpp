#include "lorry/device/cuda/graph_nodes.h"

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "lorry/device/cuda/driver.h"
#include "lorry/device/cuda/runtime.h"

namespace lorry::cuda {
namespace {

/// The driver's functions for kernel nodes. Lorry does not link the driver.
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) get;
  decltype(&cuGraphExecKernelNodeSetParams) set;
  decltype(&cuFuncGetParamInfo) of_function;
  decltype(&cuKernelGetParamInfo) of_kernel;
  // Since CUDA 13.2, else null. cuda.h of earlier toolkits does not declare them.
  CUresult (*count_of_function)(CUfunction, size_t*);
  CUresult (*count_of_kernel)(CUkernel, size_t*);

  static const Driver& functions() {
    static const Driver kFound = [] {
      Driver f{};
      find_driver(f.get, "cuGraphKernelNodeGetParams");
      find_driver(f.set, "cuGraphExecKernelNodeSetParams");
      find_driver(f.of_function, "cuFuncGetParamInfo", 12040);
      find_driver(f.of_kernel, "cuKernelGetParamInfo", 12040);
      find_driver_if_any(f.count_of_function, "cuFuncGetParamCount", 13020);
      find_driver_if_any(f.count_of_kernel, "cuKernelGetParamCount", 13020);
      return f;
    }();
    return kFound;
  }
};

void check_driver(CUresult result, const char* call) { check(static_cast<cudaError_t>(result), call); }

constexpr size_t kUnknown = SIZE_MAX;

/// The number of a kernel's parameters; kUnknown if the driver does not tell.
size_t parameter_count(const CUDA_KERNEL_NODE_PARAMS& node) {
  const Driver& driver = Driver::functions();
  size_t count = kUnknown;
  if (node.func != nullptr && driver.count_of_function != nullptr)
    check_driver(driver.count_of_function(node.func, &count), "cuFuncGetParamCount");
  if (node.func == nullptr && driver.count_of_kernel != nullptr)
    check_driver(driver.count_of_kernel(node.kern, &count), "cuKernelGetParamCount");
  return count;
}

/// The sizes of a kernel's parameters in bytes. If their number is unknown, the driver is asked for one after the other
/// until there is none: an error, which tools such as compute-sanitizer report.
std::vector<size_t> parameter_sizes(const CUDA_KERNEL_NODE_PARAMS& node, size_t count) {
  const Driver& driver = Driver::functions();
  std::vector<size_t> sizes;
  for (size_t i = 0; i < count; ++i) {
    size_t offset = 0, bytes = 0;
    const CUresult result = node.func != nullptr ? driver.of_function(node.func, i, &offset, &bytes)
                                                 : driver.of_kernel(node.kern, i, &offset, &bytes);
    if (result != CUDA_SUCCESS && count == kUnknown) break;
    check_driver(result, "cuFuncGetParamInfo");
    sizes.push_back(bytes);
  }
  return sizes;
}

class KernelNode final : public GraphNode {
 public:
  KernelNode(cudaGraphNode_t node, const KnownKernel* known) : node_(node), known_(known) {
    check_driver(Driver::functions().get(node, &parameters_), "cuGraphKernelNodeGetParams");
    if (parameters_.kernelParams == nullptr && parameters_.extra != nullptr) {
      take_packed();
      return;
    }
    const std::vector<size_t> sizes =
        parameter_sizes(parameters_, known != nullptr ? known->parameters : parameter_count(parameters_));
    if (!sizes.empty() && parameters_.kernelParams == nullptr)
      check(cudaErrorNotSupported, "cuGraphKernelNodeGetParams");
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto* const from = static_cast<const std::byte*>(parameters_.kernelParams[i]);
      values_.emplace_back(from, from + sizes[i]);
    }
    for (auto& value : values_) pointers_.push_back(value.data());
    parameters_.kernelParams = pointers_.data();
  }

  void add_slots(device::AddressSlots& slots, int32_t number) override {
    if (known_ != nullptr && is_as_known()) {
      for (const device::LaunchAddress& x : known_->addresses) slots.add(place(x), number);
    } else {
      for (auto& value : values_)
        for (size_t at = 0; at + sizeof(void*) <= value.size(); at += sizeof(void*))
          slots.add(value.data() + at, number);
    }
    known_ = nullptr;
  }

  void update(cudaGraphExec_t graph) override {
    check_driver(Driver::functions().set(graph, node_, &parameters_), "cuGraphExecKernelNodeSetParams");
  }

 private:
  /// Parameters in one piece, as cuBLAS gives them to some of its kernels: `extra` is a list of names and values.
  void take_packed() {
    const void* from = nullptr;
    for (void** entry = parameters_.extra; *entry != CU_LAUNCH_PARAM_END; entry += 2) {
      if (*entry == CU_LAUNCH_PARAM_BUFFER_POINTER) from = entry[1];
      if (*entry == CU_LAUNCH_PARAM_BUFFER_SIZE) packed_bytes_ = *static_cast<const size_t*>(entry[1]);
    }
    if (from == nullptr) check(cudaErrorNotSupported, "cuGraphKernelNodeGetParams");
    const auto* const bytes = static_cast<const std::byte*>(from);
    values_.emplace_back(bytes, bytes + packed_bytes_);
    pointers_ = {CU_LAUNCH_PARAM_BUFFER_POINTER, values_[0].data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_bytes_,
                 CU_LAUNCH_PARAM_END};
    parameters_.extra = pointers_.data();
    known_ = nullptr;
  }

  std::byte* place(const device::LaunchAddress& x) {
    return values_[static_cast<size_t>(x.parameter)].data() + x.offset;
  }

  /// Whether the addresses are where the launch said.
  bool is_as_known() {
    return std::ranges::all_of(known_->addresses, [&](const device::LaunchAddress& x) {
      return x.parameter >= 0 && x.parameter < std::ssize(values_) &&
             x.offset + sizeof x.address <= values_[static_cast<size_t>(x.parameter)].size() &&
             std::memcmp(place(x), &x.address, sizeof x.address) == 0;
    });
  }

  const cudaGraphNode_t node_;
  const KnownKernel* known_;  ///< until add_slots()
  CUDA_KERNEL_NODE_PARAMS parameters_{};
  std::vector<std::vector<std::byte>> values_;  ///< one for each parameter, or one for all
  std::vector<void*> pointers_;
  size_t packed_bytes_ = 0;
};

class CopyNode final : public GraphNode {
 public:
  explicit CopyNode(cudaGraphNode_t node) : node_(node) {
    check(cudaGraphMemcpyNodeGetParams(node, &parameters_), "cudaGraphMemcpyNodeGetParams");
  }
  void add_slots(device::AddressSlots& slots, int32_t number) override {
    slots.add(&parameters_.srcPtr.ptr, number);
    slots.add(&parameters_.dstPtr.ptr, number);
  }
  void update(cudaGraphExec_t graph) override {
    check(cudaGraphExecMemcpyNodeSetParams(graph, node_, &parameters_), "cudaGraphExecMemcpyNodeSetParams");
  }

 private:
  const cudaGraphNode_t node_;
  cudaMemcpy3DParms parameters_{};
};

class FillNode final : public GraphNode {
 public:
  explicit FillNode(cudaGraphNode_t node) : node_(node) {
    check(cudaGraphMemsetNodeGetParams(node, &parameters_), "cudaGraphMemsetNodeGetParams");
  }
  void add_slots(device::AddressSlots& slots, int32_t number) override { slots.add(&parameters_.dst, number); }
  void update(cudaGraphExec_t graph) override {
    check(cudaGraphExecMemsetNodeSetParams(graph, node_, &parameters_), "cudaGraphExecMemsetNodeSetParams");
  }

 private:
  const cudaGraphNode_t node_;
  cudaMemsetParams parameters_{};
};

}  // namespace

namespace {

/// The graph that a stream is captured into, and the nodes that its next one would depend on; null without a capture.
struct Captured {
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
};

Captured captured(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  Captured found;
  cudaGraph_t* const graph = &found.graph;
  const cudaGraphNode_t** const nodes = &found.nodes;
  size_t* const count = &found.count;
#if CUDART_VERSION >= 12030
  const cudaGraphEdgeData* edges = nullptr;
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, nullptr, graph, nodes, &edges, count);
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v3(stream, &status, nullptr, graph, nodes, &edges, count);
#endif
#else
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, graph, nodes, count);
#endif
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess && status == cudaStreamCaptureStatusActive ? found : Captured{};
}

}  // namespace

cudaGraphNode_t last_captured(cudaStream_t stream) noexcept {
  const Captured now = captured(stream);
  return now.count == 1 ? now.nodes[0] : nullptr;
}

int64_t captured_nodes(cudaStream_t stream) noexcept {
  const Captured now = captured(stream);
  size_t nodes = 0;
  if (now.graph == nullptr) return 0;
  const cudaError_t error = cudaGraphGetNodes(now.graph, nullptr, &nodes);
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess ? static_cast<int64_t>(nodes) : 0;
}

std::unique_ptr<GraphNode> read_node(cudaGraphNode_t node, const KnownKernel* known) {
  cudaGraphNodeType type;
  check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return std::make_unique<KernelNode>(node, known);
    case cudaGraphNodeTypeMemcpy:
      return std::make_unique<CopyNode>(node);
    case cudaGraphNodeTypeMemset:
      return std::make_unique<FillNode>(node);
    default:
      return nullptr;
  }
}

}  // namespace lorry::cuda
