#include "lorry/parallel/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "lorry/base/env.h"
#include "lorry/base/error.h"
#include "lorry/base/waits.h"
#include "lorry/device/device.h"
#include "lorry/parallel/group.h"

namespace lorry::parallel {

using detail::Group;
using detail::World;

namespace {

constexpr int64_t kDefaultTimeout = 60, kMostTimeout = 86400;
constexpr const char* kTimeoutVariable = "LORRY_PARALLEL_TIMEOUT";

/// The world of this process.
struct Current {
  std::mutex mutex;
  std::weak_ptr<World> world;
  std::atomic<bool> has_left = false;  ///< a world of several processes, which cannot begin again: MPI begins once
};
Current& current() {
  static Current* const current = new Current;  // groups may outlive static objects
  return *current;
}

/// Of the world, for waits: a GPU that was to receive from a rank that has failed is done too, with anything.
std::atomic<Member*> g_member = nullptr;
void check_ranks() {
  if (Member* const member = g_member) member->throw_if_failed();
}

double timeout_of(const JoinOptions& options) {
  if (options.timeout_s != 0) {
    if (!(options.timeout_s > 0 && options.timeout_s <= kMostTimeout))
      raise_as<ValueError>("join", "timeout_s is no time-out; got {}; expected more than 0 s, and at most a day",
                           options.timeout_s);
    return options.timeout_s;
  }
  return static_cast<double>(env::integer(kTimeoutVariable, 1, kMostTimeout).value_or(kDefaultTimeout));
}

void require_address(const Launch& launch) {
  if (launch.size > 1 && launch.host.empty() && launch.file.empty())
    raise_as<ValueError>("join",
                         "{} has started processes on several machines, and it is not known where rank 0 is; set "
                         "LORRY_ADDRESS=HOST:PORT, an address of rank 0's machine and a free port there",
                         name(launch.launcher));
}

}  // namespace

namespace detail {

World::World(const Launch& from, const JoinOptions& options) : launch(from), reproducible(options.reproducible) {
  const double timeout_s = timeout_of(options);
  require_address(launch);
  if (launch.size == 1) return;
  member = std::make_unique<Member>(launch, timeout_s);
  g_member = member.get();
  waits::set_check(check_ranks);
}

World::~World() {
  if (member == nullptr) return;
  waits::set_check(nullptr);
  g_member = nullptr;
  current().has_left = true;
  if (std::uncaught_exceptions() > 0) return;
  member->leave();
  end_mpi(*member);
}

std::shared_ptr<Group> World::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(name);
  return found != groups_.end() ? found->second.lock() : nullptr;
}

void World::add(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  groups_[group->name()] = group;
}

Group::Group(std::shared_ptr<World> world, std::string name, std::vector<int> ranks)
    : world_(std::move(world)), name_(std::move(name)), ranks_(std::move(ranks)) {
  own_ = static_cast<int>(std::ranges::find(ranks_, world_->launch.rank) - ranks_.begin());
  if (ranks_.size() < 2) return;
  Member& member = *world_->member;
  members_.emplace(Members{.member = member,
                           .launcher = world_->launch.launcher,
                           .name = name_,
                           .ranks = ranks_,
                           .own = own_,
                           .calls = member.add_group(name_, ranks_)});
}

Group::~Group() {
  if (!members_ || size() < world_->launch.size || std::uncaught_exceptions() == 0) return;
  if (Member& member = *world_->member; !member.has_failed()) member.fail("it was ended by an exception");
}

void Group::require_own_gpu(Device device) {
  const std::lock_guard lock(mutex_);
  if (of_gpu_ == nullptr || device.is_cpu() || gpu_ == device) return;
  raise_as<DeviceError>("ProcessGroup",
                        "got a tensor on {} for group {}, to which this rank gave tensors on {} before; expected the "
                        "same GPU in every call: make tensors on ProcessGroup::device()",
                        device, name_, gpu_);
}

Noted Group::note_call(uint64_t signature, const std::function<std::string()>& what) {
  if (!members_) return {};
  return {members_->calls, world_->member->note_call(*members_->calls, signature, what)};
}

Noted Group::note_transfer(int from, int to, uint64_t signature, const std::function<std::string()>& what) {
  Member::Calls* calls = nullptr;
  {
    const std::lock_guard lock(mutex_);
    Member::Calls*& known = transfers_[{from, to}];
    if (known == nullptr) {
      const int a = ranks_[static_cast<size_t>(from)], b = ranks_[static_cast<size_t>(to)];
      const int both[] = {std::min(a, b), std::max(a, b)};
      known = world_->member->add_group(fmt::format("{}, {} to {}", name_, from, to), both);
    }
    calls = known;
  }
  return {calls, world_->member->note_call(*calls, signature, what)};
}

Transport& Group::transport(Device device) {
  const std::lock_guard lock(mutex_);
  if (device.is_cpu()) {
    if (of_cpu_ == nullptr) of_cpu_ = mpi_transport(*members_);
    return *of_cpu_;
  }
  if (of_gpu_ == nullptr) {
    of_gpu_ = nccl_transport(*members_, device);
    gpu_ = device;
  }
  return *of_gpu_;
}

std::shared_ptr<Group> group_named(const std::string& name) {
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(current().mutex);
    world = current().world.lock();
  }
  std::shared_ptr<Group> group = world != nullptr ? world->find(name) : nullptr;
  if (group == nullptr)
    raise_as<ValueError>("run", "the group of a call is gone; got '{}'; expected one that has a handle", name);
  return group;
}

}  // namespace detail

void require_own_gpus(const std::string& group, std::span<const int> ranks, std::span<const std::string> gpus) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const auto first = static_cast<size_t>(std::find(gpus.begin(), gpus.end(), gpus[i]) - gpus.begin());
    if (first == i) continue;
    raise_as<DeviceError>("ProcessGroup",
                          "ranks {} and {} gave group {} tensors of the same GPU; expected a GPU for each rank: make "
                          "tensors on ProcessGroup::device()",
                          ranks[first], ranks[i], group);
  }
}

ProcessGroup join(const JoinOptions& options) {
  const std::lock_guard lock(current().mutex);
  std::shared_ptr<World> world = current().world.lock();
  if (world != nullptr)
    if (std::shared_ptr<Group> group = world->find("world")) return ProcessGroup(std::move(group));
  if (world == nullptr && current().has_left)
    raise_as<ValueError>("join", "this process has left the others, and cannot come back; keep a handle of the group");
  if (world == nullptr) world = std::make_shared<World>(launched(), options);
  std::vector<int> ranks(static_cast<size_t>(world->launch.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto group = std::make_shared<Group>(world, "world", std::move(ranks));
  world->add(group);
  current().world = world;
  return ProcessGroup(std::move(group));
}

int ProcessGroup::rank() const { return group_->rank(); }
int ProcessGroup::size() const { return group_->size(); }
const std::string& ProcessGroup::name() const { return group_->name(); }

bool ProcessGroup::is_reproducible() const { return group_->world().reproducible; }

Device ProcessGroup::device() const {
  const int count = device::count(DeviceType::cuda);
  if (count == 0)
    raise_as<DeviceError>("ProcessGroup", "there is no GPU for this process: {}", device::why_absent(DeviceType::cuda));
  const Launch& launch = group_->world().launch;
  if (launch.local_rank >= count)
    raise_as<DeviceError>("ProcessGroup", "process {} of this machine, counted from 0, has no GPU: there {} {}",
                          launch.local_rank, count == 1 ? "is" : "are", count);
  return Device(DeviceType::cuda, launch.local_rank);
}

ProcessGroup ProcessGroup::subgroup(std::vector<int> ranks) const {
  const bool is_rising = std::ranges::adjacent_find(ranks, std::greater_equal<>()) == ranks.end();
  if (ranks.empty() || !is_rising || ranks.front() < 0 || ranks.back() >= size())
    raise_as<ValueError>("subgroup",
                         "these are no ranks of the group '{}'; got [{}]; expected numbers of 0 to {}, rising", name(),
                         fmt::join(ranks, ", "), size() - 1);
  if (!std::ranges::binary_search(ranks, rank()))
    raise_as<ValueError>("subgroup", "this process is not in the group; got [{}] on rank {}; only members call it",
                         fmt::join(ranks, ", "), rank());
  const std::string name = fmt::format("{}[{}]", this->name(), fmt::join(ranks, ","));
  World& world = group_->world();
  if (std::shared_ptr<Group> group = world.find(name)) return ProcessGroup(std::move(group));
  for (int& x : ranks) x = group_->ranks()[static_cast<size_t>(x)];
  auto group = std::make_shared<Group>(group_->world_handle(), name, std::move(ranks));
  world.add(group);
  return ProcessGroup(std::move(group));
}

std::vector<std::string> ProcessGroup::exchange(const std::string& own, bool may_take_long) const {
  if (size() == 1) return {own};
  const std::string key = fmt::format("exchange {} of {}", group_->next_exchange++, name());
  return group_->world().member->exchange(key, group_->ranks(), own, may_take_long);
}

void ProcessGroup::require_same(const std::string& what, const std::string& own) const {
  const std::vector<std::string> all = exchange(own);
  for (size_t i = 1; i < all.size(); ++i)
    require<ParallelError>(all[i] == all[0], "{} differs between ranks: rank 0 has {}, rank {} has {}", what, all[0], i,
                           all[i]);
}

void ProcessGroup::note_step(int64_t step) const {
  if (Member* const member = group_->world().member.get()) member->note_step(step);
}
void ProcessGroup::fail(const std::string& why) const {
  if (Member* const member = group_->world().member.get()) member->fail(why);
}
void ProcessGroup::throw_if_failed() const {
  if (Member* const member = group_->world().member.get()) member->throw_if_failed();
}

}  // namespace lorry::parallel
