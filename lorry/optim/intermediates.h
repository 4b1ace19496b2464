#pragma once

// What the executions loop and foreach need beside parameters, gradients and states: the tensors between one operator and the next. A rule is
// run once with values that hold no numbers and count instead what lives: its expressions take and drop temporaries as those of tensors do.

#include <algorithm>
#include <memory>

#include "lorry/formula/rule.h"
#include "lorry/layout/dtype.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/memory.h"

namespace lorry::optim {

/// What decides how much a step by operators takes, beside the rule.
struct StepShape {
  Execution execution;  ///< loop or foreach
  DType dtype;          ///< of parameters and gradients
  Memory memory;
  bool by_factor = false;  ///< gradients are multiplied by a factor, and a step may be left out
  bool zero_grads = false;
  /// Only some of a parameter's elements are stepped at a time: a state in 8 bits is copied in parts, and one in pinned memory too.
  bool in_parts = false;

  int64_t wide() const { return dtype == kF64 ? 8 : 4; }
  bool narrow() const { return size_of(dtype) == 2; }
};

/// Of a step by operators.
struct Intermediates {
  int64_t bytes = 0;  ///< that live at a time at most, for each element that is stepped at a time
  int64_t calls = 0;  ///< of operators, for each parameter of a loop or each list
};

/// Counts bytes while they live, and calls.
class Tally {
 public:
  class Bytes {
   public:
    Bytes(Tally& tally, int64_t bytes) : tally_(tally), bytes_(bytes) { tally_.peak_ = std::max(tally_.peak_, tally_.now_ += bytes_); }
    ~Bytes() { tally_.now_ -= bytes_; }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;

   private:
    Tally& tally_;
    int64_t bytes_;
  };
  using Array = std::shared_ptr<const Bytes>;

  explicit Tally(const StepShape& shape) : shape_(shape) {}

  /// A new tensor, of so many bytes an element; 0: one that was there before.
  Array array(int64_t bytes) { return std::make_shared<Bytes>(*this, bytes); }
  void call(int64_t count = 1) { calls_ += count; }
  const StepShape& shape() const { return shape_; }
  Intermediates result() const { return {peak_, calls_}; }

 private:
  StepShape shape_;
  int64_t now_ = 0, peak_ = 0, calls_ = 0;
};

/// A value of a formula that counts: a number, a tensor without sizes, or a tensor, with the lifetime of a Value's or ListValue's.
class TalliedValue {
 public:
  TalliedValue() = default;
  explicit TalliedValue(double) {}
  /// Without sizes: what it weighs does not count.
  static TalliedValue single(Tally& tally) { return {&tally, nullptr}; }
  static TalliedValue of(Tally& tally, Tally::Array array) { return {&tally, std::move(array)}; }

  bool is_number() const { return tally_ == nullptr; }
  const Tally::Array& array() const { return array_; }

#define LORRY_TALLIED_BINARY(symbol, commutes, compares) \
  friend TalliedValue operator symbol(const TalliedValue& a, const TalliedValue& b) { return apply(a, b, commutes, compares); }
  LORRY_TALLIED_BINARY(+, true, false)
  LORRY_TALLIED_BINARY(-, false, false)
  LORRY_TALLIED_BINARY(*, true, false)
  LORRY_TALLIED_BINARY(/, false, false)
  LORRY_TALLIED_BINARY(<, false, true)
  LORRY_TALLIED_BINARY(<=, false, true)
  LORRY_TALLIED_BINARY(>, false, true)
  LORRY_TALLIED_BINARY(>=, false, true)
  LORRY_TALLIED_BINARY(==, false, true)
  LORRY_TALLIED_BINARY(!=, false, true)
  LORRY_TALLIED_BINARY(&, true, true)
  LORRY_TALLIED_BINARY(|, true, true)
#undef LORRY_TALLIED_BINARY
  friend TalliedValue operator-(const TalliedValue& a) { return made({&a}, false); }
  friend TalliedValue operator!(const TalliedValue& a) { return made({&a}, true); }
  friend TalliedValue sqrt(const TalliedValue& a) { return made({&a}, false); }
  friend TalliedValue abs(const TalliedValue& a) { return made({&a}, false); }
  friend TalliedValue select(const TalliedValue& mask, const TalliedValue& a, const TalliedValue& b) {
    if (mask.is_number()) return a;
    mask.tally_->call(a.is_number() + b.is_number());  // numbers become tensors
    return made({&mask, &a, &b}, false);
  }

 private:
  TalliedValue(Tally* tally, Tally::Array array) : tally_(tally), array_(std::move(array)) {}
  static TalliedValue made(std::initializer_list<const TalliedValue*> from, bool is_mask) {
    Tally* tally = nullptr;
    bool sizes = false;
    for (const TalliedValue* x : from) {
      if (x->tally_ != nullptr) tally = x->tally_;
      sizes = sizes || x->array_ != nullptr;
    }
    if (tally == nullptr) return {};
    tally->call();
    return {tally, sizes ? tally->array(is_mask ? 1 : tally->shape().wide()) : nullptr};
  }
  /// A number on the left becomes a tensor, but in lists where operands may change places.
  static TalliedValue apply(const TalliedValue& a, const TalliedValue& b, bool commutes, bool compares) {
    if (a.is_number() && !b.is_number() && !(commutes && b.array_ && b.tally_->shape().execution == Execution::foreach)) b.tally_->call();
    return made({&a, &b}, compares);
  }

  Tally* tally_ = nullptr;
  Tally::Array array_;
};

namespace detail {

/// What stands around the formula: detail::wide_parameter and the rest of loop.h, in what they take.
class TalliedStep {
 public:
  TalliedStep(Tally& tally, int states);
  TalliedValue parameter();
  TalliedValue gradient();
  TalliedValue state(int k);
  void store(const TalliedValue& param, const TalliedValue* states);

 private:
  struct Write {
    Tally::Array to, x;
    int64_t to_bytes, x_bytes;
  };
  bool is_stored(int k) const;
  void write(std::vector<Write>& plain, const Tally::Array& to, int64_t to_bytes, const Tally::Array& x, int64_t x_bytes);

  Tally& tally_;
  int count_;
  Tally::Array param_, kept_, states_[kMaxStates];  ///< those that were there before: of no bytes
  std::vector<Tally::Array> here_;                    ///< copies of what lies elsewhere
};

}  // namespace detail

template <class Rule>
Intermediates intermediates_of(const StepShape& shape, const void* settings) {
  Tally tally(shape);
  formula::ProgressOf<Rule> progress;
  const auto flags = Rule::advance(progress, *static_cast<const formula::SettingsOf<Rule>*>(settings));
  const auto hyper = flags.template map<TalliedValue>([&](double) { return TalliedValue::single(tally); });
  detail::TalliedStep step(tally, Rule::kStates);
  TalliedValue param = step.parameter(), states[Rule::kStates > 0 ? Rule::kStates : 1];
  for (int k = 0; k < Rule::kStates; ++k) states[k] = step.state(k);
  Rule()(param, step.gradient(), states, hyper);
  step.store(param, states);
  return tally.result();
}

}  // namespace lorry::optim
