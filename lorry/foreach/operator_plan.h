#pragma once

// Plans of foreach operators and of norms, and the cache that finds them again. The first call of an operator over some
// lists makes a plan, with all the checks that the operator makes for each entry. The plan is cached with the first of
// the lists. A later call over the same lists finds it by their identity, and refreshes it (list_plan.h) or makes it
// again. If no tensor in the process changed storage or strides meanwhile, the call does not look at the tensors.

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
  bool whole[4];  ///< of an argument with a number for each entry: they are whole numbers
};

struct OperatorPlan {
  // ---- the key
  Op op;
  bool in_place;
  DType to;
  std::array<uint64_t, 4> kinds;                         ///< of each argument: what the plan depends on in it
  std::array<std::weak_ptr<TensorList::Body>, 4> lists;  ///< among the arguments

  // ---- the plan
  ListPlan plan;                 ///< role k: argument k; ungrouped entries are computed by the operator itself
  std::vector<GroupCall> calls;  ///< of each group
  WrittenMemory written;
  std::vector<Storage*> storages;  ///< written ones, one for each entry
  bool in_inference = false;       ///< whether it was made in inference mode, where other tensors may be written
  bool reusable = true;            ///< does not depend on the values of numbers

  bool is_for(const Request& request, Strategy strategy) const;
  /// Updates addresses that changed. False: the plan must be made again. So it must if this throws.
  bool refresh(const Request& request);

 private:
  bool update_addresses(const Request& request);
};

/// Throws what the operator throws.
std::unique_ptr<OperatorPlan> make_plan(const Request& request, Strategy strategy);

/// The plan of a list's norms. Role 0 is the tensor; lists 0 are for norms. Scaling asks for another alignment, so it
/// has lists of its own, in which tensors that are not dense have no elements.
struct NormPlan {
  ListPlan plan;
  size_t scaled = 0;        ///< the lists to scale; 0: not made yet
  bool no_overlap = false;  ///< no two tensors share memory; false: not checked yet
};

/// The plans that a list used last.
struct PlanCache {
  static constexpr size_t kCapacity = 8;
  std::mutex mutex;
  std::vector<std::unique_ptr<OperatorPlan>> plans;  ///< least recently used first
  std::unique_ptr<NormPlan> norms;

  OperatorPlan& find(const Request& request);
};

/// The list that caches the plan: the first one among the arguments.
const TensorList& leading(const Request& request);

/// Executes a request. `results` receives its results; null for one in place.
void execute(const Request& request, std::vector<Tensor>* results);

}  // namespace lorry::foreach::detail
