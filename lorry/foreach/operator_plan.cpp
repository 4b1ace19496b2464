#include "lorry/foreach/operator_plan.h"

#include <algorithm>

#include "lorry/foreach/list_operators.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry::foreach {

Operand Argument::at(size_t e, Tensor& holder) const {
  if (list_) return (*list_)[e];
  if (each_) return numbers_[e];
  if (tensor_ == nullptr) return number_;
  if (tensor_->dim() == 0) return *tensor_;
  holder = tensor_->select(0, static_cast<int64_t>(e));
  return holder;
}

namespace detail {
namespace {

/// What a plan depends on in an argument, besides the tensors of lists.
uint64_t kind_of(const Request& request, size_t k, bool& reusable) {
  const Argument& x = request.arguments[k];
  const auto of_number = [&](const Scalar& n) -> uint64_t {
    const bool square = request.op == Op::pow && n.to<double>() == 2;  // a row of its own
    return n.is_floating() * 1 + n.is_boolean() * 2 + square * 4;
  };
  if (x.list() != nullptr) return 1;
  if (x.is_number()) return 0x100 + of_number(x.number());
  if (x.is_numbers()) {
    const uint64_t first = of_number(x.numbers()[0]);
    for (const Scalar& n : x.numbers()) reusable = reusable && of_number(n) == first;
    return 0x200 + first;
  }
  const Tensor& t = *x.tensor();
  return 0x300 + static_cast<uint64_t>(t.dtype()) + static_cast<uint64_t>(t.dim()) * 0x1000 +
         t.node()->wrapped_number * 0x10000ull + static_cast<uint64_t>(t.device().type) * 0x100000 +
         static_cast<uint64_t>(t.device().index) * 0x1000000;
}

// ---- memory that is written -----------------------------------------------------------------------------------------

/// Every tensor of every argument against what is written.
std::optional<Overlap> overlap_of(const Request& request, WrittenMemory& written) {
  const TensorList& self = leading(request);
  written = WrittenMemory(self.tensors());
  std::optional<Overlap> found = written.within();
  for (const Argument& x : request.arguments.subspan(1)) {
    if (x.list() != nullptr && !x.list()->is_same(self))
      for (uint32_t e = 0; e < self.size(); ++e) found = worse(found, written.with((*x.list())[e], e));
    if (x.tensor() != nullptr) found = worse(found, written.with(*x.tensor()));
  }
  return found;
}

// ---- entries --------------------------------------------------------------------------------------------------------

/// Both have one dense layout.
bool same_layout(const Tensor& a, const Tensor& b) {
  const Layout &x = a.layout(), &y = b.layout();
  if (!same_sizes(x, y)) return false;
  return (a.is_contiguous() && b.is_contiguous()) || (x == y && x.is_dense());
}

ops::Resolved resolve(const Request& request, std::span<const Operand> operands, bool& ungrouped) {
  if (const ListOperator* own = list_operator(request.op)) return own->resolve(request, operands, ungrouped);
  ops::Resolved call = request.in_place ? ops::resolve_into(request.op, *operands[0].tensor(), operands, ungrouped)
                                        : ops::resolve(request.op, operands);
  if (request.in_place) call.result = operands[0].tensor()->dtype();
  ungrouped |= call.converts;
  return call;
}

/// The argument of each array of a list: the one that is written, then those that are read.
std::vector<int8_t> arrays_of(const Request& request) {
  std::vector<int8_t> arrays{request.in_place ? int8_t{0} : ListPlan::kNoRole};
  const ListOperator* const own = list_operator(request.op);
  const size_t end = own != nullptr ? own->end_read : request.arguments.size();
  for (size_t k = own != nullptr ? own->first_read : 0; k < end; ++k)
    arrays.push_back(request.arguments[k].list() != nullptr ? static_cast<int8_t>(k) : ListPlan::kNoRole);
  return arrays;
}

/// Adds entries to their groups, one after the other.
class PlanBuilder {
 public:
  PlanBuilder(const Request& request, OperatorPlan& plan)
      : request_(request), own_(list_operator(request.op)), plan_(plan), arity_(request.arguments.size()) {
    for (size_t k = 0; k < arity_; ++k) lists_[k] = request.arguments[k].list();
  }

  void add(uint32_t e) {
    for (size_t k = 0; k < arity_; ++k) tensors_[k] = lists_[k] != nullptr ? &(*lists_[k])[e] : nullptr;
    if (!is_like_previous(e)) group_ = group_of(e);
    if (group_ < 0)
      plan_.plan.add_ungrouped(std::span(tensors_, arity_));
    else
      plan_.plan.add(static_cast<uint32_t>(group_), std::span(tensors_, arity_), {.word = e});
  }

 private:
  /// -1: none.
  int32_t group_of(uint32_t e) {
    Tensor holders[4];
    operands_.clear();
    for (size_t k = 0; k < arity_; ++k) operands_.push_back(request_.arguments[k].at(e, holders[k]));
    bool ungrouped = false;
    const ops::Resolved call = resolve(request_, operands_, ungrouped);
    plan_.reusable = plan_.reusable && !call.depends_on_values;
    const size_t used = own_ == nullptr ? row(call.row).arity : arity_;
    return ungrouped || !fits_one_kernel(used, call.device) ? -1 : group_for(e, used, call);
  }

  /// Whether one kernel can take the entry's tensors. Its row reads the first `used` arguments.
  bool fits_one_kernel(size_t used, Device device) const {
    const Tensor* first = nullptr;
    for (size_t k = 0; k < arity_; ++k) {
      const Tensor* const numbers = request_.arguments[k].tensor();
      if (numbers != nullptr && numbers->device() != device && !numbers->device().is_cpu()) return false;
      if (tensors_[k] == nullptr) continue;
      if (k >= used) return false;  // the kernel's row does not read it, but it may broadcast
      const Tensor& x = *tensors_[k];
      if (first == nullptr) first = &x;
      if (x.device() != device || !same_layout(*first, x)) return false;
    }
    return first != nullptr;
  }

  /// Whether this entry goes into the previous one's group for the same reasons. Mostly it does, and this is much
  /// cheaper than to resolve it again.
  bool is_like_previous(uint32_t e) const {
    if (group_ < 0 || !plan_.reusable) return false;
    const Tensor* first = nullptr;
    for (size_t k = 0; k < arity_; ++k) {
      if (lists_[k] == nullptr) continue;
      const Tensor &x = *tensors_[k], &before = (*lists_[k])[e - 1];
      if (x.dtype() != before.dtype() || x.device() != before.device() || x.dim() == 0 || before.dim() == 0)
        return false;
      if (first == nullptr) first = &x;
      if (!same_layout(*first, x)) return false;
      if (request_.in_place && k > 0) {
        const ops::OperandOverlap how = ops::operand_overlap(*first, x);
        if (how != ops::OperandOverlap::none &&
            (how != ops::OperandOverlap::same || (own_ != nullptr && !own_->may_read_result)))
          return false;
      }
    }
    return true;
  }

  int32_t group_for(uint32_t e, size_t used, const ops::Resolved& call) {
    // The list's arrays: what is written, then what is read.
    DType dtypes[kernels::kMaxArrays] = {call.result};
    size_t arrays = 1;
    GroupCall own{call, {}};
    uint64_t tag = static_cast<uint64_t>(call.row) | static_cast<uint64_t>(call.compute) << 32;
    const size_t end = own_ != nullptr ? own_->end_read : used;
    for (size_t k = own_ != nullptr ? own_->first_read : 0; k < end; ++k) {
      const Argument& x = request_.arguments[k];
      dtypes[arrays++] = tensors_[k] != nullptr ? tensors_[k]->dtype() : kF64;
      own.whole[k] = x.is_numbers() && !x.numbers()[e].is_floating();
      tag |= static_cast<uint64_t>(own.whole[k]) << (48 + k);
    }
    const uint32_t group = plan_.plan.group(call.device, std::span(dtypes, arrays), tag);
    if (group == plan_.calls.size()) plan_.calls.push_back(own);
    return static_cast<int32_t>(group);
  }

  const Request& request_;
  const ListOperator* const own_;  ///< null for a row of formula/pointwise.def
  OperatorPlan& plan_;
  const size_t arity_;
  const TensorList* lists_[4] = {};
  const Tensor* tensors_[4] = {};  ///< of this entry
  std::vector<Operand> operands_;
  int32_t group_ = -1;  ///< the last entry's; -1: it is ungrouped
};

/// Checks that the written tensors may be written, and lists their storages.
void check_written(const Request& request, OperatorPlan& plan) {
  plan.in_inference = mode(kInferenceMode);
  plan.storages.clear();
  if (!request.in_place) return;
  for (const Tensor& x : leading(request)) {
    door::require_writable(x);
    plan.storages.push_back(&x.storage());
  }
}

}  // namespace

const TensorList& leading(const Request& request) {
  for (const Argument& x : request.arguments)
    if (x.list() != nullptr) return *x.list();
  raise<ValueError>("no list of tensors among the arguments; expected one");
}

std::unique_ptr<OperatorPlan> make_plan(const Request& request, Strategy strategy) {
  const TensorList& self = leading(request);
  auto plan = std::make_unique<OperatorPlan>(
      OperatorPlan{.op = request.op,
                   .in_place = request.in_place,
                   .to = request.to,
                   .kinds = {},
                   .lists = {},
                   .plan = ListPlan(static_cast<int>(request.arguments.size()), arrays_of(request), strategy),
                   .calls = {},
                   .written = {},
                   .storages = {}});
  check_written(request, *plan);
  for (size_t k = 0; k < request.arguments.size(); ++k) {
    plan->kinds[k] = kind_of(request, k, plan->reusable);
    if (const TensorList* list = request.arguments[k].list()) plan->lists[k] = list->body();
  }
  plan->plan.reserve(self.size());
  PlanBuilder builder(request, *plan);
  for (uint32_t e = 0; e < self.size(); ++e) builder.add(e);

  if (!request.in_place) return plan;
  const std::optional<Overlap> found = overlap_of(request, plan->written);
  if (found && found->certain) refuse_overlap();
  if (found) plan->plan.ungroup_all();  // perhaps nothing is shared: entry by entry is right either way
  return plan;
}

bool OperatorPlan::is_for(const Request& request, Strategy strategy) const {
  if (op != request.op || in_place != request.in_place || to != request.to || plan.strategy() != strategy) return false;
  for (size_t k = 0; k < request.arguments.size(); ++k) {
    bool uniform = true;
    if (kind_of(request, k, uniform) != kinds[k] || !uniform) return false;
    if (const TensorList* list = request.arguments[k].list())
      if (lists[k].owner_before(list->body()) || list->body().owner_before(lists[k])) return false;
  }
  return true;
}

bool OperatorPlan::refresh(const Request& request) {
  if (!plan.is_current() || in_inference != mode(kInferenceMode)) return update_addresses(request);
  if (in_place)  // tensors of numbers are not part of the plan
    for (const Argument& x : request.arguments)
      if (x.tensor() != nullptr && std::ranges::find(storages, &x.tensor()->storage()) != storages.end())
        return !overlap_of(request, written);
  return true;
}

bool OperatorPlan::update_addresses(const Request& request) {
  const TensorList& self = leading(request);
  check_written(request, *this);
  std::array<std::span<const Tensor>, 4> roles;
  for (size_t k = 0; k < request.arguments.size(); ++k)
    if (const TensorList* list = request.arguments[k].list()) roles[k] = list->tensors();
  const ListPlan::Change change = plan.refresh(roles);
  if (change == ListPlan::Change::layout) return false;
  if (!in_place) return true;
  // A tensor that moved may now overlap what is written.
  const std::span<const ListPlan::Moved> moved =
      change == ListPlan::Change::none ? std::span<const ListPlan::Moved>() : plan.moved();
  bool compare_all = std::ranges::any_of(moved, [](const ListPlan::Moved& x) { return x.role == 0; });
  for (const Argument& x : request.arguments) compare_all |= x.tensor() != nullptr;
  if (compare_all && overlap_of(request, written)) return false;
  for (const auto& [role, e] : moved) {
    if (!compare_all && written.with(roles[role][e], e)) return false;
    for (const Argument& x : request.arguments.subspan(1)) {
      if (x.list() == nullptr) continue;
      const ops::OperandOverlap own = ops::operand_overlap(self[e], (*x.list())[e]);
      if (own == ops::OperandOverlap::partial || own == ops::OperandOverlap::unknown) return false;
    }
  }
  return true;
}

OperatorPlan& PlanCache::find(const Request& request) {
  const Strategy strategy = current_strategy();
  const auto known = std::ranges::find_if(plans, [&](const auto& plan) { return plan->is_for(request, strategy); });
  if (known != plans.end()) {
    std::unique_ptr<OperatorPlan> plan = std::move(*known);  // gone unless it can be used, or on a throw
    plans.erase(known);
    if (plan->reusable && plan->refresh(request)) {
      plans.push_back(std::move(plan));
      return *plans.back();
    }
  }
  if (plans.size() == kCapacity) plans.erase(plans.begin());
  plans.push_back(make_plan(request, strategy));
  return *plans.back();
}

}  // namespace detail
}  // namespace lorry::foreach
