#include "lorry/profile/loops.h"

#include <algorithm>

namespace lorry::profile {
namespace {

constexpr size_t kLeastTensors = 8;
constexpr size_t kLongestBody = 12;

bool reads(const ProgramView& p, const SpanRecord& x, uint64_t storage) {
  const OperandList* list = p.operands(x);
  for (size_t i = 0; list != nullptr && storage != 0 && i < static_cast<size_t>(list->inputs); ++i)
    if (p.storage(x, i) == storage) return true;
  return false;
}

/// Whether x and y read different tensors; a step that is repeated reads the same.
bool reads_others(const ProgramView& p, const SpanRecord& x, const SpanRecord& y) {
  const OperandList *list = p.operands(x), *other = p.operands(y);
  if (list == nullptr || other == nullptr) return false;
  for (size_t i = 0; i < static_cast<size_t>(std::min(list->inputs, other->inputs)); ++i)
    if (p.storage(x, i) != p.storage(y, i)) return true;
  return false;
}

/// Whether y is the same call as x, on other tensors.
bool is_next(const ProgramView& p, const SpanRecord& x, const SpanRecord& y) {
  if (x.kind != SpanKind::call || x.op != y.op || x.line != y.line || foreach_of(x.op) == Op::count) return false;
  const uint64_t was = p.written_storage(x);
  return was != 0 && was != p.written_storage(y) && p.elements_written(y) > 1 && reads_others(p, x, y);
}

}  // namespace

std::vector<int32_t> sequence_of(const ProgramView& p) {
  std::vector<int32_t> calls;
  for (const int32_t i : p.calls)
    if (p.span(i).kind != SpanKind::call || row(p.span(i).op).kind != OpKind::view) calls.push_back(i);
  return calls;
}

Loop loop_at(const ProgramView& p, const std::vector<int32_t>& calls, size_t begin, const Claims& claims) {
  for (size_t body = 1; body <= kLongestBody; ++body) {
    size_t end = begin + body;
    // Whether the call at `end` goes on with the loop, and needs nothing of the round before its own.
    const auto goes_on = [&] {
      if (claims.has(calls[end - body]) || claims.has(calls[end])) return false;
      const size_t round = end - (end - begin) % body;
      for (size_t k = round - body; k < round; ++k)
        if (reads(p, p.span(calls[end]), p.written_storage(p.span(calls[k])))) return false;
      return is_next(p, p.span(calls[end - body]), p.span(calls[end]));
    };
    while (end < calls.size() && goes_on()) ++end;
    const size_t tensors = (end - begin) / body;
    if (tensors >= kLeastTensors) return {begin, body, tensors};
  }
  return {};
}

}  // namespace lorry::profile
