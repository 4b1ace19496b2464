#include "lorry/profile/recorded_calls.h"

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "lorry/foreach/run_row.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"
#include "lorry/profile/finding_list.h"
#include "lorry/profile/loops.h"

namespace lorry::profile {
namespace {

bool is_of(const ProgramView& p, const SpanRecord& x, const Finding& finding) {
  return p.line(x) == finding.line && without_numbers(p.path(x)) == without_numbers(finding.path);
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

/// The first loop of the finding's place.
Loop find_loop(const ProgramView& p, const std::vector<int32_t>& calls, const Finding& finding) {
  const Claims none(p);
  for (size_t i = 0; i < calls.size(); ++i) {
    if (!is_of(p, p.span(calls[i]), finding)) continue;
    if (const Loop loop = loop_at(p, calls, i, none); loop.body > 0) return loop;
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
  const std::vector<int32_t> calls = sequence_of(p);
  const Loop loop = find_loop(p, calls, finding);
  if (loop.body == 0) return std::nullopt;
  const auto each = std::make_shared<std::vector<Call>>();
  for (size_t i = loop.begin; i < loop.end(); ++i) {
    const SpanRecord& x = p.span(calls[i]);
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
                      },
                  .count = 1};
}

std::optional<CallPair> pageable_and_pinned(const ProgramView& p, const Finding& finding) {
  struct Copy {
    Tensor from, pinned;
    Device to;
    int64_t count = 0;
  };
  const auto copies = std::make_shared<std::vector<Copy>>();
  std::unordered_map<const OperandRecord*, size_t> numbers;  // equal lists of operands are recorded once
  int64_t count = 0;
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    const std::optional<LinkCopy> copy = p.link_copy(x);
    if (!copy || !is_of(p, x, finding) || !copy->is_pageable()) continue;
    const auto [at, is_new] = numbers.try_emplace(copy->from, copies->size());
    if (is_new) {
      const Tensor from = like(*copy->from);
      copies->push_back({from, copy->is_to_device() ? from.pin_memory() : from, copy->to->device});
    }
    ++(*copies)[at->second].count, ++count;
  }
  if (count == 0) return std::nullopt;
  return CallPair{.now =
                      [copies] {
                        for (const Copy& x : *copies)
                          for (int64_t i = 0; i < x.count; ++i) do_not_optimize(x.from.to(x.to));
                      },
                  .then =  // to the host: into pinned memory
                  [copies] {
                    for (const Copy& x : *copies)
                      for (int64_t i = 0; i < x.count; ++i) do_not_optimize(x.pinned.to(x.to, true));
                  },
                  .count = count};
}

}  // namespace lorry::profile
