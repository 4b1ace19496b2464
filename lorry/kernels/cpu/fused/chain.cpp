// Fused calls of f32 as threaded code (threaded.h), over contiguous runs: the rows of the innermost dimension, or the
// whole of a contiguous call. An operand that has one value per row is copied into a slot, row by row.
//
// One value is passed from step to step in vector registers. A step that has it as an operand takes it from there. Its
// other operands are read from inputs, from outputs already written, or from a slot: a buffer of eight registers' size
// that stays in the first-level cache. A result that is read by other steps than the next one is stored when it is
// computed.

#include "lorry/kernels/cpu/fused/chain.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/common/scratch.h"
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

constexpr int64_t kPart = 8192;  ///< elements of a run per task

/// The size of the last-level cache; 32 MB if the system does not report it.
int64_t cache_bytes() {
  static const int64_t kBytes = [] {
    const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return bytes > 0 ? int64_t{bytes} : int64_t{32} << 20;
  }();
  return kBytes;
}

}  // namespace

Chain::Chain(const MapCall& call, const Walk& walk)
    : call_(call),
      walk_(walk),
      table_(threaded_functions()),
      past_cache_(walk.iteration.numel() * static_cast<int64_t>(sizeof(float) * call.outputs.size()) > cache_bytes()) {
  for (size_t i = 0; i < call_.inputs.size(); ++i)
    if (walk_.of_input[i] < 0)
      numbers_.push_back(i);
    else if (is_one_value(i))
      repeated_.push_back(i);
  for (size_t s = 0; s < call_.steps.size(); ++s) add(s);
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    if (call_.outputs[o].may_be_an_input) {  // written after the last step that reads that input
      move(table_.load, {Location::slot, static_cast<size_t>(call_.outputs[o].from)});
      move(table_.store, {Location::operand, call_.inputs.size() + o});  // its memory has just been read
    }
  code_.push_back({.function = table_.end});
}

int64_t Chain::elements_a_task() const { return std::min(walk_.iteration.sizes[0], kPart); }

int64_t Chain::tasks() const {
  const int64_t row = walk_.iteration.sizes[0];
  return walk_.iteration.numel() / row * ((row + kPart - 1) / kPart);
}

void Chain::run(const Addresses& at, int64_t begin, int64_t end) const {
  const size_t registers = call_.inputs.size() + call_.steps.size();
  const size_t slots = registers + call_.inputs.size() + call_.outputs.size();
  const size_t bytes = slots * sizeof(Slot) + code_.size() * sizeof(ThreadedStep);
  Slot* const memory = scratch<Slot>(Scratch::chain, static_cast<int64_t>((bytes + sizeof(Slot) - 1) / sizeof(Slot)));
  auto* const code = static_cast<ThreadedStep*>(static_cast<void*>(memory + slots));
  const State state{at, std::uninitialized_copy(code_.begin(), code_.end(), code) - code_.size(), memory,
                    memory + registers};
  for (const Address& x : in_slots_) code[x.step].in[x.at] = state.slots[x.index].elements;
  for (const size_t i : numbers_) {
    const FusedOperand& x = call_.inputs[i];
    converter(x.dtype, kF32)(&x.number, 0, state.slots[i].elements, 1, kWidest);
  }

  const int64_t row = walk_.iteration.sizes[0], parts = (row + kPart - 1) / kPart;
  Cursor cursor(walk_.iteration, begin / parts * row + begin % parts * kPart);
  for (; begin < end; ++begin) {
    const int64_t n = std::min(kPart, cursor.left_in_row());
    run_row(state, cursor, n);
    cursor.step(n);
  }
  if (past_cache_) table_.flush();
}

/// Computes n elements of a row.
void Chain::run_row(const State& state, const Cursor& cursor, int64_t n) const {
  for (const size_t i : repeated_) std::fill_n(state.slots[i].elements, kWidest, *address(state.at, i, cursor));
  for (const Address& x : moving_) state.code[x.step].in[x.at] = address(state.at, x.index, cursor);
  const int64_t whole = n / table_.width * table_.width;
  table_.run(state.code, 0, whole);
  if (whole < n) run_end(state, cursor, whole, n - whole);
}

/// Computes the last elements of a row, fewer than a step processes, through buffers that are large enough for a whole
/// step.
void Chain::run_end(const State& state, const Cursor& cursor, int64_t done, int64_t n) const {
  const size_t inputs = call_.inputs.size();
  for (const Address& x : moving_) {
    float* const end = state.ends[x.index].elements;
    if (x.index < inputs) {
      std::copy_n(address(state.at, x.index, cursor) + done, n, end);
      std::fill_n(end + n, kWidest - n, 1.0F);
    }
    state.code[x.step].in[x.at] = end;
  }
  table_.run(state.code, 0, table_.width);
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    std::copy_n(state.ends[inputs + o].elements, n, address(state.at, inputs + o, cursor) + done);
}

float* Chain::address(const Addresses& at, size_t operand, const Cursor& cursor) const {
  const size_t inputs = call_.inputs.size();
  void* const data = operand < inputs ? at.inputs[operand] : at.outputs[operand - inputs];
  const int layout = operand < inputs ? walk_.of_input[operand] : walk_.of_output[operand - inputs];
  return static_cast<float*>(data) + cursor.offset[layout];
}

bool Chain::is_one_value(size_t input) const {
  const int layout = walk_.of_input[input];
  return layout >= 0 && walk_.iteration.strides[layout][0] == 0;
}

/// The first output that contains a register while the steps run; the number of outputs if there is none.
size_t Chain::output_of(size_t r) const {
  size_t o = 0;
  while (o < call_.outputs.size() &&
         (static_cast<size_t>(call_.outputs[o].from) != r || call_.outputs[o].may_be_an_input))
    ++o;
  return o;
}

void Chain::put(ThreadedStep& step, int at, const Location& place) {
  step.mask[at] = place.kind == Location::slot ? 0 : -1;
  (place.kind == Location::slot ? in_slots_ : moving_).push_back({code_.size(), at, place.index});
}

void Chain::move(void (*function)(), const Location& place) {
  ThreadedStep step;
  step.function = function;
  put(step, 0, place);
  code_.push_back(step);
}

/// Where a register can be read if it is not the value in the vector registers.
Chain::Location Chain::place(size_t r) const {
  const size_t inputs = call_.inputs.size();
  if (r < inputs && walk_.of_input[r] >= 0 && !is_one_value(r)) return {Location::operand, r};
  if (const size_t o = output_of(r); r >= inputs && o < call_.outputs.size()) return {Location::operand, inputs + o};
  return {Location::slot, r};
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
  const bool read = is_read_from_memory(s, static_cast<int16_t>(r));
  if (stored < call_.outputs.size() && !read)
    store(stored);
  else if (read)
    move(table_.store, place(r));
  for (size_t o = stored + 1; o < call_.outputs.size(); ++o)  // further outputs of the same value
    if (static_cast<size_t>(call_.outputs[o].from) == r && !call_.outputs[o].may_be_an_input) store(o);
}

/// Stores the value in the vector registers to an output that no later step reads.
void Chain::store(size_t output) {
  move(past_cache_ ? table_.store_past_cache : table_.store, {Location::operand, call_.inputs.size() + output});
}

/// Whether a result is read from memory: not only once, by the next step, as the value in the vector registers.
bool Chain::is_read_from_memory(size_t s, int16_t r) const {
  for (size_t o = 0; o < call_.outputs.size(); ++o)
    if (call_.outputs[o].from == r && call_.outputs[o].may_be_an_input) return true;
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

bool Chain::fits(const MapCall& call, const Walk& walk) {
  const Iteration& it = walk.iteration;
  if (it.sizes[0] < kShortest) return false;
  std::vector<DType> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int layout = walk.of_input[i];
    if (layout < 0) continue;
    if (it.strides[layout][0] > 1) return false;
    inputs.push_back(call.inputs[i].dtype);
  }
  return std::ranges::all_of(walk.of_output, [&](int layout) { return it.strides[layout][0] == 1; }) &&
         may_be_chain(call.steps, inputs);
}

bool may_be_chain(std::span<const FusedStep> steps, std::span<const DType> inputs) {
  const auto& rows = threaded_functions().rows;
  return std::ranges::all_of(inputs, [](DType x) { return x == kF32; }) &&
         std::ranges::all_of(steps, [&](const FusedStep& s) {
           return s.kind == FusedStep::formula && s.compute == kF32 && s.result == kF32 && s.dtype == kF32 &&
                  rows[static_cast<int>(s.op)][0] != nullptr;
         });
}

}  // namespace lorry::kernels::cpu
