#include "lorry/replay/graph.h"

#include <atomic>
#include <chrono>
#include <span>

#include "lorry/base/events.h"
#include "lorry/base/span.h"
#include "lorry/base/waits.h"
#include "lorry/device/capture.h"
#include "lorry/device/fence.h"
#include "lorry/device/work_graph.h"
#include "lorry/memory/allocate.h"
#include "lorry/memory/lease.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/listener.h"
#include "lorry/ops/random_capture.h"

namespace lorry::replay {
namespace {

/// Leases the memory of every address that is shown.
class Leaser final : public AddressVisitor {
 public:
  Leaser(memory::Leases& leases, Device device, const memory::Pool& own)
      : leases_(leases), device_(device), own_(own) {}

 private:
  void found(const void* const* address) override { leases_.add(device_, *address, own_); }

  memory::Leases& leases_;
  const Device device_;
  const memory::Pool& own_;
};

/// Collects host memory of the capture that the host may write, for a scope.
class HostWritten {
 public:
  explicit HostWritten(std::vector<Tensor>& to) { lorry::detail::t_host_written = &to; }
  ~HostWritten() { lorry::detail::t_host_written = nullptr; }
  HostWritten(const HostWritten&) = delete;
  HostWritten& operator=(const HostWritten&) = delete;
};

/// Lets the work hear what the captured calls cost, for a scope: calls are announced as under a profiler.
class ObserveCosts {
 public:
  explicit ObserveCosts(CostObserver& work)
      : before_(std::exchange(lorry::detail::t_cost_observer, &work)), announced_(kProfileMode, 0) {}
  ~ObserveCosts() { lorry::detail::t_cost_observer = before_; }
  ObserveCosts(const ObserveCosts&) = delete;
  ObserveCosts& operator=(const ObserveCosts&) = delete;

 private:
  CostObserver* const before_;
  const ModeScope announced_;
};

/// Marks a graph as being replayed.
class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {
    if (flag_.exchange(true, std::memory_order_acquire))
      raise_as<CaptureError>("replay",
                             "another thread is replaying this graph; expected one at a time, because replays share "
                             "memory; capture a graph for each thread, or take turns");
  }
  ~Busy() { flag_.store(false, std::memory_order_release); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

/// Work enqueued on `later` runs after that on `earlier`, where both are streams of a GPU.
void order(Stream earlier, Stream later) {
  if (earlier.device.is_cuda() && !(earlier == later)) fence(earlier, later);
}

/// Whether kernels that were chosen for memory at `was` can be used at `now`: they read up to 16 bytes at once, and a
/// GPU's libraries choose theirs by alignments of up to 256 bytes.
bool is_as_aligned(const void* was, const void* now, Device device) {
  return (reinterpret_cast<uintptr_t>(was) - reinterpret_cast<uintptr_t>(now)) % (device.is_cuda() ? 256 : 16) == 0;
}

void require_same_but_memory(const Tensor& was, const Tensor& now, Device device) {
  if (!was.defined() || !now.defined())
    raise_as<ValueError>("rebind", "a tensor is undefined; expected two of the same shape and dtype");
  if (was.dtype() != now.dtype())
    raise_as<DTypeError>("rebind", "the tensors differ in dtype; got {} and {}; capture the function again", was, now);
  if (was.layout() != now.layout())
    raise_as<ShapeError>("rebind", "the tensors differ in sizes or strides; got {} and {}; capture the function again",
                         was, now);
  if (was.device() != now.device() || was.device() != device)
    raise_as<DeviceError>("rebind", "the tensors are not both on the graph's device; got {} and {}; expected {}", was,
                          now, device);
  if (was.numel() > 0 && !is_as_aligned(was.data_ptr(), now.data_ptr(), device))
    raise_as<ValueError>(
        "rebind", "the tensors' memory is not aligned alike; got {} and {}; capture the function again", was, now);
}

/// A tensor that may get other memory.
struct Followed {
  Followed(std::string n, const Tensor& x) : name(std::move(n)), tensor(x) { note(); }
  void note() {
    address = tensor.data_ptr();
    layout = tensor.layout();
    dtype = tensor.dtype();
  }
  bool is_other(Device device) const {
    return tensor.layout() != layout || tensor.dtype() != dtype || tensor.device() != device ||
           (bytes() > 0 && !is_as_aligned(address, tensor.data_ptr(), device));
  }
  int64_t bytes() const { return layout.extent() * size_of(dtype); }

  std::string name;
  Tensor tensor;
  const void* address;
  Layout layout;
  DType dtype;
};

}  // namespace

struct Graph::State {
  State(Function f, CaptureOptions o);
  ~State();

  void prepare();
  void rebuild();
  void capture();
  void launch();
  static void describe(const void* state, SpanDescription& to);
  int64_t rebind(std::span<const device::Move> moves);
  /// A followed tensor that has changed in more than its memory; null if there is none.
  const std::string* changed() const;
  /// Finds tensors that have moved. Returns the name of one of which more has changed, else null.
  const std::string* follow();

  const Function function;
  const CaptureOptions options;
  const Device device;
  const std::shared_ptr<memory::Pool> pool;
  RandomCapture random;
  memory::Leases leases;
  std::unique_ptr<device::WorkGraph> work;
  std::vector<Tensor> outputs, host_written;
  std::vector<Followed> followed;
  Stream last;  ///< where it was launched last
  std::atomic<bool> busy{false};
  uint64_t span_id = 0;  ///< of what was captured last
  GraphStats stats;
};

Graph::State::State(Function f, CaptureOptions o)
    : function(std::move(f)),
      options(std::move(o)),
      device(options.device.value_or(default_device())),
      pool(options.pool != nullptr ? options.pool : std::make_shared<memory::Pool>(device)),
      random({&device, 1}),
      last(current_stream(device)) {
  if (options.warm_up < 0)
    raise_as<ValueError>("capture", "warm_up is negative; got {}; expected a number of runs", options.warm_up);
  if (device::is_captured())
    raise_as<CaptureError>("capture",
                           "this thread's calls are being captured already; expected one capture at a time; capture "
                           "the outer function as a whole");
  prepare();
}

void Graph::State::prepare() {
  const auto start = std::chrono::steady_clock::now();
  // The default stream of a GPU cannot be captured. What is made once for a stream is made for this one.
  const std::optional<OwnedStream> own = last.handle == nullptr ? std::optional<OwnedStream>(device) : std::nullopt;
  const Stream stream = own ? *own : last;
  order(last, stream);
  {
    const StreamScope scope(stream);
    for (int i = 0; i < options.warm_up; ++i) static_cast<void>(function());
    capture();
  }
  order(stream, last);
  for (const auto& [name, tensor] : options.follow)
    if (tensor.defined() && tensor.device() == device) followed.emplace_back(name, tensor);
  if (!followed.empty()) work->rebind({});  // prepares for moves
  if (!device.is_cpu()) launch();
  stats.capture_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Graph::State::rebuild() {
  const waits::Reason reason(waits::Wait::setup);
  if (device.is_cuda()) last.synchronize();
  outputs.clear(), host_written.clear(), followed.clear();
  work.reset();
  leases.clear();
  prepare();
  ++stats.rebuilt;
}

void Graph::State::capture() {
  const bool runs = !device.is_cuda();
  {
    const memory::PoolScope allocations(*pool);
    const RandomCapture::Scope draws(random, runs ? RandomCapture::Calls::run : RandomCapture::Calls::wait);
    work = device::capture_work(current_stream(device));
    try {
      const device::CapturedScope captured;
      const ObserveCosts costs(*work);
      const HostWritten written(host_written);
      for (const Tensor& x : function()) outputs.push_back(x.defined() ? x.detach() : x);
    } catch (...) {
      work.reset();  // ends the capture, before anything else uses the stream
      throw;
    }
  }
  try {
    work->finish();
  } catch (...) {
    work.reset();
    throw;
  }
  static constinit std::atomic<uint64_t> spans{1};
  span_id = spans.fetch_add(1, std::memory_order_relaxed);
  stats.nodes = work->nodes();
  stats.bytes = work->bytes();
  Leaser leaser(leases, device, *pool);
  work->addresses(leaser);
}

int64_t Graph::State::rebind(std::span<const device::Move> moves) {
  const int64_t changed = work->rebind(moves);
  leases.move(device, moves, *pool);
  stats.rebound += changed;
  return changed;
}

const std::string* Graph::State::changed() const {
  for (const Followed& x : followed)
    if (x.is_other(device)) return &x.name;
  return nullptr;
}

const std::string* Graph::State::follow() {
  std::vector<device::Move> moves;
  for (const Followed& x : followed) {
    if (x.is_other(device)) return &x.name;
    if (x.tensor.data_ptr() != x.address) moves.push_back({x.address, x.bytes(), x.tensor.data_ptr()});
  }
  if (moves.empty()) return nullptr;
  rebind(moves);
  for (Followed& x : followed) x.note();
  return nullptr;
}

void Graph::State::launch() {
  const Stream stream = current_stream(device);
  order(last, stream);
  if (random.draws() > 0) random.advance();
  last = stream;
  const Span span({SpanKind::replay, span_id, this, describe});
  work->launch(stream);
}

void Graph::State::describe(const void* state, SpanDescription& to) {
  const State& graph = *static_cast<const State*>(state);
  to.name = fmt::format("replay of {} nodes", graph.stats.nodes);
  to.parts = graph.work->launches();
}

Graph::State::~State() {
  if (work == nullptr || !device.is_cuda()) return;
  try {  // leased memory may be used by others once the last replay is done
    const device::NotCaptured outside;
    const waits::Reason reason(waits::Wait::memory);
    last.synchronize();
  } catch (const std::exception&) {
    // The device has had a fault, which every later call reports.
  }
}

Graph::Graph(Function function, CaptureOptions options)
    : state_(std::make_unique<State>(std::move(function), std::move(options))) {}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

bool Graph::is_outdated() const { return state_->work == nullptr || state_->changed() != nullptr; }

void Graph::replay() {
  const Busy busy(state_->busy);
  if (device::is_captured())
    raise_as<CaptureError>("replay",
                           "a graph is replayed while this thread's calls are captured; capture its function instead");
  if (state_->work == nullptr)
    raise_as<CaptureError>("replay", "the function could not be captured again; make a new graph");
  door::await_memory();
  if (const std::string* const other = state_->follow()) {
    events::emit(events::Kind::warning, "replay",
                 fmt::format("{} has another dtype, shape, device or alignment than in the capture, so the function is "
                             "captured again",
                             *other));
    state_->rebuild();
    ++state_->stats.replays;
    return;
  }
  if (!state_->leases.intact())
    raise_as<CaptureError>("replay",
                           "memory that the graph uses was released: {}; keep the tensors that the function uses, or "
                           "capture it again",
                           state_->leases.released());
  state_->launch();
  ++state_->stats.replays;
}

int64_t Graph::rebind(const Tensor& was, const Tensor& now) { return rebind({{was, now}}); }

int64_t Graph::rebind(const std::vector<std::pair<Tensor, Tensor>>& pairs) {
  const Busy busy(state_->busy);
  if (state_->work == nullptr)
    raise_as<CaptureError>("rebind", "the function could not be captured again; make a new graph");
  std::vector<device::Move> moves;
  for (const auto& [was, now] : pairs) {
    require_same_but_memory(was, now, state_->device);
    if (was.numel() > 0 && was.data_ptr() != now.data_ptr())
      moves.push_back({was.data_ptr(), was.layout().extent() * size_of(was.dtype()), now.data_ptr()});
  }
  return moves.empty() ? 0 : state_->rebind(moves);
}

const std::vector<Tensor>& Graph::outputs() const { return state_->outputs; }
Device Graph::device() const { return state_->device; }
GraphStats Graph::stats() const {
  GraphStats stats = state_->stats;
  stats.leases = static_cast<int64_t>(state_->leases.size());
  return stats;
}

}  // namespace lorry::replay
