// Executes a request: makes the results, brings numbers to the device, and calls the kernel of each group.

#include <algorithm>

#include "lorry/device/device.h"
#include "lorry/foreach/list_operators.h"
#include "lorry/foreach/run_row.h"
#include "lorry/memory/upload.h"
#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"

namespace lorry::foreach::detail {
namespace {

/// All lists have one length, and so have lists of numbers.
void require_arguments(const Request& request) {
  const size_t n = leading(request).size();
  for (const Argument& x : request.arguments) {
    if (x.list() != nullptr) {
      require<ValueError>(x.list()->size() == n,
                          "lists of different lengths; got {} and {}; expected a tensor for each", n, x.list()->size());
      for (const Tensor& t : *x.list()) require_defined(t, "an operand");
    } else if (x.is_numbers()) {
      require<ValueError>(x.numbers().size() == n, "{} numbers for {} tensors; expected one for each",
                          x.numbers().size(), n);
    } else if (const Tensor* t = x.tensor()) {
      require_defined(*t, "an operand");
      const bool fits = t->dim() == 0 || (t->dim() == 1 && t->numel() == static_cast<int64_t>(n));
      require<ShapeError>(
          fits, "a tensor of numbers does not fit {} tensors; got {}; expected a 0-d tensor, or one of {} numbers", n,
          *t, n);
    }
  }
}

/// Whether gradients are recorded for an entry: then each entry's operator is called alone.
bool is_differentiated(const Request& request) {
  if (!mode(kGradMode)) return false;
  for (const Argument& x : request.arguments) {
    if (x.tensor() != nullptr && x.tensor()->requires_grad()) return true;
    if (x.list() != nullptr)
      for (const Tensor& t : *x.list())
        if (t.requires_grad()) return true;
  }
  return false;
}

/// Entry e's operator, as a user would call it.
Tensor call_operator(const Request& request, size_t e) {
  Tensor holders[4];
  std::vector<Operand> x;
  for (size_t k = 0; k < request.arguments.size(); ++k) x.push_back(request.arguments[k].at(e, holders[k]));
  if (const ListOperator* own = list_operator(request.op)) return own->call(request, x);
  return request.in_place ? ops::call_in_place(request.op, *x[0].tensor(), std::span(x).subspan(1))
                          : ops::call(request.op, x);
}

/// The numbers of one argument, in memory that the device's kernels can read.
class Numbers {
 public:
  Numbers(const Argument& x, Device device, bool whole) {
    if (x.tensor() != nullptr) {
      tensor_ = x.tensor()->to(device).contiguous();
    } else {
      const size_t n = x.numbers().size();
      tensor_ = empty({static_cast<int64_t>(n)}, {whole ? kI64 : kF64, device});
      std::vector<double> reals;
      std::vector<int64_t> wholes;
      for (const Scalar& number : x.numbers())
        whole ? wholes.push_back(number.to<int64_t>()) : reals.push_back(number.to<double>());
      const void* const from = whole ? static_cast<const void*>(wholes.data()) : reals.data();
      memory::upload(tensor_.data_ptr(), device, from, tensor_.nbytes(), current_stream(device));
    }
  }
  kernels::ListOperand operand() const {
    kernels::ListOperand x;
    x.kind = kernels::ListOperand::Kind::values;
    x.dtype = tensor_.dtype();
    x.step = tensor_.dim() > 0 ? 1 : 0;
    x.values = tensor_.data_ptr();
    return x;
  }

 private:
  Tensor tensor_;
};

bool same_number(const Scalar& a, const Scalar& b) {
  if (a.is_floating() != b.is_floating()) return false;
  return a.is_floating() ? a.to<double>() == b.to<double>() : a.to<int64_t>() == b.to<int64_t>();
}

void launch(const Request& request, const GroupCall& group, const kernels::List& list) {
  const Device device = group.resolved.device;
  const kernels::ForeachKernels& kernels = *kernels::backend(device).foreach;
  const Stream stream = current_stream(device);
  if (const ListOperator* own = list_operator(request.op)) return own->launch(request, list, kernels, stream);
  kernels::ListPointwiseCall call{.op = group.resolved.row,
                                  .compute = group.resolved.compute,
                                  .arity = row(group.resolved.row).arity,
                                  .list = list,
                                  .in = {}};
  std::vector<Numbers> held;  // until the kernel is enqueued; then memory is freed in the order of the stream
  held.reserve(4);
  for (int k = 0; k < call.arity; ++k) {
    const Argument& x = request.arguments[static_cast<size_t>(k)];
    if (x.list() != nullptr) continue;
    if (x.is_number()) {
      call.in[k] = number_operand(x.number());
    } else if (x.is_numbers() &&
               std::ranges::all_of(x.numbers(), [&](const Scalar& n) { return same_number(n, x.numbers()[0]); })) {
      call.in[k] = number_operand(x.numbers()[0]);
    } else if (x.tensor() != nullptr && x.tensor()->dim() == 0 && x.tensor()->device() != device) {
      call.in[k] = number_operand(x.tensor()->item());  // it is on the CPU
    } else {
      held.emplace_back(x, device, group.whole[k]);
      call.in[k] = held.back().operand();
    }
  }
  kernels.pointwise(call, stream);
}

/// A request as listeners see it (ops/dispatch/operators.def, "lists").
class AnnouncedRequest {
 public:
  explicit AnnouncedRequest(const Request& request) {
    size_t numbers = 0;
    for (const Argument& x : request.arguments) numbers += x.is_numbers() ? x.numbers().size() : 1;
    numbers_.reserve(numbers);  // inputs refer to them
    std::vector<int64_t> counts;
    for (const Argument& x : request.arguments) {
      const size_t before = inputs_.size();
      if (x.list() != nullptr)
        for (const Tensor& t : *x.list()) inputs_.emplace_back(&t);
      else if (x.is_numbers())
        for (const Scalar& number : x.numbers()) add(number);
      counts.push_back(static_cast<int64_t>(inputs_.size() - before));
      if (x.is_number()) add(x.number());
      if (x.tensor() != nullptr) inputs_.emplace_back(x.tensor());
    }
    attributes_.emplace_back(std::move(counts));
    if (request.op == Op::cast) attributes_.emplace_back(request.to);
  }
  std::span<const door::Input> inputs() const { return inputs_; }
  std::span<const door::Attribute> attributes() const { return attributes_; }

 private:
  void add(const Scalar& number) { inputs_.emplace_back(numbers_.emplace_back(number)); }

  std::vector<door::Input> inputs_;
  std::vector<Operand> numbers_;
  std::vector<door::Attribute> attributes_;
};

void run_plan(const Request& request, std::vector<Tensor>* results) {
  const TensorList& self = leading(request);
  PlanCache& cache = *self.body()->plans;
  const std::scoped_lock lock(cache.mutex);
  OperatorPlan& plan = cache.find(request);
  for (size_t g = 0; g < plan.plan.groups().size(); ++g) {
    const std::vector<uint32_t>& entries = plan.plan.groups()[g].entries;
    kernels::List& list = plan.plan.list(g);
    for (size_t i = 0; results != nullptr && i < entries.size(); ++i) {
      Tensor& result = (*results)[entries[i]];
      result = empty_like(self[entries[i]], plan.calls[g].resolved.result);
      list.move(i, 0, result.data_ptr());
    }
    launch(request, plan.calls[g], list);
    if (request.in_place)
      for (const uint32_t e : entries) plan.storages[e]->written_by(t_operator);
  }
  for (const uint32_t e : plan.plan.ungrouped()) {
    Tensor result = call_operator(request, e);
    if (results != nullptr) (*results)[e] = std::move(result);
  }
}

}  // namespace

void execute(const Request& request, std::vector<Tensor>* results) {
  const Running running(name(request.op));
  require_arguments(request);
  const TensorList& self = leading(request);
  if (self.empty()) return;
  if (results != nullptr) results->resize(self.size());
  if (is_differentiated(request)) {
    for (size_t e = 0; e < self.size(); ++e) {
      Tensor result = call_operator(request, e);
      if (results != nullptr) (*results)[e] = std::move(result);
    }
    return;
  }
  if (!door::heard(door::Inputs({}))) [[likely]]
    return run_plan(request, results);
  const AnnouncedRequest call(request);
  const Op op = foreach_of(request.op);
  if (request.in_place) {
    door::Announced announced(op, true, call.inputs(), self.tensors(), call.attributes(), foreach::run);
    run_plan(request, nullptr);
    announced.finish();
  } else {
    door::Announced announced(op, false, call.inputs(), nullptr, call.attributes(), foreach::run);
    run_plan(request, results);
    announced.finish(*results);
  }
}

}  // namespace lorry::foreach::detail
