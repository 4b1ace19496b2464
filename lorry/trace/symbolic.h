#pragma once

// Symbolic sizes: graphs that one function was recorded with for several sizes, and the graph for further sizes that
// follows from them. A size, stride, offset or number that is not the same in all of them is a symbol (a size of an
// argument), or follows from the symbols: a product such as 3 * s0 * s1, or a sum such as s0 + 4.
//
//   SymbolicGraph graph(recorded_with_8_rows, ...);
//   graph.add(recorded_with_16_rows, ...);
//   graph.make(arguments_with_24_rows);   // the graph that a recording with 24 rows would give
//
// An expression is used only if no other one fits the graphs that were added. What the graph for other sizes must pass:
//   - each node's results have the layouts that the operator gives them on the meta device;
//   - each view that the function made gives the layout that follows from it;
//   - every layout has the same dimensions of 0 and 1 and the same runs of memory as the recorded one;
//   - sizes of arguments that were equal are equal, and those that were different are different.
// What the function's own code does with sizes cannot be seen in graphs, so the recorder notes which it reads
// (SizeRead). If such a size changes, no graph is made.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lorry/trace/graph.h"

namespace lorry::trace {

/// Whether a constant can be compared with that of another recording: it is small, and on the CPU.
bool is_comparable(const GraphConstant& x);

class SymbolicGraph {
 public:
  /// arguments: the number of the graph's arguments that a caller gives; the others follow from them. uses_reads: sizes
  /// that the function reads only shape tensors, so that they may change.
  SymbolicGraph(const Graph& graph, const Recording& recording, size_t arguments, bool uses_reads);

  /// Adds the graph of a recording for other sizes. False, and nothing changes, if it has other operators or operands,
  /// captured other tensors, or lays out tensors otherwise (above).
  bool add(const Graph& graph, const Recording& recording);
  /// At most 8 graphs are added.
  bool is_full() const { return samples_ >= kMostSamples; }
  /// Whether no graph can be made, whatever else is added.
  bool is_hopeless() const { return !tied_by_.empty() || (is_full() && !why_not_.empty()); }
  /// The number of graphs added, with the first.
  size_t samples() const { return samples_; }
  /// Why no graph can be made: there is only one so far, or something that changes follows from no symbol, or the
  /// function reads a size that changes. Empty if graphs can be made.
  const std::string& why_not() const { return why_not_; }
  /// The graph for these arguments; nothing if why_not() is not empty, or if they differ from the recorded ones in more
  /// than symbols.
  std::optional<Graph> make(std::span<const Tensor> arguments) const;
  /// False once a captured tensor no longer exists: then no graph that is made can run.
  bool may_run_again() const;
  /// The symbols and where they are: "s0 = size 0 of argument 1".
  std::string describe() const;

 private:
  static constexpr size_t kMostSamples = 8, kMostSymbols = 6;

  /// numerator / denominator * the product of symbols to the powers + added
  struct Expression {
    int64_t numerator = 0, denominator = 1, added = 0;
    std::array<uint8_t, kMostSymbols> powers{};
    /// Nothing if it is no whole number or does not fit into 64 bits.
    std::optional<int64_t> value(std::span<const int64_t> symbols) const;
  };
  /// A symbol is the size of a dimension of an argument.
  struct Symbol {
    size_t argument;
    int dim;
    int32_t column;
  };
  /// A number among the operands: the expression, or 1 / the expression.
  struct Number {
    int32_t expression = -1;  ///< -1: constant
    bool is_reciprocal = false;
  };

  void tie(const Recording& recording);
  void solve();
  std::string why_not_solved();
  void find_symbols();
  bool tells_symbols_apart() const;
  /// How many sizes a symbol has had.
  size_t distinct(const Symbol& s) const;
  std::optional<Expression> fit(const std::vector<int64_t>& column) const;
  std::vector<Expression> products_of(const std::vector<int64_t>& column) const;
  std::optional<Expression> sum(const std::vector<int64_t>& column) const;
  std::optional<Number> fit_number(const std::vector<double>& values);
  bool accepts(std::span<const Tensor> arguments, std::vector<int64_t>& symbols) const;

  Graph graph_;  ///< the first
  size_t arguments_;
  bool uses_reads_;
  std::vector<SizeRead> reads_;
  std::string tied_by_;            ///< what may depend on sizes that change; empty if nothing does
  std::vector<uint32_t> classes_;  ///< of the graph's layouts
  size_t samples_ = 1;
  /// Integers of the graph in their order (for_each_integer): the column of each. A column holds an integer of each
  /// graph that was added; equal columns are one.
  std::vector<int32_t> column_of_;
  std::vector<std::vector<int64_t>> columns_;
  std::vector<std::vector<double>> numbers_;  ///< per number of the graph: its values
  std::vector<Symbol> symbols_;
  std::vector<Expression> expressions_;  ///< per column, then those of numbers
  std::vector<Number> number_of_;
  std::string why_not_;
};

}  // namespace lorry::trace
