#pragma once

// Plans of foreach operators and of norms, and the cache that finds them again. An operator's plan is made when it
// first meets its lists, with all the checks that the operator makes of each entry, and cached with the first of them.
// When it meets the same lists again the plan is found by their identity, and brought up to date (list_plan.h) or made
// anew. While no tensor anywhere was given other data or strides, the tensors are not even looked at.

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lorry/foreach/argument.h"
#include "lorry/foreach/list_plan.h"
#include "lorry/foreach/overlap.h"
#include "lorry/ops/pointwise_call.h"

namespace lorry::foreach::detail {

/// An operator over lists: a row of formula/pointwise.def, or copy, cast or fill. In place, the first argument is
/// written.
struct Request {
  Op op;
  std::span<const Argument> arguments;
  bool in_place = false;
  DType to = kF32;  ///< of a cast
};

/// How a plan's group is computed.
struct GroupCall {
  ops::Resolved resolved;
  bool whole[4];  ///< of numbers for each: these are whole numbers
};

struct OperatorPlan {
  // ---- what it is found by
  Op op;
  bool in_place;
  DType to;
  std::array<uint64_t, 4> kinds;                         ///< of the arguments, as far as these decide anything
  std::array<std::weak_ptr<TensorList::Body>, 4> lists;  ///< among the arguments

  // ---- what it holds
  ListPlan plan;                 ///< role k: argument k; ungrouped entries are computed by the operator itself
  std::vector<GroupCall> calls;  ///< of each group
  WrittenMemory written;
  std::vector<Storage*> storages;  ///< that are written, of every entry
  bool in_inference = false;       ///< they may be written in this mode
  bool reusable = true;            ///< it does not depend on values of numbers

  bool is_for(const Request& request, Strategy strategy) const;
  /// Takes over changed addresses. False when the plan has to be made anew, and it has to after a throw.
  bool refresh(const Request& request);

 private:
  bool take_over_addresses(const Request& request);
};

/// Throws what the operator throws.
std::unique_ptr<OperatorPlan> make_plan(const Request& request, Strategy strategy);

/// Of a list's norms: role 0 is the tensor, lists 0 are measured. Scaling cuts other tiles, so it has lists of its own,
/// without entries that are not dense.
struct NormPlan {
  ListPlan plan;
  size_t scaled = 0;        ///< the lists to scale; 0: not made yet
  bool no_overlap = false;  ///< no tensor shares memory with another; else nobody has looked yet
};

/// Plans of a list, the last ones used.
struct PlanCache {
  static constexpr size_t kCapacity = 8;
  std::mutex mutex;
  std::vector<std::unique_ptr<OperatorPlan>> plans;  ///< least recently used first
  std::unique_ptr<NormPlan> norms;

  OperatorPlan& find(const Request& request);
};

/// The list that caches the plan: the first among the arguments.
const TensorList& leading(const Request& request);

/// Runs an operator. The results of one out of place are put into `results`.
void run(const Request& request, std::vector<Tensor>* results);

}  // namespace lorry::foreach::detail
