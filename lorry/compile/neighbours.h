#pragma once

// Units and who reads what they make, for passes that join units after fuse().

#include <string>
#include <vector>

#include "lorry/compile/fuse.h"

namespace lorry::compiler {

class Neighbours {
 public:
  Neighbours(const trace::Graph& graph, std::vector<Unit>& units);

  const trace::Graph& graph() const { return graph_; }
  const trace::Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const trace::Value& value(int32_t v) const { return graph_.values[static_cast<size_t>(v)]; }
  int32_t result(int32_t n) const { return node(n).results[0]; }
  Unit& unit(int32_t n) const { return units_[unit_of(n)]; }
  /// The index of the unit of a node.
  size_t unit_of(int32_t n) const { return unit_of_[static_cast<size_t>(n)]; }
  /// The nodes that read a value: a node for each time.
  const std::vector<int32_t>& readers(int32_t v) const { return readers_[static_cast<size_t>(v)]; }
  /// Whether a value outlives the run: a result, a gradient, or what is written back.
  bool outlives(int32_t v) const { return outlives_[static_cast<size_t>(v)]; }
  int64_t bytes(const trace::Argument& x) const { return x.window.layout.numel() * size_of(x.dtype); }
  int64_t bytes(int32_t v) const { return value(v).layout.numel() * size_of(value(v).dtype); }

  /// Whether a node is a unit by itself that a library runs.
  bool is_free(int32_t n) const { return unit(n).kind == Unit::library && unit(n).nodes.size() == 1; }
  bool reads_whole(const trace::Argument& x, int32_t v) const {
    return x.kind == trace::Argument::value && x.value_index == v && is_whole(x.window, value(v));
  }
  /// The operand that an addition adds to a value; null if they, or the sum, differ in layout or dtype.
  const trace::Argument* addend(const trace::Node& add, int32_t v) const;
  /// The first free node of this operator that reads a value and is accepted; -1 if there is none.
  template <class Accept>
  int32_t free_reader(int32_t v, Op op, const Accept& accept) const {
    for (const int32_t n : readers(v))
      if (node(n).op == op && node(n).form == trace::Node::pure && is_free(n) && accept(node(n))) return n;
    return -1;
  }
  /// Whether the host is called between some of these nodes. What it does may not move to the other side of a node.
  bool host_is_called_between(const std::vector<int32_t>& nodes) const;

  /// Makes one unit of the units of these nodes, in the place of that of nodes[0]. The caller sets its kind.
  Unit& join(const std::vector<int32_t>& nodes);
  /// Removes what join() left empty, and puts the units in an order in which they can run.
  void finish();
  /// Whether a unit of these nodes could run: no other node that reads one of them makes something for another.
  bool may_join(const std::vector<int32_t>& nodes) const;

 private:
  const trace::Graph& graph_;
  std::vector<Unit>& units_;
  std::vector<size_t> unit_of_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<bool> outlives_;
};

}  // namespace lorry::compiler
