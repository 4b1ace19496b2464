#include "lorry/device/cuda/graph.h"

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include "lorry/device/cuda/driver.h"
#include "lorry/device/cuda/launch.h"

namespace lorry::cuda {
namespace {

class Graph final : public device::WorkGraph, device::LaunchObserver {
 public:
  explicit Graph(Stream stream) : stream_(stream) {
    const DeviceGuard guard = prepare(stream);
    check(cudaStreamBeginCapture(handle(stream), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    capturing_ = true;
    hidden_.emplace();
    observed_.emplace(static_cast<device::LaunchObserver&>(*this));  // a private base
  }

  ~Graph() override {
    const DeviceGuard guard(stream_.device.index, std::nothrow);
    if (!guard.holds()) return;
    end_capture();
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    if (launched_ != nullptr) cudaGraphExecDestroy(launched_);
  }

  void finish() override {
    const DeviceGuard guard(stream_.device.index);
    check(end_capture(), "cudaStreamEndCapture");
    if (failed_ != nullptr) std::rethrow_exception(failed_);
    size_t nodes = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &nodes), "cudaGraphGetNodes");
    nodes_ = static_cast<int64_t>(nodes);
    const size_t free = free_bytes();
    check(cudaGraphInstantiate(&launched_, graph_, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(launched_, handle(stream_)), "cudaGraphUpload");
    if (const size_t left = free_bytes(); left < free) bytes_ = static_cast<int64_t>(free - left);
  }

  void launch(Stream stream) override { launch_graph(stream, launched_); }
  int64_t nodes() const override { return nodes_; }
  int64_t bytes() const override { return bytes_; }
  void addresses(AddressVisitor& visitor) const override {
    for (const void* const& address : addresses_) visitor(address);
  }
  int64_t rebind(const void* from, int64_t bytes, const void* to) override;

 private:
  cudaError_t end_capture() noexcept {
    observed_.reset();
    hidden_.reset();
    if (!std::exchange(capturing_, false)) return cudaSuccess;
    const cudaError_t error = cudaStreamEndCapture(handle(stream_), &graph_);
    if (error != cudaSuccess) cudaGetLastError();
    return error;
  }

  static size_t free_bytes() {
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

  void launched(const device::Launch& launch) noexcept override {
    try {
      for (const device::LaunchAddress& x : launch.addresses) addresses_.push_back(x.address);
    } catch (...) {
      failed_ = std::current_exception();
    }
  }

  const Stream stream_;
  bool capturing_ = false;
  std::optional<device::HideLaunches> hidden_;  ///< from others: what is captured does not run
  std::optional<device::ObserveLaunches> observed_;
  std::exception_ptr failed_;  ///< in `launched`
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t launched_ = nullptr;
  int64_t nodes_ = 0, bytes_ = 0;
  std::vector<const void*> addresses_;
};

/// The driver's functions for the parameters of kernel nodes. Lorry does not link the driver.
struct KernelNodes {
  decltype(&cuGraphKernelNodeGetParams) get;
  decltype(&cuGraphKernelNodeSetParams) set;
  decltype(&cuGraphExecKernelNodeSetParams) set_launched;
  decltype(&cuFuncGetParamInfo) of_function;
  decltype(&cuKernelGetParamInfo) of_kernel;

  static const KernelNodes& functions() {
    static const KernelNodes kFound = [] {
      KernelNodes f{};
      find_driver(f.get, "cuGraphKernelNodeGetParams"), find_driver(f.set, "cuGraphKernelNodeSetParams");
      find_driver(f.set_launched, "cuGraphExecKernelNodeSetParams");
      find_driver(f.of_function, "cuFuncGetParamInfo", 12040), find_driver(f.of_kernel, "cuKernelGetParamInfo", 12040);
      return f;
    }();
    return kFound;
  }
};

void check_driver(CUresult result, const char* call) { check(static_cast<cudaError_t>(result), call); }

/// A copy of a kernel node's parameters.
class KernelParameters {
 public:
  explicit KernelParameters(CUgraphNode node) {
    const KernelNodes& driver = KernelNodes::functions();
    check_driver(driver.get(node, &node_), "cuGraphKernelNodeGetParams");
    size_t offset = 0, bytes = 0;
    const auto info = [&](size_t i) {
      return node_.func != nullptr ? driver.of_function(node_.func, i, &offset, &bytes)
                                   : driver.of_kernel(node_.kern, i, &offset, &bytes);
    };
    for (size_t i = 0; info(i) == CUDA_SUCCESS; ++i) {
      const auto* const first = static_cast<const std::byte*>(node_.kernelParams[i]);
      values_.emplace_back(first, first + bytes);
    }
    for (auto& value : values_) pointers_.push_back(value.data());
    node_.kernelParams = pointers_.data();
  }

  /// Replaces each aligned word that is an address in the range.
  int64_t rebind(const void* from, int64_t bytes, const void* to) {
    int64_t count = 0;
    for (auto& value : values_)
      for (size_t at = 0; at + sizeof(void*) <= value.size(); at += sizeof(void*)) {
        const void* address = nullptr;
        std::memcpy(&address, value.data() + at, sizeof address);
        const void* const other = device::moved(address, from, bytes, to);
        if (other == nullptr) continue;
        std::memcpy(value.data() + at, &other, sizeof other);
        ++count;
      }
    return count;
  }
  const CUDA_KERNEL_NODE_PARAMS& node() const { return node_; }

 private:
  CUDA_KERNEL_NODE_PARAMS node_{};
  std::vector<std::vector<std::byte>> values_;
  std::vector<void*> pointers_;
};

int64_t Graph::rebind(const void* from, int64_t bytes, const void* to) {
  const DeviceGuard guard(stream_.device.index);
  std::vector<cudaGraphNode_t> nodes(static_cast<size_t>(nodes_));
  size_t count = nodes.size();
  check(cudaGraphGetNodes(graph_, nodes.data(), &count), "cudaGraphGetNodes");
  const KernelNodes& driver = KernelNodes::functions();
  int64_t replaced = 0;
  const auto move = [&](auto*& address) {
    const void* const other = device::moved(address, from, bytes, to);
    if (other == nullptr) return false;
    address = const_cast<void*>(other);
    ++replaced;
    return true;
  };
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type;
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type == cudaGraphNodeTypeKernel) {
      KernelParameters parameters(node);
      const int64_t here = parameters.rebind(from, bytes, to);
      if (here == 0) continue;
      check_driver(driver.set(node, &parameters.node()), "cuGraphKernelNodeSetParams");
      check_driver(driver.set_launched(launched_, node, &parameters.node()), "cuGraphExecKernelNodeSetParams");
      replaced += here;
    } else if (type == cudaGraphNodeTypeMemcpy) {
      cudaMemcpy3DParms copy;
      check(cudaGraphMemcpyNodeGetParams(node, &copy), "cudaGraphMemcpyNodeGetParams");
      const bool source = move(copy.srcPtr.ptr), target = move(copy.dstPtr.ptr);
      if (!source && !target) continue;
      check(cudaGraphMemcpyNodeSetParams(node, &copy), "cudaGraphMemcpyNodeSetParams");
      check(cudaGraphExecMemcpyNodeSetParams(launched_, node, &copy), "cudaGraphExecMemcpyNodeSetParams");
    } else if (type == cudaGraphNodeTypeMemset) {
      cudaMemsetParams fill;
      check(cudaGraphMemsetNodeGetParams(node, &fill), "cudaGraphMemsetNodeGetParams");
      if (!move(fill.dst)) continue;
      check(cudaGraphMemsetNodeSetParams(node, &fill), "cudaGraphMemsetNodeSetParams");
      check(cudaGraphExecMemsetNodeSetParams(launched_, node, &fill), "cudaGraphExecMemsetNodeSetParams");
    }
  }
  for (const void*& address : addresses_)
    if (const void* const other = device::moved(address, from, bytes, to)) address = other;
  return replaced;
}

}  // namespace

std::unique_ptr<device::WorkGraph> capture_work(Stream stream) { return std::make_unique<Graph>(stream); }

}  // namespace lorry::cuda
