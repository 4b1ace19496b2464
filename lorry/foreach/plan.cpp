#include "lorry/foreach/plan.h"

#include <algorithm>
#include <numeric>

#include "lorry/ops/array.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/tensor/changes.h"

namespace lorry::foreach {

Operand Argument::at(size_t e, Tensor& room) const {
  if (list_) return (*list_)[e];
  if (each_) return numbers_[e];
  if (tensor_ == nullptr) return number_;
  if (tensor_->dim() == 0) return *tensor_;
  room = tensor_->select(0, static_cast<int64_t>(e));
  return room;
}

namespace detail {
namespace {

/// What of an argument decides a plan, besides the tensors of lists.
uint64_t kind_of(const Request& request, size_t k, bool& keeps) {
  const Argument& x = request.arguments[k];
  const auto of_number = [&](const Scalar& n) -> uint64_t {
    const bool square = request.op == Op::pow && n.to<double>() == 2;  // a row of its own
    return n.is_floating() * 1 + n.is_boolean() * 2 + square * 4;
  };
  if (x.list() != nullptr) return 1;
  if (x.is_number()) return 0x100 + of_number(x.number());
  if (x.is_numbers()) {
    const uint64_t first = of_number(x.numbers()[0]);
    for (const Scalar& n : x.numbers()) keeps = keeps && of_number(n) == first;
    return 0x200 + first;
  }
  const Tensor& t = *x.tensor();
  return 0x300 + static_cast<uint64_t>(t.dtype()) + static_cast<uint64_t>(t.dim()) * 0x1000 +
         t.node()->wrapped_number * 0x10000ull + static_cast<uint64_t>(t.device().type) * 0x100000 +
         static_cast<uint64_t>(t.device().index) * 0x1000000;
}

// ---- memory that is written -----------------------------------------------------------------------------------------

struct Span {
  uintptr_t begin, end;
};
Span span_of(const Tensor& x) {
  const auto begin = reinterpret_cast<uintptr_t>(x.data_ptr());
  return {begin, begin + static_cast<uintptr_t>(x.layout().extent() * size_of(x.dtype()))};
}

/// How what one entry writes lies to the tensors of the others: entries of a list are computed in no order.
enum class Clash { none, interleaved, shared };

Clash worse(Clash a, Clash b) { return a > b ? a : b; }

Clash between(const Tensor& written, const Tensor& other) {
  switch (ops::overlap(written, other)) {
    case ops::Overlap::none:
      return Clash::none;
    case ops::Overlap::unknown:
      return Clash::interleaved;
    default:
      return Clash::shared;
  }
}

/// What is written, by address.
std::vector<Written> in_order_of_addresses(const TensorList& self) {
  std::vector<Written> written(self.size());
  for (uint32_t e = 0; e < self.size(); ++e) {
    const Span span = span_of(self[e]);
    written[e] = {span.begin, span.end, span.end, e};
  }
  if (!std::ranges::is_sorted(written, {}, &Written::begin)) std::ranges::sort(written, {}, &Written::begin);
  for (size_t i = 1; i < written.size(); ++i) written[i].reach = std::max(written[i].reach, written[i - 1].reach);
  return written;
}

/// Entry `entry`'s tensor x against what the others write that begins below the `end`-th address.
Clash clash_below(const TensorList& self, const std::vector<Written>& written, const Tensor& x, uintptr_t begin,
                  uint32_t entry, size_t end) {
  Clash found = Clash::none;
  for (size_t i = end; i-- > 0 && written[i].reach > begin;)
    if (written[i].entry != entry) found = worse(found, between(self[written[i].entry], x));
  return found;
}
Clash clash_with(const TensorList& self, const std::vector<Written>& written, const Tensor& x, uint32_t entry) {
  const Span span = span_of(x);
  const auto end = std::ranges::lower_bound(written, span.end, {}, &Written::begin);
  return clash_below(self, written, x, span.begin, entry, static_cast<size_t>(end - written.begin()));
}

[[gnu::cold, gnu::noinline]] void refuse_sharing() {
  raise<ShapeError>(
      "a tensor of the list that is written shares memory with another entry's; entries are computed in no order; "
      "expected none to; "
      "clone one of them first");
}

/// The tensors of a list against each other.
Clash clash_within(const TensorList& self, std::vector<Written>& written) {
  written = in_order_of_addresses(self);
  Clash found = Clash::none;
  for (size_t i = 1; i < written.size(); ++i)
    if (written[i - 1].reach > written[i].begin)
      found = worse(found, clash_below(self, written, self[written[i].entry], written[i].begin, written[i].entry, i));
  return found;
}

/// Every tensor of every argument against what is written.
Clash clash_of(const Request& request, std::vector<Written>& written) {
  const TensorList& self = leading(request);
  Clash found = clash_within(self, written);
  for (const Argument& x : request.arguments.subspan(1)) {
    if (x.list() != nullptr && !x.list()->is_same(self))
      for (uint32_t e = 0; e < self.size(); ++e) found = worse(found, clash_with(self, written, (*x.list())[e], e));
    if (x.tensor() != nullptr) found = worse(found, clash_with(self, written, *x.tensor(), UINT32_MAX));
  }
  return found;
}

// ---- entries --------------------------------------------------------------------------------------------------------

/// Elements of both lie alike, with no gaps.
bool same_layout(const Tensor& a, const Tensor& b) {
  const Layout &x = a.layout(), &y = b.layout();
  if (x.rank != y.rank || !std::equal(x.sizes, x.sizes + x.rank, y.sizes)) return false;
  return (a.is_contiguous() && b.is_contiguous()) || (x == y && x.is_dense());
}

ops::Resolved resolve(const Request& request, std::span<const Operand> operands, bool& alone) {
  const Operand& first = operands.front();
  switch (request.op) {
    case Op::copy: {
      const Tensor& source = *operands[1].tensor();
      require_defined(source, "a source");
      alone =
          source.device() != first.tensor()->device() || ops::overlap(*first.tensor(), source) != ops::Overlap::none;
      return {{}, first.tensor()->dtype(), kF32, first.tensor()->device()};
    }
    case Op::cast:
      alone = first.tensor()->dtype() == request.to;
      return {{}, request.to, kF32, first.tensor()->device()};
    case Op::fill:
      return {{}, first.tensor()->dtype(), kF32, first.tensor()->device()};
    default:
      break;
  }
  ops::Resolved call = request.in_place ? ops::resolve_into(request.op, *first.tensor(), operands, alone)
                                        : ops::resolve(request.op, operands);
  if (request.in_place) call.result = first.tensor()->dtype();
  alone |= call.converts;
  return call;
}

/// Where argument k stands among a list's arrays, the first of which is written.
int array_of(Op op, size_t k) {
  return op == Op::fill ? 0 : op == Op::copy ? static_cast<int>(k) : static_cast<int>(k) + 1;
}

/// Puts entries into groups, one after the other.
class Maker {
 public:
  Maker(const Request& request, Strategy strategy, Plan& plan)
      : request_(request), strategy_(strategy), plan_(plan), arity_(request.arguments.size()) {
    for (size_t k = 0; k < arity_; ++k) lists_[k] = request.arguments[k].list();
  }

  void add(uint32_t e) {
    if (like_the_last(e)) return place(e);
    Tensor rooms[4];
    operands_.clear();
    for (size_t k = 0; k < arity_; ++k) operands_.push_back(request_.arguments[k].at(e, rooms[k]));
    bool alone = false;
    const ops::Resolved call = resolve(request_, operands_, alone);
    plan_.keeps = plan_.keeps && !call.depends_on_values;
    used_ = is_pointwise() ? row(call.row).arity : arity_;
    if (alone || !together(e, call.device)) {
      last_ = -1;
      plan_.places.emplace_back(-1, static_cast<uint32_t>(plan_.alone.size()));
      plan_.alone.push_back(e);
      return;
    }
    last_ = group_for(e, call);
    place(e);
  }

 private:
  bool is_pointwise() const { return request_.op < static_cast<Op>(kPointwiseCount); }
  const Tensor& tensor(size_t k, uint32_t e) const { return (*lists_[k])[e]; }

  /// Whether one kernel can take the entry's tensors.
  bool together(uint32_t e, Device device) const {
    const Tensor* first = nullptr;
    for (size_t k = 0; k < arity_; ++k) {
      const Tensor* const numbers = request_.arguments[k].tensor();
      if (numbers != nullptr && numbers->device() != device && !numbers->device().is_cpu()) return false;
      if (lists_[k] == nullptr) continue;
      if (k >= used_) return false;  // its row has no use for it, but it may broadcast
      const Tensor& x = tensor(k, e);
      if (first == nullptr) first = &x;
      if (x.device() != device || !same_layout(*first, x)) return false;
    }
    return first != nullptr;
  }

  /// Whether all that was found out about the last entry is true of this one: most are alike, and asking again takes
  /// most of the time.
  bool like_the_last(uint32_t e) const {
    if (last_ < 0 || !plan_.keeps) return false;
    const Tensor* first = nullptr;
    for (size_t k = 0; k < arity_; ++k) {
      if (lists_[k] == nullptr) continue;
      const Tensor &x = tensor(k, e), &before = tensor(k, e - 1);
      if (x.dtype() != before.dtype() || x.device() != before.device() || x.dim() == 0 || before.dim() == 0)
        return false;
      if (first == nullptr) first = &x;
      if (!same_layout(*first, x)) return false;
      if (request_.in_place && k > 0) {
        const ops::Overlap how = ops::overlap(*first, x);
        if (how != ops::Overlap::none && (how != ops::Overlap::same || request_.op == Op::copy)) return false;
      }
    }
    return true;
  }

  int32_t group_for(uint32_t e, const ops::Resolved& call) {
    // The list's arrays: what is written, then what is read.
    DType dtypes[kernels::kMaxArrays] = {call.result};
    size_t arrays = 1;
    bool whole[4] = {};
    for (size_t k = request_.op == Op::copy ? 1 : 0; k < used_ && request_.op != Op::fill; ++k) {
      const Argument& x = request_.arguments[k];
      dtypes[arrays++] = lists_[k] != nullptr ? tensor(k, e).dtype() : kF64;
      whole[k] = x.is_numbers() && !x.numbers()[e].is_floating();
    }
    const auto is_mine = [&](const Group& g) {
      if (g.call.device != call.device || g.call.row != call.row || g.call.compute != call.compute ||
          !std::equal(whole, whole + 4, g.whole))
        return false;
      for (size_t k = 0; k < arrays; ++k)
        if (g.list.dtype(static_cast<int>(k)) != dtypes[k]) return false;
      return static_cast<size_t>(g.list.arrays()) == arrays;
    };
    auto group = std::ranges::find_if(plan_.groups, is_mine);
    if (group == plan_.groups.end()) {
      plan_.groups.push_back(
          {.call = call, .list = kernels::List(call.device, std::span(dtypes, arrays), strategy_), .entries = {}});
      group = plan_.groups.end() - 1;
      std::copy_n(whole, 4, group->whole);
    }
    return static_cast<int32_t>(group - plan_.groups.begin());
  }

  void place(uint32_t e) {
    Group& group = plan_.groups[static_cast<size_t>(last_)];
    kernels::ListEntry entry;
    entry.word = e;
    for (size_t k = 0; k < used_; ++k) {
      if (lists_[k] == nullptr) continue;
      const Tensor& x = tensor(k, e);
      entry.count = x.numel();
      if (request_.in_place && k == 0) entry.at[0] = x.data_ptr();
      if (const int array = array_of(request_.op, k); array < group.list.arrays()) entry.at[array] = x.data_ptr();
    }
    plan_.places.emplace_back(last_, static_cast<uint32_t>(group.entries.size()));
    group.entries.push_back(e);
    group.list.add(entry);
  }

  const Request& request_;
  const Strategy strategy_;
  Plan& plan_;
  const size_t arity_;
  const TensorList* lists_[4] = {};
  std::vector<Operand> operands_;
  size_t used_ = 0;    ///< operands that the last entry's row reads
  int32_t last_ = -1;  ///< the last entry's group; -1 for none
};

}  // namespace

namespace {

int64_t address(const Tensor& x) { return static_cast<int64_t>(reinterpret_cast<uintptr_t>(x.data_ptr())); }
/// Rank, dtype and device in a number.
int64_t kind(const Tensor& x) {
  const Device device = x.device();
  return x.dim() | static_cast<int64_t>(x.dtype()) << 8 | static_cast<int64_t>(device.type) << 16 |
         static_cast<int64_t>(device.index) << 24;
}

}  // namespace

void Facts::reserve(const TensorList& more) {
  size_t words = words_.size();
  for (const Tensor& x : more) words += 2 + 2 * static_cast<size_t>(x.dim());
  words_.reserve(words);
}

void Facts::add(const Tensor& x) {
  const Layout& layout = x.layout();
  words_.insert(words_.end(), {address(x), kind(x)});
  words_.insert(words_.end(), layout.sizes, layout.sizes + layout.rank);
  words_.insert(words_.end(), layout.strides, layout.strides + layout.rank);
}

Facts::Since Facts::look(size_t& at, const Tensor& x) {
  int64_t* const known = &words_[at];
  if (known[1] != kind(x)) return Since::other;
  const Layout& layout = x.layout();
  for (int d = 0; d < layout.rank; ++d)
    if (known[2 + d] != layout.sizes[d] || known[2 + layout.rank + d] != layout.strides[d]) return Since::other;
  at += 2 + 2 * static_cast<size_t>(layout.rank);
  const int64_t now = address(x);
  if (known[0] == now) return Since::same;
  known[0] = now;
  return Since::moved;
}

void require_separate(const TensorList& x) {
  std::vector<Written> written;
  if (clash_within(x, written) == Clash::shared) refuse_sharing();
}

const TensorList& leading(const Request& request) {
  for (const Argument& x : request.arguments)
    if (x.list() != nullptr) return *x.list();
  raise<ValueError>("no list of tensors among the arguments; expected one");
}

namespace {

/// Notes what is written, and that it may be.
void look_at_written(const Request& request, Plan& plan) {
  plan.in_inference = mode(kInferenceMode);
  plan.storages.clear();
  if (!request.in_place) return;
  for (const Tensor& x : leading(request)) {
    door::require_writable(x);
    plan.storages.push_back(&x.storage());
  }
}

}  // namespace

std::unique_ptr<Plan> make_plan(const Request& request, Strategy strategy) {
  const TensorList& self = leading(request);
  auto plan = std::make_unique<Plan>();
  plan->looked = last_reshaped();
  look_at_written(request, *plan);
  plan->op = request.op, plan->in_place = request.in_place, plan->to = request.to, plan->strategy = strategy;
  for (size_t k = 0; k < request.arguments.size(); ++k) {
    plan->kinds[k] = kind_of(request, k, plan->keeps);
    if (const TensorList* list = request.arguments[k].list()) {
      plan->lists[k] = list->body();
      plan->facts.reserve(*list);
      for (const Tensor& x : *list) plan->facts.add(x);
    }
  }
  require<ValueError>(self.size() <= kernels::kMaxWord, "too many tensors; got {}; expected at most {}", self.size(),
                      kernels::kMaxWord);
  plan->places.reserve(self.size());
  Maker maker(request, strategy, *plan);
  for (uint32_t e = 0; e < self.size(); ++e) maker.add(e);

  if (!request.in_place) return plan;
  switch (clash_of(request, plan->written)) {
    case Clash::none:
      break;
    case Clash::shared:
      refuse_sharing();
      break;
    case Clash::interleaved:  // elements may all be different: in order nothing can go wrong
      plan->groups.clear();
      plan->places.assign(self.size(), {-1, 0});
      plan->alone.resize(self.size());
      std::iota(plan->alone.begin(), plan->alone.end(), 0u);
  }
  return plan;
}

bool Plan::is_for(const Request& request, Strategy now) const {
  if (op != request.op || in_place != request.in_place || to != request.to || strategy != now) return false;
  for (size_t k = 0; k < request.arguments.size(); ++k) {
    bool uniform = true;
    if (kind_of(request, k, uniform) != kinds[k] || !uniform) return false;
    if (const TensorList* list = request.arguments[k].list())
      if (lists[k].owner_before(list->body()) || list->body().owner_before(lists[k])) return false;
  }
  return true;
}

bool Plan::holds(const Request& request) {
  if (looked != last_reshaped() || in_inference != mode(kInferenceMode)) return takes_over(request);
  if (in_place)  // numbers in tensors come and go
    for (const Argument& x : request.arguments)
      if (x.tensor() != nullptr && std::ranges::find(storages, &x.tensor()->storage()) != storages.end())
        return clash_of(request, written) == Clash::none;
  return true;
}

bool Plan::takes_over(const Request& request) {
  const TensorList& self = leading(request);
  const uint64_t now = last_reshaped();
  look_at_written(request, *this);
  size_t at = 0;
  bool own_moved = false;
  std::vector<std::pair<size_t, uint32_t>> moved;  // argument and entry
  for (size_t k = 0; k < request.arguments.size(); ++k) {
    if (request.arguments[k].list() == nullptr) continue;
    const std::vector<Tensor>& tensors = request.arguments[k].list()->tensors();
    for (uint32_t e = 0; e < tensors.size(); ++e) {
      const Facts::Since since = facts.look(at, tensors[e]);
      if (since == Facts::Since::other) return false;
      if (since == Facts::Since::same) continue;
      own_moved |= k == 0;
      moved.emplace_back(k, e);
    }
  }
  for (const auto& [k, e] : moved) {
    const auto [group, place] = places[e];
    if (group < 0) continue;
    kernels::List& list = groups[static_cast<size_t>(group)].list;
    void* const data = (*request.arguments[k].list())[e].data_ptr();
    if (in_place && k == 0) list.move(place, 0, data);
    if (const int array = array_of(op, k); array < list.arrays()) list.move(place, array, data);
  }
  looked = now;
  if (!in_place) return true;
  // What has moved may have moved into what is written.
  bool all = own_moved;
  for (const Argument& x : request.arguments) all |= x.tensor() != nullptr;
  if (all && clash_of(request, written) != Clash::none) return false;
  for (const auto& [k, e] : moved) {
    if (!all && clash_with(self, written, (*request.arguments[k].list())[e], e) != Clash::none) return false;
    for (const Argument& x : request.arguments.subspan(1)) {
      if (x.list() == nullptr) continue;
      const ops::Overlap own = ops::overlap(self[e], (*x.list())[e]);
      if (own == ops::Overlap::partial || own == ops::Overlap::unknown) return false;
    }
  }
  return true;
}

Plan& Kept::find(const Request& request) {
  const Strategy strategy = current_strategy();
  const auto known = std::ranges::find_if(plans, [&](const auto& plan) { return plan->is_for(request, strategy); });
  if (known != plans.end()) {
    std::unique_ptr<Plan> plan = std::move(*known);  // gone when it does not hold, or throws
    plans.erase(known);
    if (plan->keeps && plan->holds(request)) {
      plans.push_back(std::move(plan));
      return *plans.back();
    }
  }
  if (plans.size() == kMost) plans.erase(plans.begin());
  plans.push_back(make_plan(request, strategy));
  return *plans.back();
}

}  // namespace detail
}  // namespace lorry::foreach
