// What sequences of calls tell: chains to fuse, loops over tensors, single elements, steps to graph, optimizers.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lorry/base/units.h"
#include "lorry/profile/finding_list.h"

namespace lorry::profile {
namespace {

constexpr size_t kLeastLoop = 8;       ///< tensors of a loop
constexpr size_t kLongestBody = 12;    ///< calls for each tensor
constexpr size_t kLeastElements = 64;  ///< calls on single elements
constexpr int kLeastSteps = 3;         ///< repeats of a step

std::string text(double ns) { return duration_text(ns / 1000); }

bool is_row_operator(Op op) {
  switch (op) {
    case Op::softmax:
    case Op::log_softmax:
    case Op::layer_norm:
    case Op::rms_norm:
    case Op::sum:
    case Op::mean:
    case Op::amax:
    case Op::amin:
      return true;
    default:
      return false;
  }
}
bool is_pointwise(Op op) { return op != Op::count && row(op).kind == OpKind::pointwise; }

int64_t bytes_of(const OperandRecord& x) {
  int64_t count = x.is_number ? 0 : size_of(x.dtype);
  for (const int64_t n : x.sizes) count *= n;
  return count;
}

/// Calls over the same elements, each of which reads what the one before it wrote.
class Chains {
 public:
  explicit Chains(const ProgramView& p) : p_(p), list_(p) {
    for (const int32_t i : p_.calls) note_uses(p_.span(i));
  }
  void find(std::vector<Finding>& to) {
    for (const int32_t i : p_.calls) {
      const SpanRecord& x = p_.span(i);
      if (x.kind == SpanKind::call && row(x.op).kind == OpKind::view) continue;
      if (!extends(x)) finish();
      if (can_begin(x)) chain_.push_back(i);
    }
    finish();
    list_.move_to(to);
  }

 private:
  void note_uses(const SpanRecord& x) {
    const OperandList* list = p_.operands(x);
    if (list == nullptr) return;
    for (size_t i = 0; i < static_cast<size_t>(list->inputs); ++i) ++uses_[p_.storage(x, i)];
  }
  const OperandRecord* output(const SpanRecord& x, uint64_t* storage = nullptr) const {
    const OperandList* list = p_.operands(x);
    if (list == nullptr || list->operands.size() <= static_cast<size_t>(list->inputs)) return nullptr;
    const auto at = static_cast<size_t>(list->inputs);
    if (storage != nullptr) *storage = p_.storage(x, at);
    return &list->operands[at];
  }
  bool can_begin(const SpanRecord& x) const {
    return x.kind == SpanKind::call && (is_pointwise(x.op) || is_row_operator(x.op)) && output(x) != nullptr;
  }
  bool extends(const SpanRecord& x) const {
    if (chain_.empty() || !can_begin(x)) return false;
    const SpanRecord& last = p_.span(chain_.back());
    uint64_t written = 0;
    const OperandRecord* made = output(last, &written);
    if (made == nullptr || written == 0 || bytes_of(*made) < 4096) return false;
    const OperandList* list = p_.operands(x);
    for (size_t i = 0; i < static_cast<size_t>(list->inputs); ++i)
      if (p_.storage(x, i) == written && list->operands[i].sizes == made->sizes) return true;
    return false;
  }
  void finish() {
    if (chain_.size() >= 2) report();
    chain_.clear();
  }
  void report() {
    double taken = 0, saved_bytes = 0;
    std::string names;
    for (size_t k = 0; k < chain_.size(); ++k) {
      const SpanRecord& x = p_.span(chain_[k]);
      taken += p_.taken_ns(x);
      if (k < 6) names += (names.empty() ? "" : ", ") + std::string(lorry::name(x.op));
      if (k + 1 == chain_.size()) break;
      uint64_t storage = 0;
      const OperandRecord* made = output(x, &storage);
      // What nobody else reads is neither written nor read again; else it is only not read again here.
      saved_bytes += static_cast<double>(bytes_of(*made)) * (uses_[storage] <= 1 && !x.in_place ? 2 : 1);
    }
    if (p_.here == nullptr || p_.here->copy_bytes_per_s <= 0) return;
    double all_bytes = 0;
    for (const int32_t i : chain_) all_bytes += static_cast<double>(p_.span(i).bytes);
    const double calls = static_cast<double>(chain_.size() - 1) * (p_.on_gpu ? p_.kernel_ns() : p_.call_ns());
    const double by_bytes = all_bytes > 0 ? taken * std::min(saved_bytes / all_bytes, 0.95) : 0;
    const SpanRecord& first = p_.span(chain_.front());
    Finding& found = list_.at(Finding::Kind::fuse, first);
    found.time_ns += taken, found.gain_ns += std::min(by_bytes + calls, 0.95 * taken);
    found.can_apply = true;
    found.what = fmt::format("{} calls in a row read what the one before wrote: {}{}", chain_.size(), names,
                             chain_.size() > 6 ? ", ..." : "");
    found.cure = "compile the function (lorry::compile): they become one kernel, and what lies between is not stored";
  }

  const ProgramView& p_;
  FindingList list_;
  std::unordered_map<uint64_t, int> uses_;
  std::vector<int32_t> chain_;
};

/// The calls that are no views, for sequences.
std::vector<int32_t> without_views(const ProgramView& p) {
  std::vector<int32_t> calls;
  for (const int32_t i : p.calls)
    if (p.span(i).kind != SpanKind::call || row(p.span(i).op).kind != OpKind::view) calls.push_back(i);
  return calls;
}

uint64_t written_by(const ProgramView& p, const SpanRecord& x) {
  const OperandList* list = p.operands(x);
  if (list == nullptr || list->operands.empty()) return 0;
  const size_t at = x.in_place ? 0 : static_cast<size_t>(list->inputs);
  return at < list->operands.size() ? p.storage(x, at) : 0;
}
bool reads(const ProgramView& p, const SpanRecord& x, uint64_t storage) {
  const OperandList* list = p.operands(x);
  for (size_t i = 0; list != nullptr && i < static_cast<size_t>(list->inputs); ++i)
    if (p.storage(x, i) == storage) return true;
  return false;
}
int64_t elements_written(const ProgramView& p, const SpanRecord& x) {
  const OperandList* list = p.operands(x);
  if (list == nullptr || list->operands.empty()) return -1;
  const size_t at = x.in_place ? 0 : static_cast<size_t>(list->inputs);
  if (at >= list->operands.size() || list->operands[at].is_number) return -1;
  int64_t count = 1;
  for (const int64_t n : list->operands[at].sizes) count *= n;
  return count;
}

/// Loops over tensors: the same few operators again and again, each time on other tensors.
void find_loops(const ProgramView& p, const std::vector<int32_t>& calls, FindingList& list) {
  const auto same = [&](size_t a, size_t b) {
    const SpanRecord &x = p.span(calls[a]), &y = p.span(calls[b]);
    if (x.kind != SpanKind::call || x.op != y.op || x.line != y.line || foreach_of(x.op) == Op::count) return false;
    const uint64_t was = written_by(p, x);
    return was != 0 && was != written_by(p, y) && !reads(p, y, was) && elements_written(p, y) > 1;
  };
  size_t i = 0;
  while (i < calls.size()) {
    size_t best_end = i, best_body = 0;
    for (size_t body = 1; body <= kLongestBody && best_body == 0; ++body) {
      size_t end = i + body;
      while (end < calls.size() && same(end - body, end)) ++end;
      if ((end - i) / body >= kLeastLoop) best_end = i + (end - i) / body * body, best_body = body;
    }
    if (best_body == 0) {
      ++i;
      continue;
    }
    double taken = 0, host = 0, least = 0;
    for (size_t k = i; k < best_end; ++k) {
      const SpanRecord& x = p.span(calls[k]);
      taken += p.taken_ns(x), least += p.least(x).most();
      const int64_t next = k + 1 < calls.size() ? p.span(calls[k + 1]).begin : x.end;
      host += static_cast<double>(std::max(x.end, std::min(next, x.end + 20'000)) - x.begin);
    }
    const double tensors = static_cast<double>((best_end - i) / best_body);
    const double now = p.on_gpu ? std::max(taken, host) : host;
    const double then = std::max(least / 0.8, static_cast<double>(best_body) * (p.call_ns() + 100 * tensors));
    Finding& found = list.at(Finding::Kind::foreach, p.span(calls[i]));
    found.time_ns += now, found.gain_ns += std::max(0.0, now - then), found.can_apply = true;
    found.what = fmt::format("a loop calls {} on {:.0f} tensors one by one", lorry::name(p.span(calls[i]).op), tensors);
    found.cure = "hand the list to foreach (lorry::foreach): one call, and on a GPU one launch, for all of them";
    i = best_end;
  }
}

/// Elements read or written one by one.
void find_elements(const ProgramView& p, const std::vector<int32_t>& calls, FindingList& list) {
  for (size_t i = 0; i < calls.size();) {
    size_t end = i;
    double host = 0;
    while (end < calls.size() && p.span(calls[end]).kind == SpanKind::call &&
           p.span(calls[end]).line == p.span(calls[i]).line && p.span(calls[end]).path == p.span(calls[i]).path &&
           elements_written(p, p.span(calls[end])) == 1) {
      const int64_t next = end + 1 < calls.size() ? p.span(calls[end + 1]).begin : p.span(calls[end]).end;
      host += static_cast<double>(std::min(next - p.span(calls[end]).begin, p.span(calls[end]).duration() + 20'000));
      ++end;
    }
    if (end - i >= kLeastElements) {
      Finding& found = list.at(Finding::Kind::elements, p.span(calls[i]), static_cast<int64_t>(end - i));
      found.time_ns += host, found.gain_ns += std::max(0.0, host - 2 * p.call_ns());
      found.what = fmt::format("{} calls in a row work on a single element each", found.count);
      found.cure = "write the whole tensor in one call: slices, index_put, where, or from a vector made on the host";
    }
    i = std::max(end, i + 1);
  }
}

/// The length of the sequence that the calls repeat; 0: none.
size_t step_length(const ProgramView& p, const std::vector<int32_t>& calls) {
  std::vector<uint64_t> symbols;
  for (const int32_t i : calls) {
    const SpanRecord& x = p.span(i);
    symbols.push_back(static_cast<uint64_t>(x.name) << 32 | static_cast<uint32_t>(x.line + 7919 * x.path));
  }
  std::unordered_map<uint64_t, std::vector<size_t>> places;
  for (size_t i = 0; i < symbols.size(); ++i) places[symbols[i]].push_back(i);
  size_t best = 0;
  double best_share = 0.9;
  std::vector<size_t> tried;
  for (const auto& [symbol, at] : places) {
    if (at.size() < kLeastSteps) continue;
    const size_t length = at[at.size() / 2] - at[at.size() / 2 - 1];
    if (std::ranges::find(tried, length) != tried.end() || length * kLeastSteps > symbols.size()) continue;
    tried.push_back(length);
    size_t matching = 0;
    for (size_t i = length; i < symbols.size(); ++i) matching += symbols[i] == symbols[i - length];
    const double share = static_cast<double>(matching) / static_cast<double>(symbols.size() - length);
    if (share > best_share || (share == best_share && length < best)) best = length, best_share = share;
    if (tried.size() > 64) break;
  }
  return best;
}

/// The same step again and again, while calls cost more than their work.
void find_steps(const ProgramView& p, const std::vector<int32_t>& calls, FindingList& list) {
  for (const int32_t i : calls)
    if (p.span(i).kind == SpanKind::replay || p.span(i).kind == SpanKind::replayed) return;
  const size_t length = step_length(p, calls);
  if (length < 4) return;
  const SpanRecord &first = p.span(calls.front()), &last = p.span(calls.back());
  const Interval all{first.begin, last.end};
  double work = 0;
  for (const int32_t i : calls) work += p.taken_ns(p.span(i));
  double asleep = 0;
  for (const GapRecord& gap : p.r.gaps)
    if (gap.begin >= all.begin && gap.end <= all.end) asleep += static_cast<double>(gap.asleep);
  const auto span = static_cast<double>(all.length());
  const double busy = p.on_gpu ? static_cast<double>(p.busy.within(all)) : work;
  // On a GPU kernels follow each other without the host; on the CPU a call is made again without checks.
  const double kernels = p.on_gpu ? 0 : static_cast<double>(calls.size()) * 0.7 * p.call_ns();
  const double gain = span - asleep - busy + kernels;
  Finding& found = list.at(Finding::Kind::graph, first, static_cast<int64_t>(calls.size() / length));
  found.time_ns += span, found.gain_ns += std::max(0.0, gain), found.can_apply = true;
  found.what = fmt::format("the same {} calls repeat {} times, and {} of {} go to making calls", length, found.count,
                           text(std::max(0.0, gain)), text(span));
  found.cure = p.r.waits.empty()
                   ? "capture the step as a graph (replay::Graph): a replay makes the same calls at the price of one"
                   : "keep results on the device instead of waiting for them, then capture the step as a graph "
                     "(replay::Graph)";
}

void find_optimizers(const ProgramView& p, FindingList& list) {
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    if (x.op != Op::optimizer_step) continue;
    const double taken = std::max(p.taken_ns(x), static_cast<double>(x.duration()));
    const double then = p.least(x).most() / 0.9 + 2 * p.call_ns() + (p.on_gpu ? 2 * p.kernel_ns() : 0);
    const bool many = p.on_gpu ? x.launches > 8 : taken > 3 * then;
    if (!many) continue;
    Finding& found = list.at(Finding::Kind::optimizer, x);
    found.time_ns += taken, found.gain_ns += std::max(0.0, taken - then), found.can_apply = true;
    found.what = p.on_gpu
                     ? fmt::format("an optimizer's step takes {} launches", x.launches)
                     : fmt::format("an optimizer's step takes {}, where its bytes need {}", text(taken), text(then));
    found.cure = "use Execution::fused (the default): one launch for all parameters";
  }
}

}  // namespace

void find_in_calls(const ProgramView& p, std::vector<Finding>& to) {
  Chains(p).find(to);
  FindingList list(p);
  const std::vector<int32_t> calls = without_views(p);
  find_loops(p, calls, list);
  find_elements(p, calls, list);
  find_steps(p, calls, list);
  find_optimizers(p, list);
  list.move_to(to);
}

}  // namespace lorry::profile
