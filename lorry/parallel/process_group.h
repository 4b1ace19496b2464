#pragma once

// Process groups: the processes that a launcher has started together, and groups of them.
//
//   const parallel::ProcessGroup world = parallel::join();   // mpirun -n 4 ./program
//   Tensor x = full({3}, world.rank());
//   parallel::all_reduce_(x, world);                          // {6, 6, 6} on every rank
//
// Every process calls the same collectives (collectives.h) in the same order. Tensors on the CPU travel through Open
// MPI, tensors on GPUs through NCCL. A process that was started alone is a group of one, in which every call is local.
//
// No call waits for ever. When a rank ends, stops, makes another call than the others or does not come to one within
// the time-out, every other rank gets a ParallelError that names it, in the call that it is in or in its next one. A
// rank that is not in a call of Lorry within ten seconds is ended: one line on standard error, exit status 1.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lorry/layout/device.h"
#include "lorry/parallel/launch.h"

namespace lorry::parallel {

struct JoinOptions {
  /// For how long a rank waits for others, in seconds. LORRY_PARALLEL_TIMEOUT sets the default.
  double timeout_s = 0;
  /// Sums over ranks are computed in rank order, in f32 (in f64 for f64): a rank's place decides nothing else, so a run
  /// of the same size gives the same bits again. Costs memory for a copy of what is summed.
  bool reproducible = false;
};

namespace detail {
class Group;
}

/// A group of processes. A handle: copies are the same group. The last handle of the world leaves it; until then a
/// process must not end, or the others see it die.
class ProcessGroup {
 public:
  int rank() const;  ///< of this process in the group
  int size() const;
  const std::string& name() const;  ///< "world", "world[0,2]"
  /// The GPU of this process: its number among those of its machine, modulo the GPUs there. Throws DeviceError where
  /// there is none.
  Device device() const;
  /// The group of these ranks of this group, in rising order. Each of them calls it, and no other. Throws ValueError
  /// for ranks that are not in this group, are listed twice, or without this process.
  ProcessGroup subgroup(std::vector<int> ranks) const;

  /// Whether sums are computed in rank order (JoinOptions::reproducible).
  bool is_reproducible() const;

  /// Whatever each rank has, in rank order. Not for tensors: it goes through rank 0. may_take_long: there is no
  /// time-out, as long as no rank ends or stops. Throws ParallelError.
  std::vector<std::string> exchange(const std::string& own, bool may_take_long = false) const;
  /// Throws ParallelError, naming both, unless all ranks have the same text. what: "the seed".
  void require_same(const std::string& what, const std::string& own) const;

  /// The step that this rank is in: errors of other ranks then name it.
  void note_step(int64_t step) const;
  /// Tells the other ranks that this one has failed. Leaving while an exception is under way does so too.
  void fail(const std::string& why) const;
  /// Throws ParallelError if another rank has failed.
  void throw_if_failed() const;

  detail::Group& group() const { return *group_; }
  explicit ProcessGroup(std::shared_ptr<detail::Group> group) : group_(std::move(group)) {}

 private:
  std::shared_ptr<detail::Group> group_;
};

/// All processes that the launcher started (launch.h). The first call finds the others; while a handle lives, later
/// calls return the same group. Throws ParallelError that names the ranks that have not come within the time-out,
/// IoError if rank 0 cannot listen, ValueError for an environment that contradicts itself or a time-out that is not
/// positive.
ProcessGroup join(const JoinOptions& options = {});

}  // namespace lorry::parallel
