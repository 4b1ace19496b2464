#include <algorithm>
#include <climits>

#include "lorry/optim/execution/program_step.h"

namespace lorry::optim::detail {
namespace {

/// Orders the operations of a step, and chooses the memory of their values.
class BufferAllocator {
 public:
  BufferAllocator(const StepShape& shape, const RecordedStep& step, const std::vector<int>& uses, int states)
      : shape_(shape), nodes_(step.nodes), results_(step.results), uses_(uses), at_(step.nodes.size()) {
    allocate_copies(states);
  }

  Program run() {
    locate_numbers();
    order();
    for (const Node& node : nodes_) locate_input(node);
    for (size_t i = 0; i < items_.size(); ++i) emit(static_cast<int>(i));
    emit_moves();
    return std::move(program_);
  }

 private:
  /// An instruction of the program, in order.
  struct Item {
    Instruction::Kind kind;
    int node;         ///< that it computes; a compress reads it
    int result = -1;  ///< that a compress writes
  };
  /// Memory of an array, and the node whose value it holds; -1: none.
  struct Unit {
    Location location;
    int64_t width;
    int holds = -1;
  };

  const Node& node(const Term& x) const { return nodes_[static_cast<size_t>(x.node)]; }

  /// Buffers for copies of states: of those in pinned memory, and of parts of 8-bit states, whose codes and scales are
  /// not adjacent. Two bytes per element are enough for codes and scales.
  void allocate_copies(int states) {
    std::fill(std::begin(program_.copies), std::end(program_.copies), -1);
    for (int k = 0; k < states + shape_.has_master(); ++k) {
      const StateType type = k < states && shape_.is_compressed(k) ? shape_.memory.states[k] : StateType::f32;
      if (shape_.memory.placement != Placement::pinned && !(shape_.in_parts && type == StateType::q8)) continue;
      const bool half = type != StateType::f32 || (k == states && shape_.masters() == Masters::split);
      program_.copies[k] = static_cast<int>(program_.buffers.size());
      program_.buffers.push_back(half ? 2 : shape_.dtype == kF64 ? 8 : 4);
    }
  }

  void locate_numbers() {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Node& x = nodes_[n];
      if (x.array || uses_[n] == 0) continue;
      switch (x.from) {
        case Node::From::hyper:
          at_[n] = {.kind = Location::Kind::hyper, .index = x.index, .dtype = x.dtype};
          break;
        case Node::From::setting:
          at_[n] = {.kind = Location::Kind::setting, .index = x.index, .dtype = x.dtype};
          break;
        case Node::From::factor:
          at_[n] = {.kind = Location::Kind::factor, .dtype = x.dtype};
          break;
        default:
          at_[n] = {.kind = Location::Kind::number, .index = program_.number_count++, .dtype = x.dtype};
          program_.numbers.push_back(instruction_of(static_cast<int>(n)));
      }
    }
  }

  /// Operations keep the order of the rule. A compressed state is decompressed before it is first read. A result is
  /// compressed once it is computed and no later operation reads what it overwrites.
  void order() {
    std::vector<bool> loaded(nodes_.size()), known(nodes_.size());
    std::vector<int> readers(nodes_.size());  // how many later operations read each node
    const auto is_ordered = [&](size_t n) {
      return nodes_[n].from == Node::From::operation && nodes_[n].array && uses_[n] > 0;
    };
    const auto count_readers = [&](const Node& x, int by) {
      for (int k = 0; k < x.arity; ++k)
        if (!x.in[k].is_constant()) readers[static_cast<size_t>(x.in[k].node)] += by;
    };
    for (size_t n = 0; n < nodes_.size(); ++n) {
      known[n] = nodes_[n].from != Node::From::operation;
      if (is_ordered(n)) count_readers(nodes_[n], 1);
    }
    const auto load = [&](const Term& x) {
      if (x.is_constant() || node(x).from != Node::From::state || !shape_.is_compressed(node(x).index) ||
          loaded[static_cast<size_t>(x.node)])
        return;
      loaded[static_cast<size_t>(x.node)] = true;
      items_.push_back({Instruction::Kind::decompress, x.node});
    };
    std::vector<bool> done(results_.size());
    const auto compress_what_is_known = [&] {
      for (size_t r = 0; r < results_.size(); ++r) {
        const Result& result = results_[r];
        if (!result.is_compressed || done[r] || !known[static_cast<size_t>(result.value.node)]) continue;
        if (const int old = old_value(result); old >= 0 && readers[static_cast<size_t>(old)] > 0) continue;
        load(result.value);
        items_.push_back({Instruction::Kind::compress, result.value.node, static_cast<int>(r)});
        done[r] = true;
      }
    };
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!is_ordered(n)) continue;
      for (int k = 0; k < nodes_[n].arity; ++k) load(nodes_[n].in[k]);
      items_.push_back({Instruction::Kind::compute, static_cast<int>(n)});
      count_readers(nodes_[n], -1);
      known[n] = true;
      compress_what_is_known();
    }
    compress_what_is_known();
    count_reads();
  }

  /// The node whose value a compressed result overwrites; -1: nothing reads that value.
  int old_value(const Result& result) const {
    const auto old = std::ranges::find_if(nodes_, [&](const Node& x) {
      return result.state < 0 ? x.from == Node::From::param : x.from == Node::From::state && x.index == result.state;
    });
    return old == nodes_.end() ? -1 : static_cast<int>(old - nodes_.begin());
  }

  void count_reads() {
    last_use_.assign(nodes_.size(), -1);
    reads_.assign(nodes_.size(), 0);
    const auto read = [&](const Term& x, int at) {
      if (!x.is_constant()) last_use_[static_cast<size_t>(x.node)] = at, ++reads_[static_cast<size_t>(x.node)];
    };
    for (int i = 0; i < static_cast<int>(items_.size()); ++i) {
      const Item& item = items_[static_cast<size_t>(i)];
      if (item.kind == Instruction::Kind::compress) read(results_[static_cast<size_t>(item.result)].value, i);
      const Node& x = nodes_[static_cast<size_t>(item.node)];
      for (int k = 0; item.kind == Instruction::Kind::compute && k < x.arity; ++k) read(x.in[k], i);
    }
    for (const Result& result : results_)
      if (!result.is_compressed)
        read(result.value, INT_MAX);  // unless it is computed in its final memory, it is moved there at the end
  }

  /// The memory of an input: a parameter, gradient, master or state.
  void locate_input(const Node& x) {
    Location location{.index = x.index, .dtype = x.dtype};
    switch (x.from) {
      case Node::From::param:
        location.kind = Location::Kind::param;
        break;
      case Node::From::grad:
        location.kind = Location::Kind::grad;
        break;
      case Node::From::master:
        location.kind = Location::Kind::master;
        break;
      case Node::From::state:
        if (shape_.is_compressed(x.index)) return;
        location.kind = Location::Kind::state;
        break;
      default:
        return;
    }
    const int n = static_cast<int>(&x - nodes_.data());
    at_[static_cast<size_t>(n)] = location;
    if (x.from != Node::From::grad) units_.push_back({location, size_of(x.dtype), n});  // gradients are only read
  }

  bool is_free(const Unit& unit, int item) const {
    return unit.holds < 0 || last_use_[static_cast<size_t>(unit.holds)] <= item;
  }
  Unit* unit_of(const Location& location) {
    const auto found =
        std::ranges::find_if(units_, [&](const Unit& unit) { return unit.location.is_same_memory(location); });
    return found == units_.end() ? nullptr : &*found;
  }

  /// The memory for the value of an operation: its final memory if it is a result, else that of an operand, else a free
  /// buffer, else a new one.
  Location allocate(int n, int item, bool in_place) {
    const Node& x = nodes_[static_cast<size_t>(n)];
    const int64_t width = size_of(x.dtype);
    const auto take = [&](Unit& unit, DType dtype) {
      unit.holds = n;
      Location location = unit.location;
      location.dtype = dtype;
      return at_[static_cast<size_t>(n)] = location;
    };
    for (const Result& result : results_) {
      if (result.is_compressed || result.value.node != n) continue;
      if (size_of(result.to.dtype) != width && reads_[static_cast<size_t>(n)] > 1)
        continue;  // other operations read the value before it is rounded
      Unit* unit = unit_of(result.to);
      if (unit == nullptr) unit = &units_.emplace_back(Unit{result.to, size_of(result.to.dtype)});
      if (is_free(*unit, item)) return take(*unit, result.to.dtype);
    }
    Unit *over = nullptr, *idle = nullptr;
    for (Unit& unit : units_) {
      if (unit.width != width || !is_free(unit, item)) continue;
      const bool is_buffer = unit.location.kind == Location::Kind::buffer;
      const bool is_operand = in_place && unit.holds >= 0 && last_use_[static_cast<size_t>(unit.holds)] == item;
      if (is_operand && (over == nullptr || is_buffer)) over = &unit;
      if (is_buffer && idle == nullptr && (unit.holds < 0 || last_use_[static_cast<size_t>(unit.holds)] < item))
        idle = &unit;
    }
    if (over != nullptr) return take(*over, x.dtype);
    if (idle != nullptr) return take(*idle, x.dtype);
    return take(units_.emplace_back(new_buffer(width)), x.dtype);
  }
  Unit new_buffer(int64_t width) {
    program_.buffers.push_back(static_cast<int>(width));
    return {{.kind = Location::Kind::buffer, .index = static_cast<int>(program_.buffers.size()) - 1}, width};
  }

  Location location_of(const Term& x) const {
    if (x.is_constant()) return {.constant = x.constant};
    Location location = at_[static_cast<size_t>(x.node)];
    if (location.is_array() && size_of(x.as) == size_of(location.dtype)) location.dtype = x.as;
    return location;
  }
  /// The instruction of a node, without the location of its result.
  Instruction instruction_of(int n) const {
    const Node& x = nodes_[static_cast<size_t>(n)];
    Instruction made{
        .op = x.op, .blends = x.blends, .compute = x.compute, .arity = x.arity, .out = at_[static_cast<size_t>(n)]};
    for (int k = 0; k < x.arity; ++k) made.in[k] = location_of(x.in[k]);
    return made;
  }

  void emit(int i) {
    const Item item = items_[static_cast<size_t>(i)];
    const Node& x = nodes_[static_cast<size_t>(item.node)];
    const auto state = [](int k) { return Location{.kind = Location::Kind::state, .index = k}; };
    switch (item.kind) {
      case Instruction::Kind::decompress:
        program_.arrays.push_back(
            {.kind = item.kind, .state = x.index, .out = allocate(item.node, i, false), .in = {{state(x.index)}}});
        return;
      case Instruction::Kind::compress: {
        const Result& result = results_[static_cast<size_t>(item.result)];
        program_.arrays.push_back(
            {.kind = item.kind, .state = result.state, .out = result.to, .in = {{location_of(result.value)}}});
        return;
      }
      case Instruction::Kind::compute: {
        Instruction made = instruction_of(item.node);  // before the result may take the memory of an operand
        made.out = allocate(item.node, i, true);
        program_.arrays.push_back(made);
      }
    }
  }

  /// Moves results that were not computed in their final memory.
  void emit_moves() {
    struct Move {
      Location to, from;
      DType compute;
    };
    std::vector<Move> moves;
    for (const Result& result : results_) {
      if (result.is_compressed) continue;
      const Location from = location_of(result.value);
      if (from.is_same_memory(result.to)) continue;
      moves.push_back({result.to, from, from.dtype == kI32 ? kI64 : shape_.dtype == kF64 ? kF64 : kF32});
    }
    const auto copy = [&](const Location& to, const Move& move) {
      const Location always{.constant = 1};
      program_.arrays.push_back({.op = Pointwise::where,
                                 .compute = move.compute,
                                 .arity = 3,
                                 .out = to,
                                 .in = {{always, move.from, move.from}}});
    };
    for (Move& move : moves) {  // a value that another move overwrites is saved first
      const bool is_target = move.from.is_array() && std::ranges::any_of(moves, [&](const Move& other) {
                               return other.to.is_same_memory(move.from);
                             });
      if (!is_target) continue;
      Location saved = new_buffer(size_of(move.from.dtype)).location;
      saved.dtype = move.from.dtype;
      copy(saved, move);
      move.from = saved;
    }
    for (const Move& move : moves) copy(move.to, move);
  }

  const StepShape& shape_;
  const std::vector<Node>& nodes_;
  const std::vector<Result>& results_;
  const std::vector<int>& uses_;
  std::vector<Location> at_;  ///< of each node's value
  std::vector<Item> items_;
  std::vector<int> last_use_;  ///< of each node: the last item that reads it
  std::vector<int> reads_;
  std::vector<Unit> units_;
  Program program_;
};

}  // namespace

Program allocate_buffers(const StepShape& shape, const RecordedStep& step, const std::vector<int>& uses, int states) {
  return BufferAllocator(shape, step, uses, states).run();
}

}  // namespace lorry::optim::detail
