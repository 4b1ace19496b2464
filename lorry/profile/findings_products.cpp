// What matrix products tell: slow dtypes, sizes that miss the fast kernels, many small ones.

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lorry/base/units.h"
#include "lorry/ops/dispatch/cost.h"
#include "lorry/profile/finding_list.h"

namespace lorry::profile {
namespace {

/// What each product of a batch costs the CPU beside its work, in times of call_ns().
constexpr double kBatchedProduct = 4;

/// Products on the device that the program is judged by.
bool is_product(const ProgramView& p, const SpanRecord& x) {
  return x.kind == SpanKind::call && row(x.op).flops.kind == Flops::product && x.flops > 0 && x.device == p.device;
}

/// The two tensors that a product multiplies; none if it was recorded without.
std::span<const OperandRecord> factors(const ProgramView& p, const SpanRecord& x) {
  const OperandList* const list = p.operands(x);
  const size_t first = door::first_factor(x.op);
  if (list == nullptr || static_cast<size_t>(list->inputs) < first + 2) return {};
  return {list->operands.data() + first, 2};
}

/// "[64, 32] x [32, 8]".
std::string sizes_text(const ProgramView& p, const SpanRecord& x) {
  std::string text;
  for (const OperandRecord& factor : factors(p, x))
    text += fmt::format("{}[{}]", text.empty() ? "" : " x ", fmt::join(factor.sizes.begin(), factor.sizes.end(), ", "));
  return text;
}

/// The fastest dtype, if it is much faster than the product's.
void find_dtype(const ProgramView& p, const SpanRecord& x, FindingList& list) {
  if (p.here == nullptr) return;
  const DType dtype = x.dtype;
  const auto& rates = p.here->matmul_flops_per_s;
  const auto rate = [&](DType t) {
    const auto at = rates.find(t);
    return at != rates.end() ? at->second : 0.0;
  };
  const double now = rate(dtype), taken = p.taken_ns(x);
  if (now <= 0 || p.least(x).compute < 0.3 * taken) return;  // not bound by the arithmetic
  struct Choice {
    const char* text;
    double rate;
  };
  std::vector<Choice> choices;
  if (dtype == kF32)
    choices = {{"f64, which is more exact,", rate(kF64)},
               {"bf16", rate(kBF16)},
               {"tf32 (set_matmul_precision)", p.here->tf32_flops_per_s}};
  if (dtype == kF64) choices = {{"f32", rate(kF32)}};
  const auto best = std::ranges::max_element(choices, {}, &Choice::rate);
  if (best == choices.end() || best->rate < 1.15 * now) return;
  Finding& found = list.at(Finding::Kind::dtype, x);
  // As near to its ceiling as this product is, and not above it.
  const double then = std::max(taken * now / best->rate, 1e9 * static_cast<double>(x.flops) / best->rate);
  found.time_ns += taken, found.gain_ns += std::max(0.0, taken - then);
  found.what = fmt::format("products in {} reach {} here; {} reaches {}", dtype, quantity(now, "FLOP/s"), best->text,
                           quantity(best->rate, "FLOP/s"));
  found.cure = fmt::format("compute in {}, if its range and precision do", best->text);
}

void find_alignment(const ProgramView& p, const SpanRecord& x, FindingList& list) {
  if (!p.on_gpu) return;
  const int64_t multiple = 16 / size_of(x.dtype);
  bool misses = false;
  for (const OperandRecord& factor : factors(p, x)) {
    const auto rank = factor.sizes.size();
    for (auto i = std::max<decltype(rank)>(rank - 2, 0); i < rank; ++i)  // a batch may have any size
      misses |= factor.sizes[i] > multiple && factor.sizes[i] % multiple != 0;
  }
  const double taken = p.taken_ns(x), least = p.least(x).most();
  if (!misses || least <= 0 || taken < 1.5 * least || taken < 5 * p.kernel_ns()) return;
  Finding& found = list.at(Finding::Kind::alignment, x);
  found.time_ns += taken, found.gain_ns += std::max(0.0, taken - 1.2 * least);
  found.what = fmt::format("sizes that are no multiples of {} miss the fast kernels: {} {}", multiple, sizes_text(p, x),
                           x.dtype);
  found.cure = fmt::format("pad them to multiples of {}; of a vocabulary, for example", multiple);
}

/// Products of the same sizes, one after the other, none of which needs another's result.
void find_batches(const ProgramView& p, Claims& claims, FindingList& list) {
  std::vector<const SpanRecord*> run;
  std::vector<int32_t> indices;
  const auto finish = [&] {
    double taken = 0, least = 0;
    for (const SpanRecord* x : run) {
      taken += p.on_gpu ? std::max(p.taken_ns(*x), p.call_host_ns(*x)) : p.taken_ns(*x);
      least += p.least(*x).most();
    }
    const double small = (p.on_gpu ? 3 : 100) * p.call_ns() * static_cast<double>(run.size());
    if (run.size() >= 8 && taken > 2 * least && least < small) {
      const double each = p.on_gpu ? 0 : kBatchedProduct * p.call_ns();
      const double then = 1.3 * least + p.call_ns() + p.kernel_ns() + each * static_cast<double>(run.size());
      Finding& found = list.at(Finding::Kind::batch, *run[0], static_cast<int64_t>(run.size()));
      found.time_ns += taken, found.gain_ns += std::max(0.0, taken * p.processor_share - then);
      for (const int32_t i : indices) claims.add(i);
      found.what =
          fmt::format("{} products of the same small size, one by one: {}", run.size(), sizes_text(p, *run[0]));
      found.cure = "stack them and multiply once (bmm)";
    }
    run.clear(), indices.clear();
  };
  for (const int32_t i : p.calls) {
    const SpanRecord& x = p.span(i);
    if (x.kind == SpanKind::call && row(x.op).kind == OpKind::view) continue;
    if (!is_product(p, x) || p.operands(x) == nullptr) {
      finish();
      continue;
    }
    if (!run.empty()) {
      const SpanRecord& last = *run.back();
      const uint64_t made = p.written_storage(last);
      bool depends = false;
      for (size_t k = 0; k < static_cast<size_t>(p.operands(x)->inputs); ++k) depends |= p.storage(x, k) == made;
      if (x.operands != last.operands || depends) finish();
    }
    run.push_back(&x), indices.push_back(i);
  }
  finish();
}

}  // namespace

void find_in_products(const ProgramView& p, Claims& claims, std::vector<Finding>& to) {
  FindingList list(p);
  for (const int32_t i : p.calls) {
    if (!is_product(p, p.span(i))) continue;
    find_dtype(p, p.span(i), list);
    find_alignment(p, p.span(i), list);
  }
  find_batches(p, claims, list);
  list.move_to(to);
}

}  // namespace lorry::profile
