#include "lorry/optim/intermediates.h"

#include <set>

namespace lorry::optim::detail {

TalliedStep::TalliedStep(Tally& tally, int states) : tally_(tally), count_(states) {
  const StepShape& shape = tally.shape();
  const bool keeps = shape.narrow() && (shape.memory.masters == Masters::f32 || shape.memory.masters == Masters::split);
  param_ = tally.array(0);
  if (keeps) kept_ = tally.array(0);
  for (int k = 0; k < states; ++k) states_[k] = tally.array(0);
  // Copies on the device of states elsewhere, and of parts of 8-bit ones, whose codes and scales lie apart: a 256th of 4 bytes more each,
  // and as much again for what is lost to rounding.
  for (int k = 0; k < states + keeps; ++k) {
    const StateType type = k < states && shape.dtype != kF64 ? shape.memory.states[k] : StateType::f32;
    const bool q8 = type == StateType::q8;
    if (shape.memory.placement != Placement::pinned && !(shape.in_parts && q8)) continue;
    const bool split = k == states && shape.memory.masters == Masters::split;
    here_.push_back(tally.array(q8 ? 2 : type == StateType::bf16 || split ? 2 : shape.wide()));
    tally.call(2);
  }
}

bool TalliedStep::is_stored(int k) const { return tally_.shape().dtype != kF64 && tally_.shape().memory.states[k] != StateType::f32; }

TalliedValue TalliedStep::parameter() {
  const StepShape& shape = tally_.shape();
  if (!shape.narrow()) return TalliedValue::of(tally_, param_);
  if (shape.memory.masters == Masters::f32) return TalliedValue::of(tally_, kept_);
  if (shape.memory.masters == Masters::split) {  // four i32 in one expression, the last of which stays
    const Tally::Array joined = tally_.array(4), others = tally_.array(12);
    tally_.call(4);
    return TalliedValue::of(tally_, joined);
  }
  tally_.call();
  return TalliedValue::of(tally_, tally_.array(4));
}

TalliedValue TalliedStep::gradient() {
  const StepShape& shape = tally_.shape();
  const Tally::Array grad = tally_.array(shape.narrow() ? 4 : 0);
  tally_.call(shape.narrow());
  if (!shape.by_factor) return TalliedValue::of(tally_, grad);
  tally_.call(1 + (shape.dtype != kF64));
  return TalliedValue::of(tally_, tally_.array(shape.wide()));
}

TalliedValue TalliedStep::state(int k) {
  if (!is_stored(k)) return TalliedValue::of(tally_, states_[k]);
  tally_.call();
  return TalliedValue::of(tally_, tally_.array(4));
}

void TalliedStep::write(std::vector<Write>& plain, const Tally::Array& to, int64_t to_bytes, const Tally::Array& x, int64_t x_bytes) {
  plain.push_back({to, x, to_bytes, x_bytes});
}

void TalliedStep::store(const TalliedValue& param, const TalliedValue* states) {
  const StepShape& shape = tally_.shape();
  const int64_t wide = shape.wide();
  std::vector<Write> plain;
  std::vector<Tally::Array> held;  // what kernels store take their elements from
  const auto held_for_kernel = [&](const TalliedValue& x) {
    held.push_back(x.array() ? x.array() : tally_.array(4));
    tally_.call();
  };
  if (shape.narrow() && shape.memory.masters == Masters::stochastic) {
    held_for_kernel(param);
  } else if (shape.narrow() && shape.memory.masters == Masters::split) {
    // halves(): where elements are NaN, the upper half in 32 bits, then the lower, then both in 16.
    const Tally::Array upper = tally_.array(2), lower = tally_.array(2);
    const Tally::Array in_between = tally_.array(17 - 4);
    write(plain, param_, 2, upper, 2);
    write(plain, kept_, 2, lower, 2);
    tally_.call(10);
  } else {
    if (kept_) write(plain, kept_, 4, param.array(), wide);
    write(plain, param_, size_of(shape.dtype), param.array(), wide);
  }
  for (int k = 0; k < count_; ++k)
    if (is_stored(k))
      held_for_kernel(states[k]);
    else
      write(plain, states_[k], wide, states[k].array(), wide);

  const bool lists = shape.execution == Execution::foreach;
  const auto groups = [&] {
    std::set<std::pair<int64_t, int64_t>> kinds;
    for (const Write& one : plain) kinds.emplace(one.to_bytes, one.x_bytes);
    return static_cast<int64_t>(lists ? kinds.size() : plain.size());
  };
  if (shape.by_factor) {  // where the step is left out, what is written is what there was
    std::vector<Tally::Array> old, results;
    tally_.call();
    for (Write& one : plain) {
      if (one.to_bytes != one.x_bytes) old.push_back(tally_.array(one.x_bytes)), tally_.call();
      if (lists) continue;
      one.x = tally_.array(one.x_bytes);
      old.clear();
    }
    if (lists)
      for (const Write& one : plain) results.push_back(tally_.array(one.x_bytes));
    tally_.call(groups());
  } else {  // an array that is written and was handed on to another is copied first
    for (Write& one : plain)
      for (const Write& other : plain)
        if (one.x == other.to && one.x != one.to) {
          one.x = tally_.array(one.x_bytes);
          tally_.call();
          break;
        }
  }
  tally_.call(groups() + shape.zero_grads);
}

}  // namespace lorry::optim::detail
