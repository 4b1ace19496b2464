// What single tensors tell: made on the host, copied through pageable memory, made contiguous, or made anew.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lorry/base/units.h"
#include "lorry/profile/finding_list.h"

namespace lorry::profile {
namespace {

std::string size_text(int64_t bytes) { return quantity(static_cast<double>(bytes), "B"); }

bool is_creation(Op op) {
  switch (op) {
    case Op::arange:
    case Op::linspace:
    case Op::rand:
    case Op::randn:
    case Op::randint:
    case Op::randperm:
    case Op::fill:
    case Op::uniform:
    case Op::normal:
      return true;
    default:
      return false;
  }
}

class Tensors {
 public:
  Tensors(const ProgramView& p, const Claims& claims) : p_(p), claims_(claims), list_(p) {
    for (const int32_t i : p_.calls) {
      const SpanRecord& x = p_.span(i);
      const OperandList* list = p_.operands(x);
      if (list == nullptr) continue;
      for (size_t k = 0; k < list->operands.size(); ++k) {
        const uint64_t id = p_.storage(x, k);
        if (id == 0) continue;
        if (k < static_cast<size_t>(list->inputs))
          last_read_[id] = i, ++reads_[id];
        else if (!made_.contains(id))
          made_[id] = i;
        if (x.in_place && k == 0 && !made_.contains(id)) made_.emplace(id, i);
      }
    }
  }

  void find(std::vector<Finding>& to) {
    for (const int32_t i : p_.calls) {
      const SpanRecord& x = p_.span(i);
      const OperandList* list = p_.operands(x);
      if (x.kind != SpanKind::call || list == nullptr) continue;
      if (const std::optional<LinkCopy> copy = p_.link_copy(x)) find_transfer(x, *copy);
      if (x.op == Op::clone) find_copy(i, x, *list);
      if (row(x.op).kind == OpKind::pointwise && !x.in_place && !claims_.has(i)) find_update(i, x, *list);
    }
    list_.move_to(to);
  }

 private:
  void find_transfer(const SpanRecord& x, const LinkCopy& copy) {
    if (p_.here == nullptr) return;
    const bool to_device = copy.is_to_device();
    const int64_t bytes = bytes_of(*copy.from);
    const double taken = std::max(static_cast<double>(x.device_ns), p_.call_host_ns(x));
    const auto made = made_.find(copy.source);
    if (to_device && made != made_.end() && reads_[copy.source] <= 2 && is_creation(p_.span(made->second).op)) {
      Finding& found = list_.at(Finding::Kind::host_tensors, x);
      const double creation = p_.call_host_ns(p_.span(made->second));
      const double then = p_.least(bytes, 0, kF32).memory + p_.call_ns();
      found.time_ns += taken + creation, found.gain_ns += std::max(0.0, taken + creation - then);
      found.what = fmt::format("tensors of {} are made on the host by {} and copied to {}", size_text(bytes),
                               lorry::name(p_.span(made->second).op), to_string(copy.to->device));
      found.cure = fmt::format("make them there: pass {{.device = {}}} to the function that makes them",
                               to_string(copy.to->device));
      return;
    }
    const double rate = to_device ? p_.here->link_to_device_bytes_per_s : p_.here->link_to_host_bytes_per_s;
    if (!copy.is_pageable() || rate <= 0) return;
    Finding& found = list_.at(Finding::Kind::pageable, x);
    found.time_ns += taken, found.gain_ns += std::max(0.0, taken - 1e9 * static_cast<double>(bytes) / rate);
    found.can_apply = true;
    found.what = fmt::format("copies of {} {} pageable memory", size_text(bytes), to_device ? "from" : "to");
    found.cure = "use pinned memory (Tensor::pin_memory) and non_blocking copies: the link's full rate, and no wait";
  }

  /// A contiguous copy of a strided tensor, which one call reads.
  void find_copy(int32_t i, const SpanRecord& x, const OperandList& list) {
    if (list.inputs < 1 || list.operands.size() < 2) return;
    const OperandRecord &from = list.operands[0], &to = list.operands[static_cast<size_t>(list.inputs)];
    const uint64_t id = p_.storage(x, static_cast<size_t>(list.inputs));
    if (from.is_number || from.contiguous || !to.contiguous || reads_[id] != 1) return;
    const auto reader = last_read_.find(id);
    if (reader == last_read_.end() || reader->second <= i) return;
    const SpanRecord& next = p_.span(reader->second);
    const bool takes_strides = next.kind == SpanKind::call &&
                               (row(next.op).kind == OpKind::pointwise || row(next.op).flops.kind == Flops::input ||
                                row(next.op).flops.kind == Flops::product);
    if (!takes_strides) return;
    Finding& found = list_.at(Finding::Kind::contiguous, x);
    found.time_ns += p_.taken_ns(x), found.gain_ns += p_.taken_ns(x), found.gain_bytes += bytes_of(to);
    found.what = fmt::format("a tensor of {} is made contiguous for {}, which takes any strides",
                             size_text(bytes_of(to)), lorry::name(next.op));
    found.cure = "leave the copy out";
  }

  /// A result in new memory, though an operand of the same kind is not needed any more.
  void find_update(int32_t i, const SpanRecord& x, const OperandList& list) {
    if (list.operands.size() <= static_cast<size_t>(list.inputs)) return;
    const OperandRecord& to = list.operands[static_cast<size_t>(list.inputs)];
    const auto target = made_.find(p_.storage(x, static_cast<size_t>(list.inputs)));
    if (bytes_of(to) < 1 << 20 || target == made_.end() || target->second != i) return;  // small, or not new
    for (size_t k = 0; k < static_cast<size_t>(list.inputs); ++k) {
      const OperandRecord& from = list.operands[k];
      const uint64_t id = p_.storage(x, k);
      if (from.is_number || from.requires_grad || from.dtype != to.dtype || from.sizes != to.sizes ||
          !made_.contains(id))
        continue;
      if (made_.at(id) >= i || last_read_.at(id) != i) continue;
      Finding& found = list_.at(Finding::Kind::out_of_place, x);
      found.time_ns += p_.taken_ns(x);
      found.gain_bytes = std::max(found.gain_bytes, bytes_of(to));
      // A processor reads memory before it writes it, so a third of the traffic is that of the new tensor.
      if (!p_.on_gpu) found.gain_ns += std::min(p_.taken_ns(x) / 3, p_.least(x).streamed / 2);
      found.what = fmt::format("{} makes a new tensor of {} though its operand is not used again", lorry::name(x.op),
                               size_text(bytes_of(to)));
      found.cure =
          fmt::format("write in place ({}_): no new memory, and a third less of it is moved", lorry::name(x.op));
      return;
    }
  }

  const ProgramView& p_;
  const Claims& claims_;
  FindingList list_;
  std::unordered_map<uint64_t, int32_t> made_, last_read_;  ///< by storage: the call
  std::unordered_map<uint64_t, int> reads_;
};

}  // namespace

void find_in_tensors(const ProgramView& p, const Claims& claims, std::vector<Finding>& to) {
  Tensors(p, claims).find(to);
}

}  // namespace lorry::profile
