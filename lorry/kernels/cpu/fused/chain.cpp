// Fused calls of f32 as threaded code (threaded.h), over runs of memory: the rows of the innermost dimension, or all of
// a contiguous call. An operand that is one value in a row is spread over a slot, row by row.
//
// One value travels in registers. A step whose operand travels takes it from there; other operands are read from the
// inputs, from outputs already stored, or from a slot: four registers' worth of memory that stays in the first-level
// cache. A result that is read later than by the next step is stored when it is made.

#include "lorry/kernels/cpu/fused/chain.h"

#include <algorithm>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/fused/threaded.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_threaded(ThreadedFunctions& table))

const ThreadedFunctions& threaded_functions() {
  static const ThreadedFunctions all = [] {
    ThreadedFunctions made;
    LORRY_SIMD_CHOOSE(fill_threaded)(made);
    return made;
  }();
  return all;
}

namespace {

constexpr int64_t kGrain = 16384;  ///< elements worth a second thread
constexpr int64_t kPart = 8192;    ///< elements of a run that one thread takes at once

}  // namespace

Chain::Chain(const FusedCall& call, const Walk& walk)
    : call_(call),
      walk_(walk),
      table_(threaded_functions()),
      slots_(call.inputs.size() + call.steps.size()),
      ends_(call.inputs.size() + call.outputs.size()) {
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    const FusedOperand& x = call_.inputs[i];
    if (walk_.of_input[i] < 0) converter(x.dtype, kF32)(x.data, 0, slots_[i].elements, 1, kWidest);
  }
  for (size_t s = 0; s < call_.steps.size(); ++s) add(s);
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    if (!is_stored_at_once(o)) {
      move(table_.load, {slot(static_cast<size_t>(call_.outputs[o].from))});
      move(table_.store, output(o));
    }
  code_.push_back({.function = table_.end});
  for (size_t i = 0; i < call_.inputs.size(); ++i)
    if (is_one_value(i)) repeated_.push_back(i);
}

int64_t Chain::tasks(const Walk& walk) {
  const int64_t row = walk.iteration.sizes[0];
  return walk.iteration.numel() / row * ((row + kPart - 1) / kPart);
}

void Chain::run(int64_t begin, int64_t end) {
  const int64_t row = walk_.iteration.sizes[0], parts = (row + kPart - 1) / kPart;
  Cursor cursor(walk_.iteration, begin / parts * row + begin % parts * kPart);
  for (; begin < end; ++begin) {
    const int64_t n = std::min(kPart, cursor.left_in_row());
    run_row(cursor, n);
    cursor.step(n);
  }
}

/// Computes n elements of a row.
void Chain::run_row(const Cursor& cursor, int64_t n) {
  for (const size_t i : repeated_) std::fill_n(slots_[i].elements, kWidest, *address(i, cursor));
  for (const Moving& m : moving_) code_[m.step].in[m.at] = address(m.operand, cursor);
  const int64_t whole = n / table_.width * table_.width;
  table_.run(code_.data(), 0, whole);
  if (whole < n) run_end(cursor, whole, n - whole);
}

/// The last elements of a row, fewer than a step takes: by way of memory that has room for a step.
void Chain::run_end(const Cursor& cursor, int64_t done, int64_t n) {
  const size_t inputs = call_.inputs.size();
  for (const Moving& m : moving_) {
    if (m.operand < inputs) std::copy_n(address(m.operand, cursor) + done, n, ends_[m.operand].elements);
    code_[m.step].in[m.at] = ends_[m.operand].elements;
  }
  table_.run(code_.data(), 0, table_.width);
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    std::copy_n(ends_[inputs + o].elements, n, address(inputs + o, cursor) + done);
}

float* Chain::address(size_t operand, const Cursor& cursor) const {
  const size_t inputs = call_.inputs.size();
  const FusedOperand& x = operand < inputs ? call_.inputs[operand] : call_.outputs[operand - inputs].to;
  const int layout = operand < inputs ? walk_.of_input[operand] : walk_.of_output[operand - inputs];
  return static_cast<float*>(x.data) + cursor.offset[layout];
}

/// An output whose memory is an input's is written when nothing reads that any more: at the end.
bool Chain::is_stored_at_once(size_t o) const {
  return std::ranges::none_of(call_.inputs,
                              [&](const FusedOperand& in) { return in.data == call_.outputs[o].to.data; });
}

/// The first output that holds a register while the steps run; the number of outputs: none.
size_t Chain::output_of(size_t r) const {
  size_t o = 0;
  while (o < call_.outputs.size() && (static_cast<size_t>(call_.outputs[o].from) != r || !is_stored_at_once(o))) ++o;
  return o;
}

void Chain::put(ThreadedStep& step, int at, const Place& place) {
  step.in[at] = place.slot;
  step.mask[at] = place.slot != nullptr ? 0 : -1;
  if (place.slot == nullptr) moving_.push_back({code_.size(), at, place.operand});
}

void Chain::move(void (*function)(), const Place& place) {
  ThreadedStep step;
  step.function = function;
  put(step, 0, place);
  code_.push_back(step);
}

/// Where a register can be read when it does not travel.
Chain::Place Chain::place(size_t r) {
  if (r < call_.inputs.size() && walk_.of_input[r] >= 0 && !is_one_value(r)) return {nullptr, r};
  if (const size_t o = output_of(r); r >= call_.inputs.size() && o < call_.outputs.size()) return output(o);
  return {slot(r)};
}

void Chain::add(size_t s) {
  const FusedStep& step = call_.steps[s];
  const auto row = table_.rows[static_cast<int>(step.op)];
  int at = -1;
  for (int k = 0; k < step.arity && at < 0; ++k)
    if (step.in[k] == travelling_ && row[k] != nullptr) at = k;
  if (at < 0) {
    at = 0;
    move(table_.load, place(static_cast<size_t>(step.in[0])));
  }
  ThreadedStep made;
  made.function = row[at];
  for (int k = 0, next = 0; k < step.arity; ++k)
    if (k != at) put(made, next++, place(static_cast<size_t>(step.in[k])));
  code_.push_back(made);
  const size_t r = call_.inputs.size() + s, stored = output_of(r);
  travelling_ = static_cast<int16_t>(r);
  if (stored < call_.outputs.size() || is_read_from_memory(s, static_cast<int16_t>(r))) move(table_.store, place(r));
  for (size_t o = stored + 1; o < call_.outputs.size(); ++o)  // the same value a second time
    if (static_cast<size_t>(call_.outputs[o].from) == r && is_stored_at_once(o)) move(table_.store, output(o));
}

/// Whether a result is read otherwise than by the next step, once, as the operand that travels.
bool Chain::is_read_from_memory(size_t s, int16_t r) const {
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    if (call_.outputs[o].from == r && !is_stored_at_once(o)) return true;
  for (size_t t = s + 1; t < call_.steps.size(); ++t) {
    const FusedStep& step = call_.steps[t];
    const auto reads = std::count(step.in, step.in + step.arity, r);
    if (reads == 0) continue;
    if (t > s + 1 || reads > 1) return true;
    for (int k = 0; k < step.arity; ++k)
      if (step.in[k] == r && table_.rows[static_cast<int>(step.op)][k] == nullptr) return true;
  }
  return false;
}

bool is_chain(const FusedCall& call, const Walk& walk) {
  const Iteration& it = walk.iteration;
  if (it.sizes[0] < Chain::kWidest) return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int layout = walk.of_input[i];
    if (layout >= 0 && (call.inputs[i].dtype != kF32 || it.strides[layout][0] > 1)) return false;
  }
  const auto& rows = threaded_functions().rows;
  return std::ranges::all_of(walk.of_output, [&](int layout) { return it.strides[layout][0] == 1; }) &&
         std::ranges::all_of(call.steps, [&](const FusedStep& s) {
           return s.kind == FusedStep::formula && s.compute == kF32 && s.result == kF32 && s.dtype == kF32 &&
                  rows[static_cast<int>(s.op)][0] != nullptr;
         });
}

void run_chain(const FusedCall& call, const Walk& walk) {
  const int64_t grain = std::max<int64_t>(1, kGrain / std::min(walk.iteration.sizes[0], kPart));
  lorry::cpu::parallel_for(Chain::tasks(walk), grain,
                           [&](int64_t begin, int64_t end) { Chain(call, walk).run(begin, end); });
}

}  // namespace lorry::kernels::cpu
