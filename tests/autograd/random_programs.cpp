// Makes programs step by step, asking the model which next step is allowed.

#include "tests/autograd/programs.h"

#include <algorithm>
#include <random>
#include <utility>

namespace lorry::test {

namespace {

class Maker {
 public:
  explicit Maker(uint32_t seed) : random_(seed) {}

  Program make(int length) {
    add_leaf(Action::leaf);
    for (int tries = 0; static_cast<int>(program_.steps.size()) < length && tries < 50 * length; ++tries) propose();
    for (size_t v = 0; v < model_.values().size(); ++v)
      if (chance(0.4) || v + 1 == model_.values().size())
        program_.loss.emplace_back(static_cast<int>(v), numbers(model_.values()[v].at.size()));
    return std::move(program_);
  }

 private:
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  std::vector<double> numbers(size_t count) {
    std::vector<double> out(count);
    for (double& x : out) x = std::uniform_real_distribution<>(-1.2, 1.2)(random_);
    return out;
  }
  /// Some value, more often a recent one.
  int value() {
    const auto count = static_cast<int64_t>(model_.values().size());
    return static_cast<int>(std::max(number(0, count - 1), number(0, count - 1)));
  }
  const Model::Value& at(int value) const { return model_.values()[static_cast<size_t>(value)]; }
  const Model::Memory& memory(int value) const { return model_.memories()[static_cast<size_t>(at(value).memory)]; }

  void add(Step step) {
    model_.run(step);
    program_.steps.push_back(std::move(step));
  }

  void add_leaf(Action action) {
    Step step{action};
    for (int64_t rank = number(action == Action::leaf ? 1 : 0, 3); rank > 0; --rank)
      step.numbers.push_back(number(1, 3));
    step.data = numbers(static_cast<size_t>(product(step.numbers)));
    add(step);
  }

  void propose() {
    if (chance(0.06)) return add_leaf(chance(0.6) ? Action::leaf : Action::constant);
    if (chance(0.12)) return propose_hook();
    if (chance(0.06)) return propose_turn();
    if (chance(0.4)) return propose_view();
    if (chance(0.5)) return propose_write();
    propose_operator();
  }

  void propose_operator() {
    Step step{static_cast<Action>(number(static_cast<int>(Action::sine), static_cast<int>(Action::clone))), value()};
    const Sizes& x = at(step.x).sizes;
    switch (step.action) {
      case Action::scale:
        step.data = numbers(1);
        break;
      case Action::add:
      case Action::sub:
      case Action::mul:
        step.y = value();
        if (!broadcasts(at(step.y).sizes, x) && !broadcasts(x, at(step.y).sizes)) return;
        break;
      case Action::matmul:
        step.y = value();
        if (x.size() != 2 || at(step.y).sizes.size() != 2 || x[1] != at(step.y).sizes[0]) return;
        break;
      case Action::sum:
        if (x.empty()) return;
        step.numbers = {number(0, static_cast<int64_t>(x.size()) - 1)};
        break;
      case Action::cat: {
        step.y = value();
        const Sizes& y = at(step.y).sizes;
        if (x.empty() || y.size() != x.size() || !std::equal(x.begin() + 1, x.end(), y.begin() + 1)) return;
        break;
      }
      default:
        break;
    }
    add(step);
  }

  void propose_view() {
    Step step{static_cast<Action>(number(static_cast<int>(Action::select), static_cast<int>(Action::detach))), value()};
    const Sizes& x = at(step.x).sizes;
    const auto rank = static_cast<int64_t>(x.size());
    if (step.action == Action::detach && !chance(0.2)) return;
    if (rank == 0 && step.action != Action::unsqueeze && step.action != Action::expand && step.action != Action::detach)
      return;
    const int64_t d = rank == 0 ? 0 : number(0, rank - 1), size = rank == 0 ? 1 : x[static_cast<size_t>(d)];
    switch (step.action) {
      case Action::select:
        step.numbers = {d, number(0, size - 1)};
        break;
      case Action::slice: {
        const int64_t start = number(0, size - 1);
        step.numbers = {d, start, number(start + 1, size), number(1, 2)};
        break;
      }
      case Action::transpose:
        step.numbers = {d, number(0, rank - 1)};
        break;
      case Action::unsqueeze:
        if (rank >= 4) return;
        step.numbers = {number(0, rank)};
        break;
      case Action::expand:
        step.numbers = x;
        for (int64_t& n : step.numbers) n = n == 1 ? number(1, 3) : n;
        if (rank < 3 && chance(0.5)) step.numbers.insert(step.numbers.begin(), number(1, 2));
        break;
      case Action::diagonal:
        if (rank < 2) return;
        break;
      case Action::flatten:
        if (!memory(step.x).row_major) return;
        for (size_t i = 1; i < at(step.x).at.size(); ++i)
          if (at(step.x).at[i] != at(step.x).at[i - 1] + 1) return;
        break;
      default:
        break;
    }
    add(step);
  }

  void propose_turn() {
    const int x = value();
    const auto rank = static_cast<int64_t>(at(x).sizes.size());
    if (rank < 2 || memory(x).leaf || (memory(x).saved && !chance(0.08))) return;
    program_.may_be_refused |= memory(x).saved;
    add({Action::turn, x, -1, -1, {number(0, rank - 1), number(0, rank - 1)}});
  }

  /// Whether a write of x may read y: no element of y is written before it is read.
  bool apart(int x, int y) {
    if (at(x).memory != at(y).memory || (at(x).at == at(y).at && at(x).sizes == at(y).sizes)) return true;
    for (const int i : at(x).at)
      if (std::find(at(y).at.begin(), at(y).at.end(), i) != at(y).at.end()) return false;
    return true;
  }

  void propose_write() {
    Step step{
        static_cast<Action>(number(static_cast<int>(Action::write_sine), static_cast<int>(Action::write_quietly))),
        value()};
    const auto quiet = step.action == Action::write_quietly;
    if (quiet && !chance(0.3)) return;
    if (at(step.x).cut || !model_.distinct(step.x) || memory(step.x).leaf) return;
    if (memory(step.x).saved && !chance(0.08)) return;
    const auto operand = [&] {
      const int y = value();
      return broadcasts(at(y).sizes, at(step.x).sizes) && apart(step.x, y) ? y : -1;
    };
    const bool reads_y = step.action == Action::write_add || step.action == Action::write_mul ||
                         step.action == Action::write_copy || step.action == Action::write_addcmul;
    if (reads_y && (step.y = operand()) < 0) return;
    if (step.action == Action::write_addcmul && (step.z = operand()) < 0) return;
    if (step.action == Action::write_scale || quiet) step.data = numbers(1);
    program_.may_be_refused |= memory(step.x).saved;
    add(step);
  }

  void propose_hook() {
    Step step{chance(0.5) ? Action::hook : Action::retain, value()};
    if (model_.requires_grad(step.x)) add(step);
  }

  std::mt19937 random_;
  Model model_;
  Program program_;
};

}  // namespace

Program random_program(uint32_t seed, int length) { return Maker(seed).make(length); }

}  // namespace lorry::test
