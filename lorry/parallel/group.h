#pragma once

// What stands behind a ProcessGroup.

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lorry/parallel/process_group.h"
#include "lorry/parallel/transport.h"

namespace lorry::parallel::detail {

/// This process among all that were started.
class World {
 public:
  World(const Launch& launch, const JoinOptions& options);
  ~World();
  const Launch launch;
  const bool reproducible;
  std::unique_ptr<Member> member;  ///< null in a world of one

  /// The group of this name, if a handle of it lives.
  std::shared_ptr<Group> find(const std::string& name);
  void add(const std::shared_ptr<Group>& group);

 private:
  std::mutex mutex_;
  std::map<std::string, std::weak_ptr<Group>> groups_;
};

class Group {
 public:
  Group(std::shared_ptr<World> world, std::string name, std::vector<int> ranks);
  /// While an exception is under way, tells the others that this rank has failed, if the group is the world: the end of
  /// a transport may wait for them.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return own_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::string& name() const { return name_; }
  const std::vector<int>& ranks() const { return ranks_; }
  World& world() const { return *world_; }
  const std::shared_ptr<World>& world_handle() const { return world_; }

  /// Throws DeviceError for a GPU other than that of the calls before. To be asked before a call is noted: the other
  /// ranks hear of noted calls, and wait for this one in them.
  void require_own_gpu(Device device);
  /// Notes a call of the group: its signature, and what that stands for.
  Noted note_call(uint64_t signature, const std::function<std::string()>& what);
  /// The same for a transfer between two ranks of the group.
  Noted note_transfer(int from, int to, uint64_t signature, const std::function<std::string()>& what);
  void throw_if_failed() {
    if (members_) world_->member->throw_if_failed();
  }
  /// Of a group of more than one. The first call for a device makes the transport, which all ranks do together.
  Transport& transport(Device device);

  int64_t next_exchange = 0;  ///< calls of exchange so far

 private:
  const std::shared_ptr<World> world_;  ///< before what refers to it
  const std::string name_;
  const std::vector<int> ranks_;  ///< in the world
  int own_ = 0;
  std::optional<Members> members_;  ///< none in a group of one
  std::mutex mutex_;
  std::map<std::pair<int, int>, Member::Calls*> transfers_;  ///< by the two ranks
  std::unique_ptr<Transport> of_cpu_, of_gpu_;               ///< each made by the first call that needs it
  Device gpu_{};                                             ///< that `of_gpu_` works on
};

/// The group that a call was announced with. Throws ValueError if there is none of this name.
std::shared_ptr<Group> group_named(const std::string& name);

}  // namespace lorry::parallel::detail
