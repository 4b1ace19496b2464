#include "lorry/profile/recorded_calls.h"

#include <algorithm>
#include <memory>

#include "lorry/foreach/run_row.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"

namespace lorry::profile {
namespace {

constexpr size_t kLeastLoop = 8;     ///< tensors of a loop: as the finding counts them
constexpr size_t kLongestBody = 12;  ///< calls for each tensor

/// Whether a path is one that a finding names; in the finding, "*" is any number.
bool is_named(std::string_view path, std::string_view finding) {
  size_t i = 0, k = 0;
  while (i < path.size() && k < finding.size()) {
    if (finding[k] == '*') {
      const size_t begin = i;
      while (i < path.size() && path[i] >= '0' && path[i] <= '9') ++i;
      if (i == begin) return false;
      ++k;
    } else if (path[i++] != finding[k++]) {
      return false;
    }
  }
  return i == path.size() && k == finding.size();
}
bool is_of(const ProgramView& p, const SpanRecord& x, const Finding& finding) {
  return p.line(x) == finding.line && is_named(p.path(x), finding.path);
}

Tensor like(const OperandRecord& x) {
  const Options options{x.dtype, x.device};
  const Tensor made = x.contiguous ? empty(x.sizes, options) : empty_strided(x.sizes, x.strides, options);
  made.fill_(1);
  return made;
}

/// A call whose tensors are its own.
class Call {
 public:
  Call(const SpanRecord& span, const OperandList& list) : op_(span.op), in_place_(span.in_place) {
    for (size_t i = 0; i < static_cast<size_t>(list.inputs); ++i) {
      const OperandRecord& x = list.operands[i];
      tensors_.push_back(x.is_number ? Tensor() : like(x));
    }
    if (op_ == Op::cast) attributes_.emplace_back(list.operands.back().dtype);
  }
  void run() const {
    std::vector<door::Input> inputs;
    for (const Tensor& x : tensors_) inputs.push_back(x.defined() ? door::Input(&x) : door::Input(&kOne));
    do_not_optimize(door::run({.op = op_, .in_place = in_place_, .inputs = inputs, .attributes = attributes_}));
  }
  Op op() const { return op_; }
  bool in_place() const { return in_place_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<door::Attribute>& attributes() const { return attributes_; }
  static inline const Operand kOne{1.0};

 private:
  Op op_;
  bool in_place_;
  std::vector<Tensor> tensors_;  ///< undefined: a number
  std::vector<door::Attribute> attributes_;
};

/// Calls of one operator as one call over lists.
class ListCall {
 public:
  /// The calls that stand at `first`, `first + stride`, ...
  ListCall(const std::vector<Call>& calls, size_t first, size_t stride)
      : op_(foreach_of(calls[first].op())), in_place_(calls[first].in_place()) {
    std::vector<int64_t> counts;
    for (size_t argument = 0; argument < calls[first].tensors().size(); ++argument) {
      const bool is_number = !calls[first].tensors()[argument].defined();
      for (size_t i = first; i < calls.size() && !is_number; i += stride)
        tensors_.push_back(calls[i].tensors()[argument]);
      if (is_number) tensors_.emplace_back();
      counts.push_back(is_number ? 0 : static_cast<int64_t>((calls.size() - first + stride - 1) / stride));
    }
    attributes_.emplace_back(counts);
    for (const door::Attribute& own : calls[first].attributes()) attributes_.push_back(own);
  }
  void run() const {
    std::vector<door::Input> inputs;
    for (const Tensor& x : tensors_) inputs.push_back(x.defined() ? door::Input(&x) : door::Input(&Call::kOne));
    const std::span<const Tensor> written(tensors_.data(), static_cast<size_t>(count()));
    do_not_optimize(foreach::run({.op = op_,
                                  .in_place = in_place_,
                                  .inputs = inputs,
                                  .outputs = in_place_ ? written : std::span<const Tensor>(),
                                  .attributes = attributes_,
                                  .run = foreach::run}));
  }

 private:
  int64_t count() const { return std::get<std::vector<int64_t>>(attributes_.front()).front(); }

  Op op_;
  bool in_place_;
  std::vector<Tensor> tensors_;
  std::vector<door::Attribute> attributes_;
};

/// Where a loop begins among the calls, how many calls its body has, and how often it runs.
struct Loop {
  size_t begin = 0, body = 0, tensors = 0;
};

/// The first loop of the finding's place.
Loop find_loop(const ProgramView& p, const std::vector<int32_t>& calls, const Finding& finding) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const SpanRecord& x = p.span(calls[i]);
    if (x.kind != SpanKind::call || foreach_of(x.op) == Op::count || !is_of(p, x, finding)) continue;
    for (size_t body = 1; body <= kLongestBody; ++body) {
      size_t end = i + body;
      while (end < calls.size()) {
        const SpanRecord &was = p.span(calls[end - body]), &now = p.span(calls[end]);
        if (was.op != now.op || was.line != now.line || foreach_of(now.op) == Op::count) break;
        ++end;
      }
      if ((end - i) / body >= kLeastLoop) return {i, body, (end - i) / body};
    }
  }
  return {};
}

/// Whether one call over lists can take the place of these: each argument is a number in all of them, or in none.
bool are_alike(const std::vector<Call>& calls, size_t first, size_t stride) {
  for (size_t i = first; i < calls.size(); i += stride) {
    if (calls[i].tensors().size() != calls[first].tensors().size() || calls[i].in_place() != calls[first].in_place())
      return false;
    for (size_t k = 0; k < calls[i].tensors().size(); ++k)
      if (calls[i].tensors()[k].defined() != calls[first].tensors()[k].defined()) return false;
  }
  return true;
}

}  // namespace

std::optional<CallPair> loop_and_list(const ProgramView& p, const Finding& finding) {
  std::vector<int32_t> calls;
  for (const int32_t i : p.calls)
    if (p.span(i).kind == SpanKind::call && row(p.span(i).op).kind != OpKind::view) calls.push_back(i);
  const Loop loop = find_loop(p, calls, finding);
  if (loop.tensors == 0) return std::nullopt;
  const auto each = std::make_shared<std::vector<Call>>();
  for (size_t i = 0; i < loop.body * loop.tensors; ++i) {
    const SpanRecord& x = p.span(calls[loop.begin + i]);
    const OperandList* const list = p.operands(x);
    if (list == nullptr || list->operands.empty()) return std::nullopt;
    each->emplace_back(x, *list);
  }
  const auto lists = std::make_shared<std::vector<ListCall>>();
  for (size_t k = 0; k < loop.body; ++k) {
    if (!are_alike(*each, k, loop.body)) return std::nullopt;
    lists->emplace_back(*each, k, loop.body);
  }
  return CallPair{.now =
                      [each] {
                        for (const Call& call : *each) call.run();
                      },
                  .then =
                      [lists] {
                        for (const ListCall& call : *lists) call.run();
                      }};
}

std::optional<CallPair> pageable_and_pinned(const ProgramView& p, const Finding& finding) {
  const OperandRecord* from = nullptr;
  Device to = kCPU;
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    const OperandList* const list = p.operands(x);
    if ((x.op != Op::transfer && x.op != Op::copy) || list == nullptr || !is_of(p, x, finding)) continue;
    const auto source = static_cast<size_t>(x.op == Op::copy ? 1 : 0);
    const auto target = x.op == Op::copy ? size_t{0} : static_cast<size_t>(list->inputs);
    if (source >= list->operands.size() || target >= list->operands.size()) continue;
    const OperandRecord &a = list->operands[source], &b = list->operands[target];
    if (a.is_number || b.is_number || a.device.type == b.device.type) continue;
    const auto numel = [](const OperandRecord& operand) {
      int64_t count = 1;
      for (const int64_t n : operand.sizes) count *= n;
      return count;
    };
    if (from == nullptr || numel(a) > numel(*from)) from = &a, to = b.device;
  }
  if (from == nullptr) return std::nullopt;
  const Tensor source = ones(from->sizes, {from->dtype, from->device});
  const Tensor pinned = to.is_cuda() ? source.pin_memory() : source;
  return CallPair{.now = [=] { do_not_optimize(source.to(to)); },
                  .then = [=] { do_not_optimize(pinned.to(to, true)); }};  // to the host: into pinned memory
}

}  // namespace lorry::profile
