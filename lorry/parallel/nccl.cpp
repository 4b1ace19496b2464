// NCCL, opened when it is first needed. A group's jobs run on a stream of their own. Its communicator is made by a
// thread that is given up on after the time-out. Calls block, because each that does not takes 50 us more. If a rank
// fails meanwhile, the watching thread aborts the communicator, and the call returns.

#include "lorry/parallel/transport.h"

#ifdef LORRY_WITH_NCCL

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "lorry/base/error.h"
#include "lorry/device/cuda/library.h"
#include "lorry/device/cuda/runtime.h"
#include "lorry/device/fence.h"
#include "lorry/device/stream.h"
#include "lorry/parallel/member.h"

namespace lorry::parallel {
namespace {

using Clock = std::chrono::steady_clock;

/// The functions of libnccl that are used.
struct Library {
// clang-format off
#define LORRY_NCCL_FUNCTIONS(F) \
  F(GetUniqueId) F(CommInitRankConfig) F(CommGetAsyncError) F(CommAbort) F(CommFinalize) F(CommDestroy) \
  F(GetErrorString) F(GetLastError) F(GroupStart) F(GroupEnd) F(AllReduce) F(ReduceScatter) F(AllGather) F(Send) \
  F(Recv) F(Broadcast)
// clang-format on
#define LORRY_MEMBER(name) decltype(&nccl##name) name = nullptr;
  LORRY_NCCL_FUNCTIONS(LORRY_MEMBER)
#undef LORRY_MEMBER
  std::string why_not = {};  ///< it cannot be used
};

Library open() {
  Library library;
  const auto [handle, why] = cuda::open_library("libnccl.so.2");
  if (handle == nullptr) {
    library.why_not = why;
    return library;
  }
#define LORRY_FIND(name)                                                                 \
  library.name = reinterpret_cast<decltype(&nccl##name)>(::dlsym(handle, "nccl" #name)); \
  if (library.name == nullptr) library.why_not = "it has no function nccl" #name;
  LORRY_NCCL_FUNCTIONS(LORRY_FIND)
#undef LORRY_FIND
  return library;
}
const Library& nccl() {
  static const Library library = open();
  if (!library.why_not.empty())
    raise<DeviceError>("tensors on GPUs of several processes need NCCL, which cannot be opened: {}; install libnccl2",
                       library.why_not);
  return library;
}

ncclDataType_t type_of(DType t) {
  switch (t) {
    case kBool:
    case kU8:
      return ncclUint8;
    case kI8:
      return ncclInt8;
    case kI32:
      return ncclInt32;
    case kI64:
      return ncclInt64;
    case kF16:
      return ncclFloat16;
    case kBF16:
      return ncclBfloat16;
    case kF32:
      return ncclFloat32;
    case kF64:
      return ncclFloat64;
    default:
      raise<DTypeError>("NCCL has no such type; got {}; convert it first", name(t));
  }
}
ncclRedOp_t op_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return ncclSum;
    case Reduction::product:
      return ncclProd;
    case Reduction::minimum:
      return ncclMin;
    case Reduction::maximum:
      return ncclMax;
  }
  return ncclSum;
}

void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const last = nccl().GetLastError(nullptr);
  raise<ParallelError>("{} failed: {}{}{}", call, nccl().GetErrorString(result), last != nullptr && *last ? ": " : "",
                       last != nullptr ? last : "");
}

class NcclPending final : public Pending {
 public:
  NcclPending(Device device, Member& member) : done_(device), device_(device), member_(member) {}
  void wait() override {
    member_.throw_if_failed();
    done_.block(current_stream(device_));
  }
  bool is_done() const override { return done_.done(); }
  const Event& done() const { return done_; }

 private:
  const Event done_;
  const Device device_;
  Member& member_;
};

/// A job on the GPU. Its time counts from when the GPU has come to it: what is before it may take long.
struct Flight {
  std::shared_ptr<NcclPending> pending;
  Event reached;
  Noted noted;
  Clock::time_point since = {};
};

/// A communicator, and what is under way on it.
struct Communicator {
  std::timed_mutex mutex;
  std::atomic<ncclComm_t> comm = nullptr;  ///< null once it is aborted
  std::deque<Flight> flights = {};
};

/// Threads of ours that are inside NCCL: they make communicators, or abort them.
std::atomic<int> g_inside = 0;

/// A process that ends must not wait for them, nor let what they use be destroyed under them.
void end_at_exit(int status, void*) {
  for (int i = 0; i < 500 && g_inside > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  if (g_inside == 0) return;
  std::fflush(nullptr);
  std::_Exit(status);
}

/// Runs it by a thread of its own, which nobody waits for. Throws std::system_error if none can be had.
void start_inside_nccl(std::function<void()> what) {
  static const int registered = ::on_exit(end_at_exit, nullptr);
  static_cast<void>(registered);
  ++g_inside;
  try {
    std::thread([what = std::move(what)] {
      what();
      --g_inside;
    }).detach();
  } catch (...) {
    --g_inside;
    throw;
  }
}

/// Ends what a GPU waits for. NCCL may wait for ranks that are alive, and nobody waits for that.
void abort_in_background(std::shared_ptr<Communicator> communicator) noexcept {
  const auto abort = [communicator = std::move(communicator)] {
    // The program's thread may hold the lock in a call of NCCL that returns only once this aborts.
    constexpr std::chrono::milliseconds kPatience{200};
    const std::unique_lock lock(communicator->mutex, kPatience);
    if (const ncclComm_t comm = communicator->comm.exchange(nullptr)) nccl().CommAbort(comm);
    if (lock) communicator->flights.clear();
  };
  try {
    start_inside_nccl(abort);
  } catch (...) {  // no thread can be had
    abort();
  }
}

class NcclTransport final : public Transport, private Member::Watched {
 public:
  NcclTransport(const Members& members, Device device) : members_(members), device_(device), stream_(device, -1) {
    const Library& library = nccl();
    const cuda::DeviceGuard guard(device.index);
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, device.index), "cudaGetDeviceProperties");
    // Each member tells its GPU; the first adds the id of the communicator.
    std::string own(properties.uuid.bytes, sizeof(properties.uuid.bytes));
    ncclUniqueId id{};
    if (members.own == 0) {
      check(library.GetUniqueId(&id), "ncclGetUniqueId");
      own.append(id.internal, sizeof(id.internal));
    }
    const std::string key = fmt::format("the making of group {} of GPUs", members.name);
    std::vector<std::string> told = members.member.exchange(key, members.ranks, std::move(own));
    constexpr size_t kUuid = sizeof(properties.uuid.bytes);
    require<ParallelError>(told.at(0).size() == kUuid + sizeof(id.internal), "rank {} has sent no id of NCCL",
                           members.ranks[0]);
    std::memcpy(id.internal, told[0].data() + kUuid, sizeof(id.internal));
    told[0].resize(kUuid);
    require_own_gpus(members.name, members.ranks, told);
    make(id);
    members.member.watch(*this);
  }
  ~NcclTransport() override {
    members_.member.unwatch(*this);
    // The end of a communicator waits for all ranks.
    if (members_.member.has_failed() || std::uncaught_exceptions() > 0) {
      abort();
      return;
    }
    members_.member.note_end(*members_.calls);
    const cuda::DeviceGuard guard(device_.index, std::nothrow);
    const ncclComm_t comm = communicator_->comm.exchange(nullptr);
    nccl().CommFinalize(comm);
    nccl().CommDestroy(comm);
  }

  std::shared_ptr<Pending> begin(Job job) override {
    members_.member.throw_if_failed();
    for (const Piece& piece : job.pieces) static_cast<void>(type_of(piece.dtype()));  // throws before anything is begun
    const cuda::DeviceGuard guard(device_.index);
    const Stream current = current_stream(device_);
    const auto pending = std::make_shared<NcclPending>(device_, members_.member);
    const std::lock_guard lock(communicator_->mutex);
    const ncclComm_t comm = communicator_->comm;
    if (comm == nullptr) members_.member.throw_failed();
    fence(current, stream_);
    if (!is_capturing(current)) {
      release_landed();
      communicator_->flights.push_back({pending, Event(device_), job.noted});
      communicator_->flights.back().reached.record(stream_);
    }
    try {
      check(nccl().GroupStart(), "ncclGroupStart");
      for (const Piece& piece : job.pieces)
        if (piece.count > 0) enqueue(comm, job, piece);
      check(nccl().GroupEnd(), "ncclGroupEnd");
    } catch (const ParallelError&) {
      members_.member.throw_if_failed();  // then it was aborted
      throw;
    }
    pending->done().record(stream_);
    return pending;
  }

 private:
  /// Releases jobs that are done, where there are many: asking takes time.
  void release_landed() {
    constexpr size_t kMany = 64;
    std::deque<Flight>& flights = communicator_->flights;
    while (flights.size() >= kMany && flights.front().pending->is_done()) flights.pop_front();
  }
  /// What a thread makes. It may outlive this.
  struct Making {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    ncclComm_t comm = nullptr;
    ncclResult_t result = ncclSuccess;
  };
  void make(const ncclUniqueId& id) {
    const auto making = std::make_shared<Making>();
    start_inside_nccl([making, id, size = members_.size(), own = members_.own, device = device_.index] {
      ncclComm_t comm = nullptr;
      ncclResult_t result = ncclUnhandledCudaError;
      if (cudaSetDevice(device) == cudaSuccess) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        result = nccl().CommInitRankConfig(&comm, size, id, own, &config);
      }
      const std::lock_guard lock(making->mutex);
      making->is_done = true, making->comm = comm, making->result = result;
      making->changed.notify_all();
    });
    Member& member = members_.member;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(member.timeout_s()));
    std::unique_lock lock(making->mutex);
    while (!making->is_done && !member.has_failed() && Clock::now() < end)
      making->changed.wait_for(lock, std::chrono::milliseconds(20));
    member.throw_if_failed();
    require<ParallelError>(making->is_done, "NCCL has not connected the GPUs of group {} within {:g} s", members_.name,
                           member.timeout_s());
    check(making->result, "ncclCommInitRankConfig");
    communicator_->comm = making->comm;
  }

  void enqueue(ncclComm_t comm, const Job& job, const Piece& piece) {
    const Library& n = nccl();
    const ncclDataType_t type = type_of(piece.dtype());
    const auto count = static_cast<size_t>(piece.count);
    const cudaStream_t stream = cuda::handle(stream_);
    switch (job.collective) {
      case Collective::all_reduce:
        return check(n.AllReduce(piece.from(), piece.to(), count, type, op_of(job.reduction), comm, stream),
                     "ncclAllReduce");
      case Collective::reduce_scatter:
        return check(n.ReduceScatter(piece.from(), piece.to(), count, type, op_of(job.reduction), comm, stream),
                     "ncclReduceScatter");
      case Collective::all_gather:
        return check(n.AllGather(piece.from(), piece.to(), count, type, comm, stream), "ncclAllGather");
      case Collective::all_to_all:
        for (int rank = 0; rank < members_.size(); ++rank) {
          check(n.Send(piece.from(rank * piece.count), count, type, rank, comm, stream), "ncclSend");
          check(n.Recv(piece.to(rank * piece.count), count, type, rank, comm, stream), "ncclRecv");
        }
        return;
      case Collective::broadcast:
        return check(n.Broadcast(piece.from(), piece.to(), count, type, job.root, comm, stream), "ncclBroadcast");
      case Collective::send:
        return check(n.Send(piece.from(), count, type, job.root, comm, stream), "ncclSend");
      case Collective::receive:
        return check(n.Recv(piece.to(), count, type, job.root, comm, stream), "ncclRecv");
    }
  }

  void check_time() override {
    const std::unique_lock lock(communicator_->mutex, std::try_to_lock);
    if (!lock) return;
    // Nothing is released here: CUDA would let this thread wait while the program's waits for a rank that is gone.
    const auto at = std::ranges::find_if(communicator_->flights, [](const Flight& x) { return !x.pending->is_done(); });
    if (at == communicator_->flights.end()) return;
    Flight& first = *at;
    const Clock::time_point now = Clock::now();
    if (first.since == Clock::time_point{} && first.reached.done()) first.since = now;
    if (first.since == Clock::time_point{}) return;
    if (std::chrono::duration<double>(now - first.since).count() > members_.member.timeout_s())
      members_.member.report_overdue(*first.noted.calls, first.noted.number);
  }
  void abort() noexcept override { abort_in_background(communicator_); }

  const Members& members_;
  const Device device_;
  const OwnedStream stream_;
  const std::shared_ptr<Communicator> communicator_ = std::make_shared<Communicator>();
};

}  // namespace

std::unique_ptr<Transport> nccl_transport(const Members& members, Device device) {
  return std::make_unique<NcclTransport>(members, device);
}

}  // namespace lorry::parallel

#else

#include "lorry/base/error.h"

namespace lorry::parallel {

std::unique_ptr<Transport> nccl_transport(const Members&, Device) {
  raise<DeviceError>("tensors on GPUs of several processes need NCCL, and this build has none (nccl.h was not found)");
}

}  // namespace lorry::parallel

#endif
