#include "lorry/optim/execution/program.h"

#include <numeric>

#include "lorry/formula/clip.h"
#include "lorry/optim/execution/program_step.h"

namespace lorry::optim {
namespace {

using detail::RecordedStep;
using detail::Result;
using kernels::recording::Node;
using kernels::recording::Recorder;
using kernels::recording::Symbol;
using kernels::recording::Term;

class StepRecorder {
 public:
  StepRecorder(const StepShape& shape, int states)
      : shape_(shape), states_(states), compute_(shape.dtype == kF64 ? kF64 : kF32), recorder_(compute_) {}

  RecordedStep record(const std::function<void(Symbol* values)>& rule) {
    Symbol values[2 + kMaxStates];
    values[0] = Symbol(param());
    values[1] = Symbol(gradient());
    for (int k = 0; k < states_; ++k) values[2 + k] = Symbol(recorder_.input(Node::From::state, k, compute_, true));
    rule(values);
    add_parameter(values[0].term());
    for (int k = 0; k < states_; ++k) add_state(k, values[2 + k].term());
    return {std::move(recorder_.nodes()), std::move(results_)};
  }

 private:
  Term whole(Pointwise op, std::initializer_list<Term> in) { return recorder_.operation(op, kI64, kI32, in); }

  Term param() {
    if (shape_.masters() == Masters::f32) return recorder_.input(Node::From::master, 0, kF32, true);
    if (shape_.masters() != Masters::split) return recorder_.input(Node::From::param, 0, shape_.dtype, true);
    // The sum of the halves of formula/split.h.
    const Term upper = recorder_.input(Node::From::param, 0, kI16, true),
               lower = recorder_.input(Node::From::master, 0, kI16, true);
    Term joined = whole(Pointwise::add, {whole(Pointwise::bitwise_left_shift, {upper, {.constant = 16}}), lower});
    joined.as = kF32;
    return joined;
  }

  Term gradient() {
    const Symbol grad(recorder_.input(Node::From::grad, 0, shape_.grad_dtype, true));
    if (!shape_.by_factor) return grad.term();
    return (grad * formula::multiplier(Symbol(recorder_.input(Node::From::factor, 0, kF64, false)))).term();
  }

  /// Whether the memory of x is overwritten during the step, other than by `state` (-1: the parameter).
  bool is_overwritten(const Term& x, int state) {
    if (x.is_constant()) return false;
    const Node& node = recorder_.nodes()[static_cast<size_t>(x.node)];
    if (node.from == Node::From::param) return state >= 0 && shape_.masters() == Masters::stochastic;
    return node.from == Node::From::state && node.index != state && shape_.is_compressed(node.index);
  }
  /// x as the new value of `state` (-1: the parameter). If x is the old value of a compressed state, it is copied: a
  /// state is compressed only after all operations that read its old value.
  Term separate(const Term& x, int state) { return is_overwritten(x, state) ? copy(x) : x; }
  /// x as an array of the rule's type of computation.
  Term spread(const Term& x) {
    if (!x.is_constant() && recorder_.nodes()[static_cast<size_t>(x.node)].array && x.as == compute_) return x;
    return copy(x);
  }
  Term copy(const Term& x) {
    const Term array = recorder_.operation(Pointwise::where, compute_, {{.constant = 1}, x, x});
    recorder_.nodes().back().array = true;
    return array;
  }

  void add_parameter(const Term& result) {
    const Term x = separate(result, -1);
    const Location param{.kind = Location::Kind::param, .dtype = shape_.dtype},
        masters{.kind = Location::Kind::master, .dtype = kF32};
    switch (shape_.masters()) {
      case Masters::stochastic:
        return results_.push_back({param, spread(x), true, -1});
      case Masters::split:
        return add_halves(spread(x));
      case Masters::f32:
        results_.push_back({masters, x});
        [[fallthrough]];
      case Masters::none:
        return results_.push_back({param, x});
    }
  }
  /// The halves of formula/split.h.
  void add_halves(const Term& x) {
    const Term bits{.node = x.node, .as = kI32}, nan = recorder_.operation(Pointwise::isnan, kBool, {x});
    const Term rounded =
        whole(Pointwise::bitwise_right_shift, {whole(Pointwise::add, {bits, {.constant = 0x8000}}), {.constant = 16}});
    const Term upper = whole(Pointwise::where, {nan, {.constant = 0x7fc0}, rounded});
    const Term rest = whole(Pointwise::sub, {bits, whole(Pointwise::bitwise_left_shift, {upper, {.constant = 16}})});
    results_.push_back({{.kind = Location::Kind::param, .dtype = kI16}, upper});
    results_.push_back(
        {{.kind = Location::Kind::master, .dtype = kI16}, whole(Pointwise::where, {nan, {.constant = 0}, rest})});
  }
  void add_state(int k, const Term& result) {
    const Term x = separate(result, k);
    const Location to{.kind = Location::Kind::state, .index = k, .dtype = compute_};
    results_.push_back(shape_.is_compressed(k) ? Result{to, spread(x), true, k} : Result{to, x});
  }

  const StepShape& shape_;
  const int states_;
  const DType compute_;
  Recorder recorder_;
  std::vector<Result> results_;
};

}  // namespace

int64_t Program::bytes_per_element() const { return std::accumulate(buffers.begin(), buffers.end(), int64_t{0}); }

Program make_program(const std::function<void(Symbol* values)>& record, int states, const StepShape& shape) {
  RecordedStep step = StepRecorder(shape, states).record(record);
  const std::vector<int> uses = detail::join_rows(step);
  return detail::allocate_buffers(shape, step, uses, states);
}

}  // namespace lorry::optim
