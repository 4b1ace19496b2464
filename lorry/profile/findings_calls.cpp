// What sequences of calls tell: chains to fuse, loops over tensors, single elements, steps to graph, optimizers.

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "lorry/profile/cell_text.h"
#include "lorry/profile/finding_list.h"
#include "lorry/profile/loops.h"
#include "lorry/profile/queue.h"

namespace lorry::profile {
namespace {

constexpr int64_t kLeastElements = 64;  ///< calls on single elements
/// What foreach takes for each tensor of a list, in nanoseconds.
constexpr double kForeachTensorNs = 25;
/// What a call of a replayed graph of the CPU takes less than one that is made, in times of call_ns(): one that writes
/// in place, and one that takes memory for its result.
constexpr double kReplayGain = 0.7, kReplayGainNew = 1.5;
constexpr int kLeastSteps = 3;      ///< repeats of a step
constexpr size_t kLeastRounds = 4;  ///< repeats within a chain that make it a loop

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
bool is_pointwise(Op op) { return op != kNoOp && row(op).kind == OpKind::pointwise; }

/// Calls over the same elements, each of which reads what the one before it wrote.
class Chains {
 public:
  Chains(const ProgramView& p, Claims& claims) : p_(p), claims_(claims), list_(p) {
    for (const int32_t i : p_.calls) note_uses(p_.span(i));
  }
  void find(std::vector<Finding>& to) {
    for (const int32_t i : p_.calls) {
      const SpanRecord& x = p_.span(i);
      if (x.kind == SpanKind::call && row(x.op).kind == OpKind::view) continue;
      if (claims_.has(i) || !extends(x)) finish();
      if (!claims_.has(i) && can_begin(x)) chain_.push_back(i);
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
  /// What a call of a chain writes.
  const OperandRecord& made_by(const SpanRecord& x) const { return p_.operands(x)->operands[*p_.written(x)]; }
  bool can_begin(const SpanRecord& x) const {
    return x.kind == SpanKind::call && (is_pointwise(x.op) || is_row_operator(x.op)) && x.device == p_.device &&
           p_.written(x).has_value();
  }
  /// Whether the program did something else for long between two calls.
  bool are_apart(const SpanRecord& x, const SpanRecord& y) const {
    const auto gap = std::ranges::lower_bound(p_.gaps, x.end, {}, &GapRecord::begin);
    return gap != p_.gaps.end() && gap->begin < y.begin && gap->asleep > 0;
  }
  bool extends(const SpanRecord& x) const {
    if (chain_.empty() || !can_begin(x)) return false;
    const SpanRecord& last = p_.span(chain_.back());
    if (are_apart(last, x)) return false;
    const uint64_t written = p_.written_storage(last);
    const OperandRecord& made = made_by(last);
    if (written == 0 || bytes_of(made) < 4096) return false;
    const OperandList* list = p_.operands(x);
    for (size_t i = 0; i < static_cast<size_t>(list->inputs); ++i)
      if (p_.storage(x, i) == written && list->operands[i].sizes == made.sizes) return true;
    return false;
  }
  /// The length of what a chain repeats: a loop whose body reads its own result. A chain of another form has its size.
  size_t period() const {
    const auto are_equal = [&](int32_t a, int32_t b) {
      const SpanRecord &x = p_.span(a), &y = p_.span(b);
      return x.op == y.op && x.line == y.line && x.path == y.path;
    };
    for (size_t length = 1; length * kLeastRounds <= chain_.size(); ++length) {
      size_t k = length;
      while (k < chain_.size() && are_equal(chain_[k], chain_[k - length])) ++k;
      if (k == chain_.size()) return length;
    }
    return chain_.size();
  }
  void finish() {
    const size_t length = period();
    if (length >= 2)
      for (size_t k = 0; k < chain_.size(); k += length)
        report({chain_.begin() + static_cast<ptrdiff_t>(k),
                chain_.begin() + static_cast<ptrdiff_t>(std::min(k + length, chain_.size()))});
    chain_.clear();
  }
  /// How much of a call's time goes to moving its bytes: arithmetic takes as long in a fused kernel.
  double moving_ns(const SpanRecord& x) const {
    const double taken = p_.taken_ns(x);
    return is_pointwise(x.op) ? std::min(taken, p_.least(x).streamed / ProgramView::kHeavyShare) : taken;
  }
  void report(const std::vector<int32_t>& chain) {
    if (chain.size() < 2) return;
    double taken = 0, moving = 0, saved_bytes = 0;
    std::string names;
    for (size_t k = 0; k < chain.size(); ++k) {
      const SpanRecord& x = p_.span(chain[k]);
      taken += p_.taken_ns(x), moving += moving_ns(x);
      if (k < 6) names += (names.empty() ? "" : ", ") + std::string(lorry::name(x.op));
      if (k + 1 == chain.size()) break;
      // What nobody else reads is neither written nor read again; else it is only not read again here.
      saved_bytes +=
          static_cast<double>(bytes_of(made_by(x))) * (uses_[p_.written_storage(x)] <= 1 && !x.in_place ? 2 : 1);
    }
    if (p_.here == nullptr || p_.here->copy_bytes_per_s <= 0) return;
    double all_bytes = 0;
    for (const int32_t i : chain) all_bytes += static_cast<double>(p_.span(i).bytes);
    const double calls = static_cast<double>(chain.size() - 1) * (p_.on_gpu ? p_.kernel_ns() : p_.call_ns());
    const double by_bytes = all_bytes > 0 ? moving * std::min(saved_bytes / all_bytes, 0.95) : 0;
    // On a GPU this counts the time of kernels, and a graph that of the host.
    for (const int32_t i : chain)
      if (!p_.on_gpu) claims_.add(i);
    const SpanRecord& first = p_.span(chain.front());
    Finding& found = list_.at(Finding::Kind::fuse, first);
    found.time_ns += taken, found.gain_ns += std::min(by_bytes + calls, 0.95 * taken);
    found.can_apply = true;
    found.what = fmt::format("{} calls in a row read what the one before wrote: {}{}", chain.size(), names,
                             chain.size() > 6 ? ", ..." : "");
    found.cure = "compile the function (lorry::compile): they become one kernel, and what lies between is not stored";
  }

  const ProgramView& p_;
  Claims& claims_;
  FindingList list_;
  std::unordered_map<uint64_t, int> uses_;
  std::vector<int32_t> chain_;
};

/// What the host spent on a call: until the next one begins, without what recording took. A longer pause is not the
/// call's.
double host_ns(const ProgramView& p, const std::vector<int32_t>& calls, size_t k) {
  constexpr int64_t kPause = 20'000;
  const SpanRecord& x = p.span(calls[k]);
  int64_t next = k + 1 < calls.size() ? p.span(calls[k + 1]).begin : x.end;
  next = std::clamp(next, x.end, x.end + kPause);
  const double between = static_cast<double>(next - x.end) - p.recording_ns(x) - p.tracing_ns({x.end, next});
  return (p.call_host_ns(x) + std::max(0.0, between)) * p.processor_share;
}

/// Loops over tensors.
void find_loops(const ProgramView& p, const std::vector<int32_t>& calls, Claims& claims, FindingList& list) {
  for (size_t i = 0; i < calls.size();) {
    const Loop loop = loop_at(p, calls, i, claims);
    if (loop.body == 0) {
      ++i;
      continue;
    }
    double taken = 0, host = 0, least = 0;
    for (size_t k = i; k < loop.end(); ++k) {
      const SpanRecord& x = p.span(calls[k]);
      taken += p.taken_ns(x), least += p.least(x).most();
      host += host_ns(p, calls, k);
      claims.add(calls[k]);
    }
    const auto tensors = static_cast<double>(loop.tensors);
    const double now = p.on_gpu ? std::max(taken, host) : host;
    const double then =
        std::max(least / 0.8, static_cast<double>(loop.body) * (p.call_ns() + kForeachTensorNs * tensors));
    Finding& found = list.at(Finding::Kind::foreach, p.span(calls[i]));
    found.time_ns += now, found.gain_ns += std::max(0.0, now - then), found.can_apply = true;
    found.what = fmt::format("a loop calls {} on {:.0f} tensors one by one", lorry::name(p.span(calls[i]).op), tensors);
    found.cure = "hand the list to foreach (lorry::foreach): one call, and on a GPU one launch, for all of them";
    i = loop.end();
  }
}

/// A run of calls on single elements of a tensor, each of which a view selects.
struct ElementRun {
  size_t begin = 0, end = 0;  ///< of p.calls
  int64_t elements = 0;
  double host = 0;
};
ElementRun element_run(const ProgramView& p, size_t begin) {
  ElementRun run{begin, begin};
  const SpanRecord& first = p.span(p.calls[begin]);
  for (; run.end < p.calls.size(); ++run.end) {
    const SpanRecord& x = p.span(p.calls[run.end]);
    if (x.kind != SpanKind::call || x.line != first.line || x.path != first.path) break;
    const bool view = row(x.op).kind == OpKind::view;
    const bool single = p.elements_written(x) == 1;
    if (!single && !view) break;
    run.elements += view && single;
    run.host += host_ns(p, p.calls, run.end);
  }
  return run;
}

/// Elements read or written one by one.
void find_elements(const ProgramView& p, Claims& claims, FindingList& list) {
  for (size_t i = 0; i < p.calls.size();) {
    const ElementRun run = element_run(p, i);
    if (run.elements >= kLeastElements) {
      Finding& found = list.at(Finding::Kind::elements, p.span(p.calls[i]), run.elements);
      found.time_ns += run.host, found.gain_ns += std::max(0.0, run.host - 2 * p.call_ns());
      found.what = fmt::format("single elements are read or written one by one, {} times", found.count);
      found.cure = "read or write the whole tensor in one call: to_vector, slices, index_put, where";
      for (size_t k = run.begin; k < run.end; ++k) claims.add(p.calls[k]);
    }
    i = std::max(run.end, i + 1);
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
void find_steps(const ProgramView& p, const std::vector<int32_t>& calls, const Claims& claims, FindingList& list) {
  for (const int32_t i : calls)
    if (p.span(i).kind == SpanKind::replay || p.span(i).kind == SpanKind::replayed) return;
  const size_t length = step_length(p, calls);
  if (length < 4) return;
  const SpanRecord &first = p.span(calls.front()), &last = p.span(calls.back());
  const Interval all{first.begin, last.end};
  double work = 0, weights = 0, left = 0;
  for (const int32_t i : p.calls) {
    const auto self = static_cast<double>(p.self_ns[static_cast<size_t>(i)]);
    work += self;
    const double weight = p.on_gpu ? self : 1;  // a call that launches much takes the host longer
    weights += weight, left += claims.has(i) ? 0 : weight;
  }
  double asleep = 0;
  for (const GapRecord& gap : p.gaps)
    if (gap.begin >= all.begin && gap.end <= all.end) asleep += static_cast<double>(gap.asleep);
  const auto span = static_cast<double>(all.length());
  const double busy = p.on_gpu ? static_cast<double>(p.busy.within(all)) : work;
  const double recording = p.on_gpu ? held_up_by_recording_ns(p, all) : p.recording_ns(all);
  const double between = std::max(0.0, span - asleep - busy - recording);
  // On a GPU kernels follow each other without the host; on the CPU a call is made again without checks.
  double kernels = 0;
  for (const int32_t i : calls)
    if (!p.on_gpu) kernels += p.call_ns() * (p.span(i).in_place ? kReplayGain : kReplayGainNew);
  const double gain = (between + kernels) * p.processor_share * left / weights;
  Finding& found = list.at(Finding::Kind::graph, first, static_cast<int64_t>(calls.size() / length));
  found.time_ns += span - recording, found.gain_ns += gain, found.can_apply = true;
  found.what = fmt::format("the same {} calls repeat {} times, and {} of {} go to making calls", length, found.count,
                           time_text(gain), time_text(span));
  found.cure = p.r.waits.empty()
                   ? "capture the step as a graph (replay::Graph): a replay makes the same calls at the price of one"
                   : "keep results on the device instead of waiting for them, then capture the step as a graph "
                     "(replay::Graph)";
}

void find_optimizers(const ProgramView& p, Claims& claims, FindingList& list) {
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    if (x.op != Op::optimizer_step || x.device != p.device) continue;
    const double taken = std::max(p.taken_ns(x), p.call_host_ns(x));
    const double then = p.least(x).most() / 0.9 + 2 * p.call_ns() + (p.on_gpu ? 2 * p.kernel_ns() : 0);
    const bool many = p.on_gpu ? x.launches > 8 : taken > 3 * then;
    if (!many) continue;
    claims.add(i);
    Finding& found = list.at(Finding::Kind::optimizer, x);
    found.time_ns += taken, found.gain_ns += std::max(0.0, taken - then), found.can_apply = true;
    found.what = p.on_gpu ? fmt::format("an optimizer's step takes {} launches", x.launches)
                          : fmt::format("an optimizer's step takes {}, where its bytes need {}", time_text(taken),
                                        time_text(then));
    found.cure = "use Execution::fused (the default): one launch for all parameters";
  }
}

}  // namespace

void find_in_calls(const ProgramView& p, Claims& claims, std::vector<Finding>& to) {
  FindingList list(p);
  const std::vector<int32_t> calls = sequence_of(p);
  find_elements(p, claims, list);
  find_loops(p, calls, claims, list);
  Chains(p, claims).find(to);
  find_optimizers(p, claims, list);
  find_steps(p, calls, claims, list);
  list.move_to(to);
}

}  // namespace lorry::profile
