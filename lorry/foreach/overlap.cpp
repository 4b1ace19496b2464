#include "lorry/foreach/overlap.h"

#include <algorithm>

namespace lorry::foreach {
namespace {

struct Span {
  uintptr_t begin, end;
};
Span span_of(const Tensor& x) {
  const auto begin = reinterpret_cast<uintptr_t>(x.data_ptr());
  return {begin, begin + static_cast<uintptr_t>(x.layout().extent() * size_of(x.dtype()))};
}

Sharing sharing(const Tensor& a, const Tensor& b) {
  if (a.device() != b.device()) return Sharing::no;
  return share_elements(a.data_ptr(), a.layout(), size_of(a.dtype()), b.data_ptr(), b.layout(), size_of(b.dtype()));
}

}  // namespace

WrittenMemory::WrittenMemory(std::span<const Tensor> tensors) : tensors_(tensors) {
  ranges_.reserve(tensors.size());
  for (uint32_t e = 0; e < tensors.size(); ++e) {
    const Tensor& x = tensors[e];
    if (!x.defined() || x.numel() == 0) continue;
    const Span span = span_of(x);
    ranges_.push_back({span.begin, span.end, span.end, e});
  }
  if (!std::ranges::is_sorted(ranges_, {}, &Range::begin)) std::ranges::sort(ranges_, {}, &Range::begin);
  for (size_t i = 1; i < ranges_.size(); ++i)
    ranges_[i].furthest_end = std::max(ranges_[i].furthest_end, ranges_[i - 1].furthest_end);
}

std::optional<Overlap> WrittenMemory::within() const {
  std::optional<Overlap> found;
  for (size_t i = 1; i < ranges_.size(); ++i) {
    if (ranges_[i - 1].furthest_end <= ranges_[i].begin) continue;
    const uint32_t entry = ranges_[i].entry;
    found = worse(found, among_first(i, tensors_[entry], ranges_[i].begin, entry));
    if (found && found->certain) break;
  }
  return found;
}

std::optional<Overlap> WrittenMemory::with(const Tensor& x, uint32_t entry) const {
  if (!x.defined() || x.numel() == 0) return {};
  const Span span = span_of(x);
  const auto end = std::ranges::lower_bound(ranges_, span.end, {}, &Range::begin);
  return among_first(static_cast<size_t>(end - ranges_.begin()), x, span.begin, entry);
}

std::optional<Overlap> WrittenMemory::among_first(size_t count, const Tensor& x, uintptr_t begin,
                                                  uint32_t entry) const {
  std::optional<Overlap> found;
  for (size_t i = count; i-- > 0 && ranges_[i].furthest_end > begin;) {
    const Range& range = ranges_[i];
    if (range.entry == entry || range.end <= begin) continue;
    const Sharing shared = sharing(tensors_[range.entry], x);
    if (shared == Sharing::no) continue;
    found = worse(found, Overlap{std::min(entry, range.entry), std::max(entry, range.entry), shared == Sharing::yes});
    if (found->certain) break;
  }
  return found;
}

std::optional<Overlap> worse(const std::optional<Overlap>& a, const std::optional<Overlap>& b) {
  return !a || (b && b->certain && !a->certain) ? b : a;
}

void require_no_overlap(std::span<const Tensor> written) {
  if (const auto found = WrittenMemory(written).within(); found && found->certain) refuse_overlap();
}

[[gnu::cold, gnu::noinline]] void refuse_overlap() {
  raise<ShapeError>(
      "a tensor of the list that is written shares memory with another entry's; entries are computed in no order; "
      "expected none to; clone one of them first");
}

}  // namespace lorry::foreach
