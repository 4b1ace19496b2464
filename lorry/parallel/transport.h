#pragma once

// What moves the bytes of a group of ranks: Open MPI between CPUs (mpi.cpp), NCCL between GPUs (nccl.cpp).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lorry/layout/device.h"
#include "lorry/layout/dtype.h"
#include "lorry/parallel/member.h"
#include "lorry/parallel/reduction.h"
#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

enum class Collective : uint8_t {
  all_reduce,      ///< `out` is `in` of all ranks, joined
  reduce_scatter,  ///< `in` has a part for each rank; `out` is the own part, joined
  all_gather,      ///< `out` has a part for each rank: its `in`
  all_to_all,      ///< both have a part for each rank: part r of `out` is the own part of rank r's `in`
  broadcast,       ///< `out` is that of `root`
  send,            ///< `in` goes to `root`
  receive,         ///< `out` comes from `root`
};

/// Contiguous tensors, the same one where a call is in place. `count` is the number of elements of a rank's part; of a
/// whole tensor where there are no parts. A call that only sends has no `out`, one that only receives may have no `in`.
struct Piece {
  Tensor in, out;
  int64_t count;

  DType dtype() const { return in.defined() ? in.dtype() : out.dtype(); }
  /// The elements from `at` on; null where there is no such tensor.
  const char* from(int64_t at = 0) const { return address(in, at); }
  char* to(int64_t at = 0) const { return address(out, at); }

 private:
  char* address(const Tensor& x, int64_t at) const {
    return x.defined() ? static_cast<char*>(x.data_ptr()) + at * size_of(dtype()) : nullptr;
  }
};

/// A call as the coordinator knows it (Member::note_call).
struct Noted {
  Member::Calls* calls = nullptr;
  int64_t number = 0;
};

/// One call for every piece; all of them travel together.
struct Job {
  Collective collective{};
  Reduction reduction = Reduction::sum;
  int root = 0;      ///< a rank of the group
  Noted noted = {};  ///< the call that it is of
  std::vector<Piece> pieces = {};
};

/// A job that was begun.
class Pending {
 public:
  virtual ~Pending() = default;
  /// CPU: waits until it is done. GPU: work that is enqueued on the current stream from now on runs after it. Throws
  /// ParallelError if a rank has failed, or does not come within the time-out.
  virtual void wait() = 0;
  virtual bool is_done() const = 0;
};

/// Moves the bytes of one group on one device.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Begins a job after the work enqueued on the current stream so far. Jobs run in order. On a GPU the memory must
  /// stay until it is done, for streams other than the current one.
  virtual std::shared_ptr<Pending> begin(Job job) = 0;
};

/// A group as a transport sees it. It outlives the transport.
struct Members {
  Member& member;          ///< this process
  Launcher launcher;       ///< that started it
  std::string name;        ///< of the group
  std::vector<int> ranks;  ///< in the world, rising
  int own = 0;             ///< the own place among them
  Member::Calls* calls;    ///< that all of them make
  int size() const { return static_cast<int>(ranks.size()); }
};

/// Throws DeviceError where two ranks have the same GPU, since NCCL does not connect such ranks. `gpus` has the UUID of
/// each rank's.
void require_own_gpus(const std::string& group, std::span<const int> ranks, std::span<const std::string> gpus);

/// Ends MPI in this process, if it has begun and no rank has failed.
void end_mpi(Member& member) noexcept;
/// All members call it. Throws ParallelError, DeviceError where there is no such library.
std::unique_ptr<Transport> mpi_transport(const Members& members);
std::unique_ptr<Transport> nccl_transport(const Members& members, Device device);

}  // namespace lorry::parallel
