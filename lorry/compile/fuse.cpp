#include "lorry/compile/fuse.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "lorry/compile/columns.h"
#include "lorry/compile/pointwise_step.h"
#include "lorry/compile/unit_order.h"
#include "lorry/kernels/backend.h"

namespace lorry::compiler {
namespace {

using namespace trace;
using kernels::Extent;
using kernels::FusedStep;
using kernels::RowStep;

/// Units that do not need each other are merged if there are at most this many nodes between them, because what they
/// read and make must be in memory at the same time.
constexpr int32_t kNearby = 16;

/// How a node can run in a unit: as a pointwise step, as a row step, as a sum, or not at all.
struct Candidate {
  std::optional<FusedStep> map;
  std::optional<RowNode> row;
  bool is_sum = false;  ///< a sum over rows, in a map
};

/// An operand of a node in a unit, and its extent relative to the unit's rows.
struct UnitOperand {
  const Argument* x;
  Extent extent = Extent::wide;
};

/// A unit under construction.
struct UnitDraft {
  Unit unit;
  std::vector<UnitOperand> inputs;
  std::vector<Layout> layouts;  ///< the layouts of a map's inputs and results
  int merged_into = -1;         ///< the unit that has its nodes, if they were moved
};

class Fuser {
 public:
  Fuser(const Graph& graph, const std::vector<std::vector<int32_t>>& apart)
      : graph_(graph),
        candidates_(graph.nodes.size()),
        unit_of_(graph.nodes.size(), -1),
        callbacks_(graph.nodes.size()),
        is_apart_(graph.nodes.size()) {
    for (const std::vector<int32_t>& nodes : apart)
      for (const int32_t n : nodes) is_apart_[static_cast<size_t>(n)] = true;
    size_t called = 0;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      while (called < graph.callbacks.size() && graph.callbacks[called].position <= n) ++called;
      callbacks_[n] = called;
    }
  }

  std::vector<Unit> run(bool column_sums) {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) place(static_cast<int32_t>(n));
    merge_siblings();
    merge_small();
    count_reads();
    for (size_t n = 0; n < graph_.nodes.size() && column_sums; ++n) join_sum(static_cast<int32_t>(n));
    if (column_sums) count_reads();
    for (size_t u = 0; u < drafts_.size(); ++u) finish(static_cast<int>(u));
    return in_order();
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const Value& value(int32_t v) const { return graph_.values[static_cast<size_t>(v)]; }
  UnitDraft& draft(int u) { return drafts_[static_cast<size_t>(u)]; }
  /// The unit that makes an argument; -1 if none does.
  int unit_of(const Argument& x) const {
    if (x.kind != Argument::value) return -1;
    const int32_t maker = value(x.value_index).node;
    return maker < 0 ? -1 : unit_of_[static_cast<size_t>(maker)];
  }

  void place(int32_t n) {
    Candidate& candidate = candidates_[static_cast<size_t>(n)];
    std::string refused, wrong_rows;
    const bool may_fuse = !is_apart_[static_cast<size_t>(n)];
    if (may_fuse) candidate.map = pointwise_step(graph_, node(n));
    if (may_fuse && !candidate.map) candidate.row = row_node(graph_, node(n), wrong_rows);
    std::vector<int> makers;
    for (const Argument& x : node(n).arguments)
      if (const int u = unit_of(x); u >= 0 && draft(u).unit.kind != Unit::library) makers.push_back(u);
    std::ranges::sort(makers, std::greater());
    makers.erase(std::unique(makers.begin(), makers.end()), makers.end());
    if (!candidate.map && !candidate.row) {
      refused = makers.empty() ? "" : wrong_rows;
      makers.clear();
    }
    for (const int u : makers) {
      const std::string why = why_not(n, u);
      if (why.empty()) {
        join(n, u);
        for (const int other : makers)
          if (other != u && may_merge(u, other)) merge(u, other);
        return;
      }
      refused = why;
    }
    UnitDraft& made = drafts_.emplace_back();
    order_.add_unit();
    made.unit.refused = refused;
    if (candidate.map) {
      made.unit.kind = Unit::map;
      made.unit.sizes = value(node(n).results[0]).layout.size_list();
    } else if (candidate.row) {
      made.unit.kind = Unit::row;
      made.unit.rows = candidate.row->rows;
    }
    join(n, static_cast<int>(drafts_.size()) - 1);
  }

  void join(int32_t n, int u) {
    UnitDraft& d = draft(u);
    if (d.unit.kind == Unit::map && candidates_[static_cast<size_t>(n)].row) become_row(d, n);
    d.unit.nodes.push_back(n);
    unit_of_[static_cast<size_t>(n)] = u;
    if (d.unit.kind != Unit::library) add_operands(d, n);
    for (const auto* list : {&node(n).arguments, &node(n).targets})
      for (const Argument& x : *list)
        if (const int maker = unit_of(x); maker >= 0 && maker != u) order_.add_need(u, maker);
  }

  /// Turns a map whose results a row step reads into a row unit.
  void become_row(UnitDraft& d, int32_t n) {
    d.unit.kind = Unit::row;
    d.unit.rows = candidates_[static_cast<size_t>(n)].row->rows;
    d.inputs.clear();
    for (const int32_t m : d.unit.nodes) add_operands(d, m);
  }

  void add_operands(UnitDraft& d, int32_t n) {
    std::string why;
    const std::vector<UnitOperand> operands = *operands_of(d.unit.kind, d.unit.rows, n, why);
    for (const UnitOperand& x : operands)
      if (unit_of(*x.x) != unit_of_[static_cast<size_t>(n)] && find_input(d, x) == d.inputs.size())
        d.inputs.push_back(x);
    if (d.unit.kind == Unit::map)
      for (const Layout& l : layouts_of(n, operands, unit_of_[static_cast<size_t>(n)]))
        if (std::ranges::find(d.layouts, l) == d.layouts.end()) d.layouts.push_back(l);
  }

  static size_t find_input(const UnitDraft& d, const UnitOperand& x) {
    const auto found = std::ranges::find_if(
        d.inputs, [&](const UnitOperand& y) { return x.extent == y.extent && is_same(*x.x, *y.x); });
    return static_cast<size_t>(found - d.inputs.begin());
  }

  /// Why a node cannot join a unit; empty if it can.
  std::string why_not(int32_t n, int u) {
    const UnitDraft& d = draft(u);
    const Candidate& candidate = candidates_[static_cast<size_t>(n)];
    if (d.unit.nodes.size() >= static_cast<size_t>(kernels::kMaxFusedSteps))
      return "the kernel already has the maximum of steps";
    const int32_t first = d.unit.nodes[0];
    if (callbacks_[static_cast<size_t>(n)] != callbacks_[static_cast<size_t>(first)])
      return "the host is called in between";
    if (value(node(n).results[0]).device != value(node(first).results[0]).device) return "it is on another device";
    std::string why;
    if (d.unit.kind == Unit::map && candidate.map)
      why = why_not_map(n, u);
    else if (d.unit.kind == Unit::map)
      why = why_not_rows(n, u, candidate.row->rows, d.unit.nodes);
    else
      why = why_not_rows(n, u, d.unit.rows, {});
    if (!why.empty()) return why;
    for (const Argument& x : node(n).arguments)
      if (const int maker = unit_of(x); maker >= 0 && maker != u && order_.depends(maker, u))
        return "it also depends on a unit that needs this unit's results";
    return {};
  }

  /// Whether two units can be merged: neither needs the other by way of a third.
  bool may_merge(int u, int v) {
    const UnitDraft &a = draft(u), &b = draft(v);
    const int32_t first = a.unit.nodes[0], other = b.unit.nodes[0];
    if (a.unit.nodes.size() + b.unit.nodes.size() > static_cast<size_t>(kernels::kMaxFusedSteps) ||
        callbacks_[static_cast<size_t>(first)] != callbacks_[static_cast<size_t>(other)] ||
        value(node(first).results[0]).device != value(node(other).results[0]).device)
      return false;
    const bool rows = a.unit.kind == Unit::row || b.unit.kind == Unit::row;
    if (rows && a.unit.kind == b.unit.kind && a.unit.rows != b.unit.rows) return false;
    if (!rows && a.unit.sizes != b.unit.sizes) return false;
    UnitDraft both;
    both.unit.kind = rows ? Unit::row : Unit::map;
    both.unit.rows = a.unit.kind == Unit::row ? a.unit.rows : b.unit.rows;
    for (const UnitDraft* d : {&a, &b})
      for (const int32_t n : d->unit.nodes)
        if (!adds_to(both, n, u, v)) return false;
    return !order_.depends_through_another(u, v) && !order_.depends_through_another(v, u);
  }

  /// Adds the operands of a node to the merged unit. Returns false if there are too many or if their layouts do not
  /// fit.
  bool adds_to(UnitDraft& both, int32_t n, int u, int v) const {
    std::string why;
    const auto operands = operands_of(both.unit.kind, both.unit.rows, n, why);
    if (!operands) return false;
    const Layout& result = value(node(n).results[0]).layout;
    const auto add_layout = [&](const Layout& l) {
      if (std::ranges::find(both.layouts, l) == both.layouts.end()) both.layouts.push_back(l);
    };
    const bool is_map = both.unit.kind == Unit::map;
    for (const UnitOperand& x : *operands) {
      const int maker = unit_of(*x.x);
      if (maker == u || maker == v) {
        const Value& made = value(x.x->value_index);
        if (is_map && (!is_whole(x.x->window, made) || !same_sizes(made.layout, result))) return false;
        if (!is_map && (x.x->window.offset != 0 || x.extent != extent_of_result(made.layout, both.unit.rows)))
          return false;
        continue;
      }
      if (find_input(both, x) == both.inputs.size()) both.inputs.push_back(x);
      if (is_map && x.x->kind == Argument::value) add_layout(expand(x.x->window.layout, result.size_list()));
    }
    if (is_map) add_layout(result);
    return both.inputs.size() <= static_cast<size_t>(kernels::kMaxFusedOperands) &&
           both.layouts.size() <= static_cast<size_t>(kernels::kMaxFusedLayouts);
  }

  /// The unit that has the nodes of a unit now.
  int merged_into(int u) {
    while (draft(u).merged_into >= 0) u = draft(u).merged_into;
    return u;
  }

  /// Moves the nodes of v to u.
  void merge(int u, int v) {
    UnitDraft &to = draft(u), from = std::exchange(draft(v), UnitDraft());
    draft(v).merged_into = u;
    if (from.unit.kind == Unit::row) to.unit.kind = Unit::row, to.unit.rows = from.unit.rows;
    for (const int32_t n : from.unit.nodes) unit_of_[static_cast<size_t>(n)] = u;
    to.unit.nodes.insert(to.unit.nodes.end(), from.unit.nodes.begin(), from.unit.nodes.end());
    std::ranges::sort(to.unit.nodes);
    to.inputs.clear();
    to.layouts.clear();
    for (const int32_t n : to.unit.nodes) add_operands(to, n);
    order_.merge(u, v);
  }

  /// Merges maps, and units over the same rows, that read the same elements: they are then read once. Not those further
  /// apart than kNearby nodes, whose results would be held in between.
  void merge_siblings() {
    struct Reader {
      int unit;
      const Argument* x;
    };
    std::vector<std::vector<Reader>> readers(graph_.values.size());
    for (size_t u = 0; u < drafts_.size(); ++u)
      for (const UnitOperand& x : drafts_[u].inputs)
        if (x.x->kind == Argument::value && x.extent == Extent::wide)
          readers[static_cast<size_t>(x.x->value_index)].push_back({static_cast<int>(u), x.x});
    for (const std::vector<Reader>& list : readers)
      for (size_t i = 0; i < list.size(); ++i)
        for (size_t k = i + 1; k < list.size(); ++k) {
          const int u = merged_into(list[i].unit), v = merged_into(list[k].unit);
          const UnitDraft &a = draft(u), &b = draft(v);
          if (u == v || !is_same(*list[i].x, *list[k].x) || a.unit.kind != b.unit.kind ||
              distance(a.unit, b.unit) > kNearby || is_chain(a) != is_chain(b))
            continue;
          if (may_merge(u, v)) merge(u, v);
        }
  }

  /// Merges maps over the same few elements that share nothing, where a launch costs more than their elements.
  void merge_small() {
    std::vector<int> maps;
    for (size_t u = 0; u < drafts_.size(); ++u) {
      const Unit& unit = drafts_[u].unit;
      if (unit.nodes.empty() || unit.kind != Unit::map) continue;
      const Value& result = value(node(unit.nodes[0]).results[0]);
      if (result.layout.numel() <= kernels::backend(result.device).fused->few_elements)
        maps.push_back(static_cast<int>(u));
    }
    for (size_t i = 0; i < maps.size(); ++i)
      for (size_t k = i + 1; k < maps.size(); ++k) {
        const int u = merged_into(maps[i]), v = merged_into(maps[k]);
        if (u != v && distance(draft(u).unit, draft(v).unit) <= kNearby && may_merge(u, v)) merge(u, v);
      }
  }

  /// How many nodes later the later of two units begins than the other ends; not positive where they interleave.
  static int32_t distance(const Unit& a, const Unit& b) {
    return std::max(b.nodes.front() - a.nodes.back(), a.nodes.front() - b.nodes.back());
  }

  /// Whether a map's kernel would be slower if it computed anything but chains too.
  bool is_chain(const UnitDraft& d) const {
    const Device device = value(node(d.unit.nodes[0]).results[0]).device;
    const auto may_be_chain = kernels::backend(device).fused->may_be_chain;
    if (d.unit.kind != Unit::map || may_be_chain == nullptr) return false;
    std::vector<FusedStep> steps;
    for (const int32_t n : d.unit.nodes) steps.push_back(*candidates_[static_cast<size_t>(n)].map);
    std::vector<DType> inputs;
    for (const UnitOperand& x : d.inputs)
      if (x.x->kind == Argument::value) inputs.push_back(x.x->dtype);
    return may_be_chain(steps, inputs);
  }

  std::string why_not_map(int32_t n, int u) {
    const UnitDraft& d = draft(u);
    const Value& result = value(node(n).results[0]);
    if (result.layout.size_list() != d.unit.sizes) return "it has other elements";
    std::string why;
    const std::vector<UnitOperand> operands = *operands_of(Unit::map, {}, n, why);
    size_t inputs = d.inputs.size(), layouts = d.layouts.size();
    for (const UnitOperand& x : operands) {
      if (unit_of(*x.x) == u) {
        const Value& v = value(x.x->value_index);
        if (!is_whole(x.x->window, v) || !same_sizes(v.layout, result.layout))
          return "it reads only a part of a result, or in another order";
      } else if (find_input(d, x) == d.inputs.size()) {
        ++inputs;
      }
    }
    for (const Layout& l : layouts_of(n, operands, u)) layouts += std::ranges::find(d.layouts, l) == d.layouts.end();
    if (layouts > static_cast<size_t>(kernels::kMaxFusedLayouts))
      return "the kernel already has the maximum of layouts";
    if (inputs > static_cast<size_t>(kernels::kMaxFusedOperands))
      return "the kernel already has the maximum of operands";
    return {};
  }

  /// Why a node and the nodes of a map unit cannot form a row unit; empty if they can.
  std::string why_not_rows(int32_t n, int u, const RowDomain& rows, std::span<const int32_t> others) {
    const UnitDraft& d = draft(u);
    std::string why;
    size_t inputs = d.inputs.size();
    const auto check = [&](int32_t m) {
      const auto operands = operands_of(Unit::row, rows, m, why);
      if (!operands) return;
      for (const UnitOperand& x : *operands) {
        if (unit_of(*x.x) != u) {
          inputs += m == n && find_input(d, x) == d.inputs.size();
        } else if (x.x->window.offset != 0 || x.extent != extent_of_result(value(x.x->value_index).layout, rows)) {
          why = "it reads only a part of a result, or in another order";
        }
      }
    };
    check(n);
    for (const int32_t m : others)
      if (why.empty()) check(m);
    if (why.empty() && inputs > static_cast<size_t>(kernels::kMaxFusedOperands))
      return "the kernel already has the maximum of operands";
    return why;
  }

  /// The operands of a node as a part of a unit; none if it cannot be part of it.
  std::optional<std::vector<UnitOperand>> operands_of(Unit::Kind kind, const RowDomain& rows, int32_t n,
                                                      std::string& why) const {
    const Candidate& candidate = candidates_[static_cast<size_t>(n)];
    const auto argument = [&](int16_t k) { return &node(n).arguments[static_cast<size_t>(k)]; };
    std::vector<UnitOperand> operands;
    if (candidate.row) {
      const RowStep& step = candidate.row->step;
      if (candidate.row->rows != rows) why = "it has other rows";
      for (int k = 0; k < 3; ++k)
        if (step.in[k] >= 0)
          operands.push_back(
              {argument(step.in[k]), step.kind == RowStep::norm && k > 0 ? Extent::column : Extent::wide});
      return why.empty() ? std::optional(operands) : std::nullopt;
    }
    const Layout& result = value(node(n).results[0]).layout;
    const bool wide = result.numel() == rows.rows * rows.n;
    if (kind == Unit::row && !wide && result.numel() != rows.rows) why = "it has other elements";
    if (kind == Unit::row && !result.is_contiguous()) why = "its result is not contiguous";
    for (int k = 0; k < candidate.map->arity && why.empty(); ++k) {
      const Argument* x = argument(candidate.map->in[k]);
      UnitOperand& operand = operands.emplace_back(UnitOperand{x});
      if (kind == Unit::map) continue;
      const auto extent = x->kind == Argument::number
                              ? std::optional(Extent::single)
                              : extent_of(expand(x->window.layout, result.size_list()), {rows.rows, wide ? rows.n : 1});
      if (!extent) why = "an operand is not laid out in rows";
      operand.extent = extent.value_or(Extent::wide);
    }
    return why.empty() ? std::optional(operands) : std::nullopt;
  }

  /// The layouts that a node of a map reads and writes, except those of the unit's own results.
  std::vector<Layout> layouts_of(int32_t n, const std::vector<UnitOperand>& operands, int u) const {
    std::vector<Layout> layouts;
    const auto add = [&](const Layout& l) {
      if (std::ranges::find(layouts, l) == layouts.end()) layouts.push_back(l);
    };
    const Layout& result = value(node(n).results[0]).layout;
    for (const UnitOperand& x : operands)
      if (x.x->kind == Argument::value && unit_of(*x.x) != u) add(expand(x.x->window.layout, result.size_list()));
    add(result);
    return layouts;
  }

  /// Moves a sum over leading dimensions to the map that makes what it adds up, if the map can compute it. It reads
  /// nothing else, so the order of units stays possible.
  void join_sum(int32_t n) {
    const int own = unit_of_[static_cast<size_t>(n)], u = node(n).op == Op::sum ? unit_of(node(n).arguments[0]) : -1;
    if (u < 0 || draft(u).unit.kind != Unit::map || draft(own).unit.kind != Unit::library) return;
    std::string why;
    const auto rows = summed_rows(graph_, node(n), why);
    if (rows) why = why_not_sum(n, u, *rows);
    if (!why.empty()) draft(own).unit.refused = why;
    if (!rows || !why.empty()) return;
    draft(own) = {};
    draft(u).unit.nodes.push_back(n);
    draft(u).unit.rows = *rows;
    candidates_[static_cast<size_t>(n)].is_sum = true;
    unit_of_[static_cast<size_t>(n)] = u;
    order_.merge(u, own);
  }

  bool is_sum(int32_t n) const { return candidates_[static_cast<size_t>(n)].is_sum; }

  std::string why_not_sum(int32_t n, int u, const RowDomain& rows) {
    const UnitDraft& d = draft(u);
    const std::vector<int32_t>& nodes = d.unit.nodes;
    if (callbacks_[static_cast<size_t>(n)] != callbacks_[static_cast<size_t>(nodes[0])])
      return "the host is called in between";
    const auto sums = std::ranges::count_if(nodes, [&](int32_t m) { return is_sum(m); });
    if (sums == kernels::kMaxFusedSums) return "the kernel already has the maximum of sums";
    if (sums > 0 && d.unit.rows != rows) return "it has other rows";
    bool all_fit = true;
    const auto look = [&](const Layout& layout, DType dtype, bool is_written) {
      all_fit &= in_rows(expand(layout, d.unit.sizes), dtype, rows, is_written).has_value();
    };
    for (const UnitOperand& x : d.inputs)
      if (x.x->kind == Argument::value) look(x.x->window.layout, x.x->dtype, false);
    for (const int32_t m : nodes)
      if (const int32_t v = node(m).results[0]; !is_sum(m) && is_read_elsewhere_[static_cast<size_t>(v)])
        look(value(v).layout, value(v).dtype, true);
    return all_fit ? "" : "an operand is not laid out in rows of whole runs of 16 bytes";
  }

  /// Counts for each value how often its own unit reads it, and whether anything else does.
  void count_reads() {
    reads_inside_.assign(graph_.values.size(), 0);
    is_read_elsewhere_.assign(graph_.values.size(), false);
    const auto read_elsewhere = [&](const Argument& x) {
      if (x.kind == Argument::value) is_read_elsewhere_[static_cast<size_t>(x.value_index)] = true;
    };
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      for (const auto* list : {&graph_.nodes[n].arguments, &graph_.nodes[n].targets})
        for (const Argument& x : *list) {
          if (x.kind != Argument::value) continue;
          if (unit_of(x) == unit_of_[n])
            ++reads_inside_[static_cast<size_t>(x.value_index)];
          else
            read_elsewhere(x);
        }
    for (const GraphOutput& x : graph_.outputs) read_elsewhere(x.tensor);
    for (const GraphGrad& x : graph_.grads) read_elsewhere(x.gradient);
    for (const WriteBack& x : graph_.write_backs) is_read_elsewhere_[static_cast<size_t>(x.value)] = true;
  }

  /// Determines the inputs, steps and outputs of a fused unit.
  void finish(int u) {
    UnitDraft& d = draft(u);
    Unit& unit = d.unit;
    if (unit.nodes.empty()) return;  // it was merged into another
    if (unit.nodes.size() == 1 && (unit.kind == Unit::row || !is_written_back(unit.nodes[0]))) {
      unit.kind = Unit::library;
      unit.rows = {};
    }
    if (unit.kind == Unit::library) return;
    for (const UnitOperand& x : d.inputs) {
      unit.inputs.push_back(*x.x);
      if (unit.kind == Unit::row) unit.extents.push_back(x.extent);
    }
    for (const UnitOperand& x : d.inputs) {  // what several nodes read is read once
      if (x.x->kind != Argument::value || x.extent != Extent::wide) continue;
      const auto reads = std::ranges::count_if(unit.nodes, [&](int32_t n) {
        return std::ranges::any_of(node(n).arguments, [&](const Argument& y) { return is_same(*x.x, y); });
      });
      unit.bytes_saved += (reads - 1) * x.x->window.layout.extent() * size_of(x.x->dtype);
    }
    std::map<int32_t, int16_t> made;
    auto next = static_cast<int16_t>(unit.inputs.size());
    for (const int32_t n : unit.nodes) {
      if (is_sum(n)) continue;
      add_step(d, n, made);
      for (const int32_t result : node(n).results) made[result] = next++;
    }
    for (const int32_t n : unit.nodes)
      for (const int32_t result : node(n).results) {
        const int64_t bytes = value(result).layout.numel() * size_of(value(result).dtype);
        const int reads = reads_inside_[static_cast<size_t>(result)];
        const bool is_output = is_read_elsewhere_[static_cast<size_t>(result)];
        if (is_sum(n)) {
          unit.outputs.push_back(result);
          unit.sum_registers.push_back(made.at(node(n).arguments[0].value_index));
        } else if (unit.bytes_saved += bytes * (is_output ? reads : reads + 1); is_output) {
          unit.outputs.push_back(result);
          unit.output_registers.push_back(made.at(result));
        }
      }
  }

  /// Whether a map would write to the caller's memory where the operator alone would not.
  bool is_written_back(int32_t n) const {
    return std::ranges::count(graph_.write_backs, node(n).results[0], &WriteBack::value) > 0;
  }

  /// Adds a node as a step over the unit's registers.
  void add_step(UnitDraft& d, int32_t n, const std::map<int32_t, int16_t>& made) {
    Unit& unit = d.unit;
    const Candidate& candidate = candidates_[static_cast<size_t>(n)];
    std::string why;
    std::vector<int16_t> in;
    const auto operands = operands_of(unit.kind, unit.rows, n, why);
    for (const UnitOperand& x : *operands) {
      const bool is_made_here = unit_of(*x.x) == unit_of_[static_cast<size_t>(n)];
      in.push_back(is_made_here ? made.at(x.x->value_index) : static_cast<int16_t>(find_input(d, x)));
    }
    if (candidate.row) {
      RowStep& step = unit.row_steps.emplace_back(candidate.row->step);
      auto next = in.begin();
      for (int16_t& k : step.in)
        if (k >= 0) k = *next++;
      return;
    }
    FusedStep step = *candidate.map;
    std::ranges::copy(in, step.in);
    if (unit.kind == Unit::map) {
      unit.steps.push_back(step);
      return;
    }
    RowStep& row = unit.row_steps.emplace_back();
    row.pointwise = step;
    row.result[0] = {step.dtype, extent_of_result(value(node(n).results[0]).layout, unit.rows)};
  }

  /// Topological order; ties by first node.
  std::vector<Unit> in_order() {
    std::vector<Unit> ordered;
    std::vector<bool> done(drafts_.size(), false);
    const auto visit = [&](const auto& self, size_t u) -> void {
      if (done[u]) return;
      done[u] = true;
      for (const int maker : order_.needs(static_cast<int>(u))) self(self, static_cast<size_t>(maker));
      if (!drafts_[u].unit.nodes.empty()) ordered.push_back(std::move(drafts_[u].unit));
    };
    for (size_t u = 0; u < drafts_.size(); ++u) visit(visit, u);
    return ordered;
  }

  const Graph& graph_;
  std::vector<UnitDraft> drafts_;
  UnitOrder order_;                    ///< of the drafts
  std::vector<Candidate> candidates_;  ///< of each node
  std::vector<int> unit_of_;           ///< of each node
  std::vector<size_t> callbacks_;      ///< per node: the number of host callbacks before it
  std::vector<bool> is_apart_;         ///< per node
  std::vector<int> reads_inside_;
  std::vector<bool> is_read_elsewhere_;
};

}  // namespace

bool is_fusible(const Graph& graph, const Node& node) {
  std::string why;
  return pointwise_step(graph, node).has_value() || row_node(graph, node, why).has_value();
}

std::vector<Unit> fuse(const Graph& graph, bool column_sums, const std::vector<std::vector<int32_t>>& apart) {
  return Fuser(graph, apart).run(column_sums);
}

}  // namespace lorry::compiler
