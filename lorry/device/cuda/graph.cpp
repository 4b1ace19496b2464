#include "lorry/device/cuda/graph.h"

#include <exception>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lorry/base/call_stack.h"
#include "lorry/base/scope.h"
#include "lorry/device/cuda/graph_nodes.h"
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

  void launch(Stream stream) override {
    if (!stale_.empty()) [[unlikely]] {
      const DeviceGuard guard(stream_.device.index);
      update_stale();
    }
    launch_graph(stream, launched_);
  }
  int64_t nodes() const override { return nodes_; }
  int64_t bytes() const override { return bytes_; }
  void addresses(AddressVisitor& visitor) const override {
    for (const void* const& address : addresses_) visitor(address);
  }
  int64_t rebind(std::span<const device::Move> moves) override;
  std::vector<SpanPart> launches() const override { return launches_; }
  /// The launches since the last call that ended are this one's: they become one part.
  void ended(const SpanCost& cost) noexcept override {
    if (costed_ == launches_.size()) return;
    SpanPart& part = launches_[costed_++];
    for (size_t i = costed_; i < launches_.size(); ++i) part.nodes += launches_[i].nodes;
    part.cost = cost;
    launches_.resize(costed_);
  }

 private:
  /// Copies the nodes' parameters and notes where addresses are in them.
  void find_slots();
  /// Gives the copies that have changed to the instantiated graph. What fails is tried again before the next launch.
  void update_stale() {
    for (; !stale_.empty(); stale_.pop_back()) copies_[static_cast<size_t>(stale_.back())]->update(launched_);
  }

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
      note_launch(launch);
      if (launch.kind != device::Launch::Kind::kernel) return;
      const cudaGraphNode_t node = last_captured(handle(launch.stream));
      if (node == nullptr) return;
      kernels_.push_back({node, launch.parameters.size(), {launch.addresses.begin(), launch.addresses.end()}});
    } catch (...) {
      failed_ = std::current_exception();
    }
  }

  /// Notes where the launch was made. The nodes since the last launch are its own.
  void note_launch(const device::Launch& launch) {
    const int64_t nodes = captured_nodes(handle(launch.stream));
    if (nodes < seen_nodes_) return;  // another stream's
    launches_.push_back({.name = launch.operator_name != nullptr ? launch.operator_name : "",
                         .path = Scope::path(),
                         .frames = call_stack(),
                         .nodes = nodes - std::exchange(seen_nodes_, nodes)});
  }

  const Stream stream_;
  std::vector<SpanPart> launches_;
  int64_t seen_nodes_ = 0;
  size_t costed_ = 0;  ///< launches whose cost is known
  bool capturing_ = false;
  std::optional<device::HideLaunches> hidden_;  ///< from others: what is captured does not run
  std::optional<device::ObserveLaunches> observed_;
  std::exception_ptr failed_;  ///< in `launched`
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t launched_ = nullptr;
  int64_t nodes_ = 0, bytes_ = 0;
  std::vector<const void*> addresses_;  ///< that launches were given
  std::vector<KnownKernel> kernels_;    ///< until find_slots()
  bool found_ = false;
  std::vector<std::unique_ptr<GraphNode>> copies_;
  device::AddressSlots slots_;      ///< of copies_
  device::AddressSlots announced_;  ///< addresses_
  std::vector<int32_t> stale_;      ///< copies that the instantiated graph has not got yet
};

void Graph::find_slots() {
  if (found_) return;
  slots_ = {}, announced_ = {}, copies_.clear();  // of a call that has failed
  std::vector<cudaGraphNode_t> nodes(static_cast<size_t>(nodes_));
  size_t count = nodes.size();
  check(cudaGraphGetNodes(graph_, nodes.data(), &count), "cudaGraphGetNodes");
  std::unordered_map<cudaGraphNode_t, const KnownKernel*> known;
  for (const KnownKernel& kernel : kernels_) known[kernel.node] = &kernel;
  for (const cudaGraphNode_t node : nodes) {
    const auto kernel = known.find(node);
    std::unique_ptr<GraphNode> copy = read_node(node, kernel == known.end() ? nullptr : kernel->second);
    if (copy == nullptr) continue;
    copy->add_slots(slots_, static_cast<int32_t>(copies_.size()));
    copies_.push_back(std::move(copy));
  }
  for (const void*& address : addresses_) announced_.add(&address, 0);
  slots_.sort(), announced_.sort();
  kernels_ = {};
  found_ = true;
}

int64_t Graph::rebind(std::span<const device::Move> moves) {
  const DeviceGuard guard(stream_.device.index);
  find_slots();
  std::vector<int32_t> none;
  announced_.move(moves, none);
  const int64_t count = slots_.move(moves, stale_);
  update_stale();
  return count;
}

}  // namespace

std::unique_ptr<device::WorkGraph> capture_work(Stream stream) { return std::make_unique<Graph>(stream); }

}  // namespace lorry::cuda
