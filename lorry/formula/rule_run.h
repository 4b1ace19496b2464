#pragma once

// A rule over a run of elements on the CPU. RuleRun hides the rule's type, so that the loop over a list of tensors is
// compiled once for all rules. Lorry's rules come with a vectorized run; a user's rule has whatever the compiler makes
// of step_scalars.

#include "lorry/formula/clip.h"
#include "lorry/formula/rule.h"

namespace lorry::formula {

/// Steps n elements of a parameter by the gradient times multiplier(factor). C: float or double, the type of every
/// array. The addresses of the states stay untyped, because a load that follows the copy of the list waits for its
/// stores: 2 % of the step of AdamW with bf16 states, which makes runs of 256 elements.
template <class Rule, class C>
using StepRun = void (*)(C* param, const C* grad, void* const* states, int64_t n, const HyperOf<Rule, C>& hyper,
                         double factor);

/// A run in scalars.
template <class Rule, class C>
void step_scalars(C* param, const C* grad, void* const* states, int64_t n, const HyperOf<Rule, C>& hyper,
                  double factor) {
  constexpr int kStates = Rule::kStates;
  C* s[kStates > 0 ? kStates : 1] = {};
  for (int k = 0; k < kStates; ++k) s[k] = static_cast<C*>(states[k]);
  const HyperOf<Rule, C> h = hyper;
  const C by = multiplier(static_cast<C>(factor));
  for (int64_t i = 0; i < n; ++i) {
    C own[kStates > 0 ? kStates : 1];
    for (int k = 0; k < kStates; ++k) own[k] = s[k][i];
    Rule()(param[i], grad[i] * by, own, h);
    for (int k = 0; k < kStates; ++k) s[k][i] = own[k];
  }
}

/// Writes changes into hyper blocks in host memory.
template <class Rule, class C>
void set_hyper_blocks(HyperBlock<Rule, C>* blocks, std::span<const HyperBlockChange<Rule>> changes) {
  for (const HyperBlockChange<Rule>& change : changes) {
    HyperBlock<Rule, C>& block = blocks[change.block];
    if (change.settings) block.settings = *change.settings;
    if (change.progress) block.progress = *change.progress;
    block.running = change.running;
    block.refresh();
  }
}

/// What a step ends with, of hyper blocks in host memory: nothing where grad_factor (null: 1) is NaN.
template <class Rule, class C>
void advance_hyper_blocks(HyperBlock<Rule, C>* blocks, int32_t count, const double* grad_factor) {
  if (grad_factor && *grad_factor != *grad_factor) return;
  for (int32_t k = 0; k < count; ++k) blocks[k].advance();
}

/// A rule and the hyper blocks of a list, in one type of computation: float or, for f64 parameters, double.
class RuleRun {
 public:
  int states() const { return states_; }
  /// Whether state k may be negative.
  bool is_signed(int k) const { return !(not_negative_ >> k & 1); }
  /// Steps n elements by hyper block `block`. The arrays are of the type of computation.
  virtual void step(uint32_t block, void* param, const void* grad, void* const* states, int64_t n,
                    double factor) const = 0;
  /// How many steps the parameters of a hyper block will have made after this one.
  virtual double steps(uint32_t block) const = 0;
  /// What a step ends with.
  virtual void advance(int32_t first_block, int32_t count, const double* grad_factor) const = 0;

 protected:
  RuleRun(int states, unsigned not_negative) : states_(states), not_negative_(not_negative) {}
  ~RuleRun() = default;

 private:
  int states_;
  unsigned not_negative_;  ///< bit k: state k is never below zero
};

template <class Rule, class C>
class TypedRun final : public RuleRun {
 public:
  explicit TypedRun(HyperBlock<Rule, C>* blocks, StepRun<Rule, C> run = step_scalars<Rule, C>)
      : RuleRun(Rule::kStates, not_negative()), blocks_(blocks), run_(run) {}

  void step(uint32_t block, void* param, const void* grad, void* const* states, int64_t n,
            double factor) const override {
    run_(static_cast<C*>(param), static_cast<const C*>(grad), states, n, blocks_[block].hyper, factor);
  }
  double steps(uint32_t block) const override { return blocks_[block].next.steps; }
  void advance(int32_t first_block, int32_t count, const double* grad_factor) const override {
    advance_hyper_blocks(blocks_ + first_block, count, grad_factor);
  }

 private:
  static constexpr unsigned not_negative() {
    unsigned bits = 0;
    for (int k = 0; k < Rule::kStates; ++k) bits |= unsigned{!formula::is_signed<Rule>(k)} << k;
    return bits;
  }
  HyperBlock<Rule, C>* blocks_;
  StepRun<Rule, C> run_;
};

}  // namespace lorry::formula
