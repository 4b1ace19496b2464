#include "lorry/trace/symbolic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "lorry/trace/guard.h"
#include "lorry/trace/shapes.h"

namespace lorry::trace {
namespace {

// ---- the integers and numbers of a graph ----------------------------------------------------------------------------

/// Calls f for every layout, in a fixed order, which begins with the arguments.
template <class G, class F>
void for_each_layout(G& graph, const F& f) {
  const auto argument = [&](auto& x) {
    if (x.kind != Argument::undefined && x.kind != Argument::number) f(x.window.layout);
  };
  for (auto& x : graph.arguments) argument(x);
  for (auto& x : graph.values) f(x.layout);
  for (auto& node : graph.nodes) {
    for (auto& x : node.arguments) argument(x);
    for (auto& x : node.targets) argument(x);
  }
  for (auto& x : graph.outputs) argument(x.tensor);
  for (auto& x : graph.grads) argument(x.gradient);
  for (auto& x : graph.views) f(x.from), f(x.to);
}

/// Calls f for every size, stride, offset and integer attribute, in a fixed order: first those of the layouts.
template <class G, class F>
void for_each_integer(G& graph, const F& f) {
  for_each_layout(graph, [&](auto& layout) {
    for (int d = 0; d < layout.rank; ++d) f(layout.sizes[d]), f(layout.strides[d]);
  });
  for (auto& x : graph.arguments) f(x.window.offset);
  for (auto& x : graph.inputs) f(x.offset);
  const auto attributes = [&](auto& list) {
    for (auto& a : list) {
      if (auto* integer = std::get_if<int64_t>(&a)) f(*integer);
      if (auto* dims = std::get_if<Dims>(&a))
        for (int i = 0; i < dims->size(); ++i) f((*dims)[i]);
      if (auto* integers = std::get_if<std::vector<int64_t>>(&a))
        for (auto& x : *integers) f(x);
    }
  };
  for (auto& node : graph.nodes) {
    for (auto& x : node.arguments) f(x.window.offset);
    for (auto& x : node.targets) f(x.window.offset);
    attributes(node.attributes);
  }
  for (auto& x : graph.outputs) f(x.tensor.window.offset);
  for (auto& x : graph.grads) f(x.gradient.window.offset);
  for (auto& x : graph.views) f(x.offset), attributes(x.attributes);
}

/// What operators and programs ask of a layout beside its sizes: which are 0 or 1, which dimensions are one run of
/// memory with the next, and whether the last is contiguous.
uint32_t class_of(const Layout& x) {
  uint32_t bits = 1;
  for (int d = 0; d < x.rank; ++d) {
    const bool last = d + 1 == x.rank;
    bits = bits << 3 | (x.sizes[d] == 0 ? 1u : 0u) << 2 | (x.sizes[d] == 1 ? 1u : 0u) << 1 |
           (x.strides[d] == (last ? 1 : x.strides[d + 1] * x.sizes[d + 1]) ? 1u : 0u);
  }
  return bits;
}

std::vector<uint32_t> classes_of(const Graph& graph) {
  std::vector<uint32_t> classes;
  for_each_layout(graph, [&](const Layout& x) { classes.push_back(class_of(x)); });
  return classes;
}

/// Calls f for every number among operands and attributes, a Scalar or a double.
template <class G, class F>
void for_each_number(G& graph, const F& f) {
  for (auto& node : graph.nodes) {
    for (auto& x : node.arguments)
      if (x.kind == Argument::number) f(x.scalar);
    for (auto& a : node.attributes) {
      if (auto* scalar = std::get_if<Scalar>(&a)) f(*scalar);
      if (auto* number = std::get_if<double>(&a)) f(*number);
    }
  }
}

double value_of(double x) { return x; }
double value_of(const Scalar& x) { return x.to<double>(); }

std::vector<int64_t> integers_of(const Graph& graph) {
  std::vector<int64_t> all;
  for_each_integer(graph, [&](int64_t x) { all.push_back(x); });
  return all;
}

std::vector<double> numbers_of(const Graph& graph) {
  std::vector<double> all;
  for_each_number(graph, [&](const auto& x) { all.push_back(value_of(x)); });
  return all;
}

// ---- what must be the same ------------------------------------------------------------------------------------------

bool same_kind(const Argument& a, const Argument& b) {
  if (a.kind != b.kind || a.value_index != b.value_index) return false;
  if (a.kind == Argument::number) return a.scalar.dtype() == b.scalar.dtype();
  return a.kind == Argument::undefined ||
         (a.dtype == b.dtype && a.device == b.device && a.window.layout.rank == b.window.layout.rank);
}

/// Integers and numbers may differ.
bool same_kind(const door::Attribute& a, const door::Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&]<class T>(const T& x) {
        const T& y = std::get<T>(b);
        if constexpr (std::is_same_v<T, Dims> || std::is_same_v<T, std::vector<int64_t>>)
          return x.size() == y.size();
        else if constexpr (std::is_same_v<T, Scalar>)
          return x.dtype() == y.dtype();
        else if constexpr (std::is_same_v<T, formula::RandomKey>)
          return x.seed == y.seed && x.offset == y.offset && x.state == y.state;
        else
          return std::is_same_v<T, int64_t> || std::is_same_v<T, double> || is_same(a, b);
      },
      a);
}

bool same_kind(const Value& a, const Value& b) {
  return a.dtype == b.dtype && a.device == b.device && a.layout.rank == b.layout.rank && a.node == b.node;
}

bool same_kind(const GraphInput& a, const GraphInput& b) {
  const auto storage = [](const GraphInput& x) {
    return x.argument >= 0 || x.is_gradient || x.captured == nullptr ? 0 : x.captured->tensor().storage().id();
  };
  const auto is_same = [](const auto& x, const auto& y) {
    return (x == nullptr) == (y == nullptr) && (x == nullptr || x->is(y->tensor()));
  };
  return a.value == b.value && a.argument == b.argument && a.is_gradient == b.is_gradient &&
         a.gradient_of == b.gradient_of && storage(a) == storage(b) && is_same(a.leaf, b.leaf) &&
         std::ranges::equal(a.tensors, b.tensors, is_same);
}

bool same_kind(const GraphConstant& a, const GraphConstant& b) {
  return a.value == b.value && a.tensor.dtype() == b.tensor.dtype() && a.tensor.layout() == b.tensor.layout() &&
         is_comparable(a) && is_comparable(b) &&
         std::memcmp(a.tensor.node()->data(), b.tensor.node()->data(), static_cast<size_t>(a.tensor.nbytes())) == 0;
}

bool same_kind(const GraphOutput& a, const GraphOutput& b) {
  return a.input == b.input && same_kind(a.tensor, b.tensor);
}
bool same_kind(const GraphGenerator& a, const GraphGenerator& b) {
  return a.sequence == b.sequence && a.draws == b.draws;
}
bool same_kind(const WriteBack& a, const WriteBack& b) { return a.input == b.input && a.value == b.value; }
bool same_kind(const GraphGrad& a, const GraphGrad& b) {
  return a.input == b.input && a.was_none == b.was_none && same_kind(a.gradient, b.gradient);
}
bool same_kind(const HostCallback& a, const HostCallback& b) {
  return a.position == b.position && a.name == b.name && a.is_for_all_sizes && b.is_for_all_sizes;
}

bool same_kind(const Node& a, const Node& b);
bool same_kind(const ViewCall& a, const ViewCall& b);

template <class T>
bool all_same_kind(const std::vector<T>& a, const std::vector<T>& b) {
  return std::ranges::equal(a, b, [](const T& x, const T& y) { return same_kind(x, y); });
}

bool same_kind(const Node& a, const Node& b) {
  return a.op == b.op && a.form == b.form && a.run == b.run && a.results == b.results && a.generator == b.generator &&
         a.scope == b.scope && all_same_kind(a.arguments, b.arguments) && all_same_kind(a.targets, b.targets) &&
         all_same_kind(a.attributes, b.attributes);
}

bool same_kind(const ViewCall& a, const ViewCall& b) {
  return a.op == b.op && a.from.rank == b.from.rank && a.to.rank == b.to.rank &&
         all_same_kind(a.attributes, b.attributes);
}

bool same_kind(const Graph& a, const Graph& b) {
  return a.backward_from == b.backward_from && all_same_kind(a.arguments, b.arguments) &&
         all_same_kind(a.values, b.values) && all_same_kind(a.nodes, b.nodes) && all_same_kind(a.inputs, b.inputs) &&
         all_same_kind(a.constants, b.constants) && all_same_kind(a.generators, b.generators) &&
         all_same_kind(a.outputs, b.outputs) && all_same_kind(a.write_backs, b.write_backs) &&
         all_same_kind(a.grads, b.grads) && all_same_kind(a.callbacks, b.callbacks) && all_same_kind(a.views, b.views);
}

/// Whether sizes are equal where they are in the other graph, and are 0 or 1 where they are.
bool same_equalities(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::map<int64_t, int64_t> there, back;
  for (size_t i = 0; i < a.size(); ++i) {
    if ((a[i] <= 1 || b[i] <= 1) && a[i] != b[i]) return false;
    if (there.emplace(a[i], b[i]).first->second != b[i] || back.emplace(b[i], a[i]).first->second != a[i]) return false;
  }
  return true;
}

/// Whether the inputs in captured memory lie in it, and apart from each other.
bool fits_captured_memory(const Graph& graph) {
  std::map<uint64_t, std::vector<std::pair<int64_t, int64_t>>> used;
  for (const GraphInput& x : graph.inputs) {
    if (x.argument >= 0 || x.is_gradient) continue;
    const Tensor& from = x.captured->tensor();
    const int64_t first = from.storage_offset() + x.offset,
                  end = first + graph.values[static_cast<size_t>(x.value)].layout.extent();
    if (first < 0 || end * size_of(from.dtype()) > from.storage().bytes()) return false;
    used[from.storage().id()].emplace_back(first, end);
  }
  for (auto& [storage, ranges] : used) {
    std::ranges::sort(ranges);
    for (size_t i = 1; i < ranges.size(); ++i)
      if (ranges[i].first < ranges[i - 1].second) return false;
  }
  return true;
}

/// The sizes of the first arguments of a graph.
std::vector<int64_t> argument_sizes(const Graph& graph, size_t arguments) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < arguments; ++i)
    for (const int64_t size : graph.arguments[i].window.layout.size_list()) sizes.push_back(size);
  return sizes;
}

}  // namespace

bool is_comparable(const GraphConstant& x) { return x.tensor.device().is_cpu() && x.tensor.nbytes() <= 4096; }

// ---- samples --------------------------------------------------------------------------------------------------------

SymbolicGraph::SymbolicGraph(const Graph& graph, const Recording& recording, size_t arguments, bool uses_reads)
    : graph_(graph),
      arguments_(arguments),
      uses_reads_(uses_reads),
      reads_(recording.size_reads),
      classes_(classes_of(graph)) {
  std::map<int64_t, int32_t> known;
  for (const int64_t x : integers_of(graph)) {
    const auto [at, is_new] = known.emplace(x, static_cast<int32_t>(columns_.size()));
    if (is_new) columns_.push_back({x});
    column_of_.push_back(at->second);
  }
  for (const double x : numbers_of(graph)) numbers_.push_back({x});
  tie(recording);
  solve();
}

/// Sets tied_by_ if the function's own code did what may depend on sizes.
void SymbolicGraph::tie(const Recording& recording) {
  if (!tied_by_.empty()) return;
  if (recording.went_on_after_error) tied_by_ = "the function went on after an error";
  if (uses_reads_ || !tied_by_.empty()) return;
  const auto same = [](const SizeRead& a, const SizeRead& b) { return a.sizes == b.sizes; };
  const auto [mine, other] = std::ranges::mismatch(reads_, recording.size_reads, same);
  const bool too_many = reads_.size() == kMostSizeReads;
  if (mine == reads_.end() && other == recording.size_reads.end() && !too_many) return;
  const std::string where = other != recording.size_reads.end() ? other->where()
                            : mine != reads_.end()              ? mine->where()
                                                                : "";
  tied_by_ = fmt::format("the function reads a size that changes, or cuts a tensor by it{}",
                         where.empty() ? "" : fmt::format(" ({})", where));
}

bool SymbolicGraph::add(const Graph& graph, const Recording& recording) {
  if (is_full() || !same_kind(graph_, graph) || classes_of(graph) != classes_) return false;
  if (!same_equalities(argument_sizes(graph_, arguments_), argument_sizes(graph, arguments_))) return false;
  const std::vector<int64_t> integers = integers_of(graph);
  if (integers.size() != column_of_.size()) return false;
  std::map<std::pair<int32_t, int64_t>, int32_t> known;
  std::vector<std::vector<int64_t>> columns;
  for (size_t i = 0; i < integers.size(); ++i) {
    const auto [at, is_new] =
        known.emplace(std::pair(column_of_[i], integers[i]), static_cast<int32_t>(columns.size()));
    if (is_new) {
      columns.push_back(columns_[static_cast<size_t>(column_of_[i])]);
      columns.back().push_back(integers[i]);
    }
    column_of_[i] = at->second;
  }
  columns_ = std::move(columns);
  const std::vector<double> numbers = numbers_of(graph);
  for (size_t i = 0; i < numbers.size(); ++i) numbers_[i].push_back(numbers[i]);
  ++samples_;
  tie(recording);
  solve();
  return true;
}

// ---- expressions ----------------------------------------------------------------------------------------------------

std::optional<int64_t> SymbolicGraph::Expression::value(std::span<const int64_t> symbols) const {
  int64_t x = numerator;
  for (size_t s = 0; s < symbols.size(); ++s)
    for (int power = 0; power < powers[s]; ++power)
      if (__builtin_mul_overflow(x, symbols[s], &x)) return std::nullopt;
  if (x % denominator != 0 || __builtin_add_overflow(x / denominator, added, &x)) return std::nullopt;
  return x;
}

/// Symbols are the sizes of arguments that change and do not follow from earlier ones. A size that follows from others
/// is checked in each call.
void SymbolicGraph::find_symbols() {
  symbols_.clear();
  size_t integer = 0;
  for (size_t i = 0; i < arguments_; ++i) {
    const int rank = graph_.arguments[i].window.layout.rank;
    for (int d = 0; d < rank; ++d) {
      const int32_t column = column_of_[integer + 2 * static_cast<size_t>(d)];
      if (!fit(columns_[static_cast<size_t>(column)]) && symbols_.size() < kMostSymbols)
        symbols_.push_back({i, d, column});
    }
    integer += 2 * static_cast<size_t>(rank);
  }
}

void SymbolicGraph::solve() {
  expressions_.clear();
  number_of_.clear();
  find_symbols();
  why_not_ = samples_ < 2 ? "there is one recording" : !tied_by_.empty() ? tied_by_ : why_not_solved();
}

/// Whether each symbol has changed while the others did not, or there are so many graphs that a product which fits by
/// chance is out of the question.
bool SymbolicGraph::tells_symbols_apart() const {
  if (samples_ >= 2 + 2 * symbols_.size()) return true;
  const auto differs = [&](const Symbol& s, size_t i, size_t k) {
    const std::vector<int64_t>& column = columns_[static_cast<size_t>(s.column)];
    return column[i] != column[k];
  };
  return std::ranges::all_of(symbols_, [&](const Symbol& s) {
    for (size_t i = 0; i < samples_; ++i)
      for (size_t k = 0; k < i; ++k)
        if (differs(s, i, k) &&
            std::ranges::all_of(symbols_, [&](const Symbol& other) { return &other == &s || !differs(other, i, k); }))
          return true;
    return false;
  });
}

std::string SymbolicGraph::why_not_solved() {
  if (!tells_symbols_apart())
    return fmt::format("several sizes change at once; {} recordings do not tell them apart", samples_);
  for (const std::vector<int64_t>& column : columns_) {
    const std::optional<Expression> found = fit(column);
    if (!found)
      return fmt::format("{} recordings do not tell how a size or stride follows from the arguments' sizes", samples_);
    expressions_.push_back(*found);
  }
  for (const std::vector<double>& values : numbers_) {
    const std::optional<Number> found = fit_number(values);
    if (!found) return fmt::format("{} recordings do not tell how a number follows from sizes", samples_);
    number_of_.push_back(*found);
  }
  for (const ViewCall& x : graph_.views)
    if (!holds(x)) return fmt::format("a view cannot be checked: {}", name(x.op));
  return why_shapes_differ(graph_);
}

/// The expression that a column is. Nothing if there is none, or if several fit.
std::optional<SymbolicGraph::Expression> SymbolicGraph::fit(const std::vector<int64_t>& column) const {
  const std::vector<Expression> products = products_of(column);
  return products.empty() ? sum(column) : products.size() == 1 ? std::optional(products[0]) : std::nullopt;
}

size_t SymbolicGraph::distinct(const Symbol& s) const {
  const std::vector<int64_t>& column = columns_[static_cast<size_t>(s.column)];
  return std::set(column.begin(), column.end()).size();
}

/// All products of at most three symbols, with a factor, that a column may be. A power counts twice until its symbol
/// has had three sizes, because a sum goes through any two.
std::vector<SymbolicGraph::Expression> SymbolicGraph::products_of(const std::vector<int64_t>& column) const {
  constexpr int kMostFactors = 3;
  if (std::ranges::count(column, 0) > 0)  // a product of sizes is 0 always or never
    return column == std::vector<int64_t>(column.size(), 0) ? std::vector<Expression>{{}} : std::vector<Expression>{};
  std::vector<Expression> found;
  Expression x;
  const auto product = [&](size_t sample) {
    __int128 value = 1;
    for (size_t s = 0; s < symbols_.size(); ++s)
      for (int i = 0; i < x.powers[s]; ++i) value *= columns_[static_cast<size_t>(symbols_[s].column)][sample];
    return value;
  };
  const auto add_match = [&] {
    const __int128 first = product(0);
    if (first > INT64_MAX || first <= 0) return;
    for (size_t i = 1; i < column.size(); ++i)
      if (__int128(column[i]) * first != __int128(column[0]) * product(i)) return;
    const auto below = static_cast<int64_t>(first);
    const int64_t common = std::gcd(column[0], below);
    x.numerator = column[0] / common;
    x.denominator = below / common;
    found.push_back(x);
    for (size_t s = 0; s < symbols_.size(); ++s)
      if (x.powers[s] > 1 && distinct(symbols_[s]) < 3) found.push_back(x);
  };
  const auto try_from = [&](const auto& self, size_t s, int factors) -> void {
    add_match();
    if (factors == kMostFactors) return;
    for (; s < symbols_.size(); ++s) {
      ++x.powers[s];
      self(self, s, factors + 1);
      --x.powers[s];
    }
  };
  try_from(try_from, 0, 0);
  return found;
}

/// The whole multiple of one symbol, plus a constant, that a column is. It takes three graphs to tell.
std::optional<SymbolicGraph::Expression> SymbolicGraph::sum(const std::vector<int64_t>& column) const {
  std::optional<Expression> found;
  for (size_t s = 0; s < symbols_.size(); ++s) {
    const std::vector<int64_t>& symbol = columns_[static_cast<size_t>(symbols_[s].column)];
    if (distinct(symbols_[s]) < 3) continue;
    const size_t other =
        static_cast<size_t>(std::ranges::find_if(symbol, [&](int64_t x) { return x != symbol[0]; }) - symbol.begin());
    const int64_t rise = column[other] - column[0], run = symbol[other] - symbol[0];
    if (rise % run != 0) continue;
    Expression x{.numerator = rise / run, .added = column[0] - rise / run * symbol[0]};
    x.powers[s] = 1;
    bool matches = true;
    for (size_t i = 0; i < column.size(); ++i) matches &= column[i] == x.numerator * symbol[i] + x.added;
    if (!matches) continue;
    if (found) return std::nullopt;
    found = x;
  }
  return found;
}

/// The expression of a number that counts elements, or of one divided by such a number (the factor of a mean). One that
/// changes must have had three values: it may also be a number of the function's own that changed.
std::optional<SymbolicGraph::Number> SymbolicGraph::fit_number(const std::vector<double>& values) {
  const auto bits = [](double x) { return std::bit_cast<int64_t>(x); };
  const std::set<double> all(values.begin(), values.end());
  const bool is_constant = std::ranges::all_of(values, [&](double x) { return bits(x) == bits(values[0]); });
  if (!is_constant && all.size() < 3) return std::nullopt;
  for (const bool is_reciprocal : {false, true}) {
    std::vector<int64_t> column;
    for (const double x : values) {
      const double whole = is_reciprocal ? std::round(1 / x) : x;
      if (!(std::abs(whole) < 0x1p53) || whole != std::trunc(whole)) break;
      if (bits(is_reciprocal ? 1 / whole : whole) != bits(x)) break;
      column.push_back(static_cast<int64_t>(whole));
    }
    if (column.size() < values.size()) continue;
    const std::optional<Expression> found = fit(column);
    if (!found) return std::nullopt;
    if (is_constant) return Number{};
    expressions_.push_back(*found);
    return Number{static_cast<int32_t>(expressions_.size()) - 1, is_reciprocal};
  }
  return is_constant ? std::optional(Number{}) : std::nullopt;
}

// ---- further sizes --------------------------------------------------------------------------------------------------

/// Whether the arguments differ from the recorded ones in symbols only; then sets the symbols.
bool SymbolicGraph::accepts(std::span<const Tensor> arguments, std::vector<int64_t>& symbols) const {
  if (arguments.size() != arguments_) return false;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& recorded = graph_.arguments[i];
    const Tensor& x = arguments[i];
    if (x.dtype() != recorded.dtype || x.device() != recorded.device || x.dim() != recorded.window.layout.rank)
      return false;
    for (const int64_t size : x.sizes()) sizes.push_back(size);
  }
  if (!same_equalities(argument_sizes(graph_, arguments_), sizes)) return false;
  for (const Symbol& s : symbols_) symbols.push_back(arguments[s.argument].layout().sizes[s.dim]);
  size_t integer = 0;
  const auto has_value = [&](int64_t x) {
    return expressions_[static_cast<size_t>(column_of_[integer++])].value(symbols) == x;
  };
  for (const Tensor& x : arguments) {
    const Layout& layout = x.layout();
    for (int d = 0; d < layout.rank; ++d)
      if (!has_value(layout.sizes[d]) || !has_value(layout.strides[d])) return false;
  }
  return true;
}

std::optional<Graph> SymbolicGraph::make(std::span<const Tensor> arguments) const {
  std::vector<int64_t> symbols;
  if (!why_not_.empty() || !accepts(arguments, symbols)) return std::nullopt;
  std::vector<int64_t> values;
  for (const Expression& x : expressions_) {
    const std::optional<int64_t> value = x.value(symbols);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  Graph graph = graph_;
  size_t i = 0;
  for_each_integer(graph, [&](int64_t& x) { x = values[static_cast<size_t>(column_of_[i++])]; });
  i = 0;
  for_each_number(graph, [&](auto& x) {
    const Number& number = number_of_[i++];
    if (number.expression < 0) return;
    const auto count = static_cast<double>(values[static_cast<size_t>(number.expression)]);
    if constexpr (std::is_same_v<std::decay_t<decltype(x)>, Scalar>) {
      if (!x.is_floating())
        x = Scalar(values[static_cast<size_t>(number.expression)]);
      else
        x = Scalar(number.is_reciprocal ? 1 / count : count);
    } else {
      x = number.is_reciprocal ? 1 / count : count;
    }
  });
  if (classes_of(graph) != classes_ || !std::ranges::all_of(graph.views, holds) || !fits_captured_memory(graph))
    return std::nullopt;
  try {
    verify(graph);
  } catch (const CompileError&) {  // a window would reach outside its value: the function itself may throw
    return std::nullopt;
  }
  if (!why_shapes_differ(graph).empty()) return std::nullopt;
  return graph;
}

bool SymbolicGraph::may_run_again() const { return Guard(graph_).may_hold_again(); }

std::string SymbolicGraph::describe() const {
  std::string text;
  for (size_t s = 0; s < symbols_.size(); ++s)
    text += fmt::format("{}s{} = size {} of argument {}", s == 0 ? "" : ", ", s, symbols_[s].dim, symbols_[s].argument);
  return text;
}

}  // namespace lorry::trace
