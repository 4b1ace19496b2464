#pragma once

// Plans: which kernel takes which tensors of a list, and where these lie. A plan is made when an operator first meets
// its lists, in time proportional to their number, and kept with the first of them. When it meets the same lists again
// the plan is found by their identity; each tensor is looked at, a changed address is told to the kernels' list, which
// patches that entry, and a changed size, dtype or layout makes the plan anew. While no tensor anywhere was given other
// data or strides, not even that look is needed.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "lorry/foreach/argument.h"
#include "lorry/kernels/list.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry::foreach {

namespace detail {

/// An operator over lists: a row of formula/pointwise.def, or copy, cast or fill. In place, the first argument is
/// written.
struct Request {
  Op op;
  std::span<const Argument> arguments;
  bool in_place = false;
  DType to = kF32;  ///< of a cast
};

/// What a plan relies on of tensors: their addresses, dtypes, devices, sizes and strides, one tensor after the other.
class Facts {
 public:
  enum class Since { same, moved, other };

  void reserve(const TensorList& more);
  void clear() { words_.clear(); }
  void add(const Tensor& x);
  /// What has become of the tensor whose facts begin at `at`, which goes on to the next one's; a new address is taken
  /// over.
  Since look(size_t& at, const Tensor& x);

 private:
  std::vector<int64_t> words_;  ///< of each: address, kind, sizes, strides
};

/// Entries that share a launch: of one device, row and combination of dtypes.
struct Group {
  ops::Resolved call;
  bool whole[4] = {};  ///< of numbers for each: these are whole numbers
  kernels::List list;
  std::vector<uint32_t> entries;  ///< where in the TensorLists
};

/// Memory that an entry writes.
struct Written {
  uintptr_t begin, end;
  uintptr_t reach;  ///< the furthest end of those that begin no later
  uint32_t entry;
};

struct Plan {
  // ---- what it is found by
  Op op;
  bool in_place;
  DType to;
  Strategy strategy;
  std::array<uint64_t, 4> kinds;                         ///< of the arguments, as far as these decide anything
  std::array<std::weak_ptr<TensorList::Body>, 4> lists;  ///< among the arguments

  // ---- what it holds
  std::vector<Group> groups;
  /// entries that no list takes, such as broadcast ones: the operator itself does
  std::vector<uint32_t> alone;
  std::vector<std::pair<int32_t, uint32_t>> places;  ///< of every entry: its group, or -1, and its place there
  Facts facts;                                       ///< list after list
  std::vector<Written> written;                      ///< by address
  std::vector<Storage*> storages;                    ///< that are written, of every entry
  uint64_t looked = 0;                               ///< last_reshaped() when the tensors were last looked at
  bool in_inference = false;                         ///< they may be written in this mode
  bool keeps = true;                                 ///< nothing else decided it

  bool is_for(const Request& request, Strategy now) const;
  /// Whether all is as it was; takes over addresses that have changed. False when the plan has to be made anew, and it
  /// has to after a throw.
  bool holds(const Request& request);

 private:
  bool takes_over(const Request& request);
};

/// Makes a plan, with all the checks that the operator makes of each entry. Throws what the operator throws.
std::unique_ptr<Plan> make_plan(const Request& request, Strategy strategy);

/// How a list was last handed to norms: one list a device and dtype.
struct NormPlan {
  Strategy strategy = Strategy::automatic;
  uint64_t looked = 0;  ///< as in Plan
  bool gaps = false;    ///< some tensors have to be copied each time
  Facts facts;
  std::vector<kernels::List> lists;
  /// the same once more, since scaling cuts other tiles; made when first needed. A tensor with gaps is empty there
  std::vector<kernels::List> scaled;
  bool separate = false;  ///< no tensor shares memory with another; to be looked at when first needed
  std::vector<std::pair<uint32_t, uint32_t>> places;  ///< of every tensor: its list and its place there
  std::vector<Tensor> copies;                         ///< of tensors with gaps, while the norm is enqueued
};

/// Plans of a list, the last ones used.
struct Kept {
  static constexpr size_t kMost = 8;
  std::mutex mutex;
  std::vector<std::unique_ptr<Plan>> plans;  ///< least recently used first
  std::unique_ptr<NormPlan> norms;

  Plan& find(const Request& request);
};

/// Throws ShapeError where tensors that are all written share memory.
void require_separate(const TensorList& written);

/// The list that keeps the plan: the first among the arguments.
const TensorList& leading(const Request& request);

/// Runs an operator. The results of one out of place are put into `results`.
void run(const Request& request, std::vector<Tensor>* results);

}  // namespace detail

}  // namespace lorry::foreach
