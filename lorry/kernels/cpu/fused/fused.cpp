// Runs fused calls block by block: loads a block's elements of every input, runs the steps with the block functions of
// the operators (pointwise/blocks.h), and stores the outputs. Registers are buffers that stay in the first-level cache,
// so each input is read from memory once, and each output written once.
//
// A register has the compute type of its dtype: f32 for 16-bit floats, i64 for integers and bool. After each step it is
// rounded like the operator's result.

#include <algorithm>
#include <memory>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/fused/map.h"
#include "lorry/kernels/cpu/fused/rows.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = 16384;  ///< elements worth a second thread
constexpr int64_t kBlock = 512;    ///< elements per block: eight registers of f64 fill a first-level cache

/// The type of a register that holds elements of a dtype.
constexpr DType held_as(DType t) { return t == kF64 ? kF64 : is_floating(t) ? kF32 : kI64; }

using Buffer = char[kBlock * sizeof(double)];

/// Where a register's elements are: in the caller's memory, in a buffer, or one value repeated.
struct Register {
  const void* data = nullptr;
  int64_t step = 1;  ///< 0: one value, repeated
};

/// One thread's share of a call.
class Worker {
 public:
  Worker(const MapCall& call, const Walk& walk, const BlockPlan& plan, const Addresses& at)
      : call_(call), walk_(walk), plan_(plan), at_(at) {
    const size_t registers = call.inputs.size() + call.steps.size();
    const size_t needed = static_cast<size_t>(plan.buffers) * sizeof(Buffer) + call.inputs.size() * kSplatBytes;
    memory_ = scratch<char>(Scratch::blocks, static_cast<int64_t>(needed + registers * sizeof(Register)));
    numbers_ = memory_ + static_cast<size_t>(plan.buffers) * sizeof(Buffer);
    registers_ = static_cast<Register*>(static_cast<void*>(memory_ + needed));
    std::uninitialized_value_construct_n(registers_, registers);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const FusedOperand& x = call.inputs[i];
      if (walk.of_input[i] < 0)
        converter(x.dtype, held_as(x.dtype))(&x.number, 0, number(i), 1, kSplatBytes / size_of(held_as(x.dtype)));
    }
  }

  void run(int64_t begin, int64_t end) {
    Cursor cursor(walk_.iteration, begin);
    while (begin < end) {
      const int64_t n = std::min(kBlock, end - begin);
      load(cursor, begin, n);
      for (size_t s = 0; s < call_.steps.size(); ++s) compute(s, n);
      store(cursor, begin, n);
      for (int64_t left = n; left > 0;) {
        const int64_t part = std::min(cursor.left_in_row(), left);
        cursor.step(part);
        left -= part;
      }
      begin += n;
    }
  }

 private:
  void* buffer(size_t r) { return memory_ + static_cast<size_t>(plan_.buffer[r]) * sizeof(Buffer); }
  void* number(size_t input) { return numbers_ + input * kSplatBytes; }

  static char* advance(void* data, int64_t elements, DType dtype) {
    return static_cast<char*>(data) + elements * size_of(dtype);
  }

  void load(const Cursor& cursor, int64_t linear, int64_t n) {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const FusedOperand& x = call_.inputs[i];
      const int layout = walk_.of_input[i];
      if (layout < 0) {
        registers_[i] = {number(i), 0};
        continue;
      }
      const bool run = plan_.contiguous[static_cast<size_t>(layout)];
      const bool one_row = n <= cursor.left_in_row();
      const int64_t stride = walk_.iteration.strides[layout][0];
      const DType held = held_as(x.dtype);
      char* first = advance(at_.inputs[i], run ? linear : cursor.offset[layout], x.dtype);
      if ((run || (one_row && stride == 1)) && x.dtype == held) {
        registers_[i] = {first, 1};
        continue;
      }
      registers_[i] = {buffer(i), 1};
      if (run || one_row)
        converter(x.dtype, held)(first, run ? 1 : stride, buffer(i), 1, n);
      else
        gather(cursor, i, layout, static_cast<char*>(buffer(i)), n);
    }
  }

  void gather(Cursor cursor, size_t input, int layout, char* to, int64_t n) {
    const DType dtype = call_.inputs[input].dtype, held = held_as(dtype);
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(cursor.left_in_row(), n - done);
      converter(dtype, held)(advance(at_.inputs[input], cursor.offset[layout], dtype),
                             walk_.iteration.strides[layout][0], to + done * size_of(held), 1, part);
      cursor.step(part);
      done += part;
    }
  }

  void compute(size_t s, int64_t n) {
    const FusedStep& step = call_.steps[s];
    const size_t r = call_.inputs.size() + s;
    registers_[r] = {buffer(r), 1};
    const DType held = held_as(step.dtype);
    if (step.kind == FusedStep::convert) {
      const auto from = static_cast<size_t>(step.in[0]);
      converter(held_as(call_.dtype(step.in[0])), step.dtype)(registers_[from].data, registers_[from].step, spare_[0],
                                                              1, n);
      converter(step.dtype, held)(spare_[0], 1, buffer(r), 1, n);
      return;
    }
    const void* in[kMaxArity];
    int64_t steps[kMaxArity];
    for (int k = 0; k < step.arity; ++k) {
      const Register& x = registers_[static_cast<size_t>(step.in[k])];
      const DType from = held_as(call_.dtype(step.in[k]));
      in[k] = x.data;
      steps[k] = x.step;
      if (from == step.compute) continue;
      converter(from, step.compute)(x.data, x.step, spare_[k], 1,
                                    x.step == 0 ? kSplatBytes / size_of(step.compute) : n);
      in[k] = spare_[k];
    }
    const BlockFunctions& row = block_functions()[static_cast<int>(step.op)];
    const BlockFunction function = step.compute == kF32 ? row.f32 : step.compute == kF64 ? row.f64 : row.i64;
    function(in, steps, buffer(r), n);
    round(step.compute, step.result, step.dtype, buffer(r), n);
  }

  /// Rounds elements of type `compute` to `result`, then to `dtype`, in the register's type.
  void round(DType compute, DType result, DType dtype, void* data, int64_t n) {
    DType now = compute;
    for (const DType next : {result, dtype, held_as(dtype)}) {
      if (next == now) continue;
      converter(now, next)(data, 1, spare_[0], 1, n);
      std::copy_n(spare_[0], n * size_of(next), static_cast<char*>(data));
      now = next;
    }
  }

  void store(const Cursor& cursor, int64_t linear, int64_t n) {
    for (size_t o = 0; o < call_.outputs.size(); ++o) {
      const FusedOutput& x = call_.outputs[o];
      const int layout = walk_.of_output[o];
      const DType held = held_as(x.to.dtype);
      const Register& from = registers_[static_cast<size_t>(x.from)];
      if (plan_.contiguous[static_cast<size_t>(layout)]) {
        converter(held, x.to.dtype)(from.data, from.step, advance(at_.outputs[o], linear, x.to.dtype), 1, n);
        continue;
      }
      Cursor at = cursor;
      for (int64_t done = 0; done < n;) {
        const int64_t part = std::min(at.left_in_row(), n - done);
        converter(held, x.to.dtype)(static_cast<const char*>(from.data) + done * from.step * size_of(held), from.step,
                                    advance(at_.outputs[o], at.offset[layout], x.to.dtype),
                                    walk_.iteration.strides[layout][0], part);
        at.step(part);
        done += part;
      }
    }
  }

  const MapCall& call_;
  const Walk& walk_;
  const BlockPlan& plan_;
  const Addresses& at_;
  char* memory_;         ///< the buffers
  char* numbers_;        ///< one repeated value per input that is a number
  Register* registers_;  ///< the inputs', then the steps'
  alignas(kSplatBytes) Buffer spare_[kMaxArity];
};

int64_t elements_of(const MapCall& call) {
  int64_t n = 1;
  for (const int64_t size : call.sizes) n *= size;
  return n;
}

std::unique_ptr<const FusedKernel> make(const FusedCall& call, Device) {
  return std::make_unique<MapKernel>(MapCall(call));
}

}  // namespace

BlockPlan::BlockPlan(const MapCall& call, const Walk& walk) {
  const Iteration& iteration = walk.iteration;
  for (int k = 0; k < iteration.operands; ++k) {
    int64_t expected = 1;
    bool run = true;
    for (int d = 0; d < iteration.rank; ++d) {
      run &= iteration.strides[k][d] == expected;
      expected *= iteration.sizes[d];
    }
    contiguous.push_back(run);
  }

  const size_t inputs = call.inputs.size(), registers = inputs + call.steps.size();
  std::vector<size_t> last(registers, 0);
  std::vector<bool> is_read(registers, false);
  const auto read = [&](int16_t r, size_t step) {
    last[static_cast<size_t>(r)] = step;
    is_read[static_cast<size_t>(r)] = true;
  };
  for (size_t s = 0; s < call.steps.size(); ++s)
    for (int k = 0; k < call.steps[s].arity; ++k) read(call.steps[s].in[k], s);
  for (const FusedOutput& x : call.outputs) read(x.from, call.steps.size());
  std::vector<int> free;
  buffer.assign(registers, -1);
  const auto take = [&] {
    if (free.empty()) return buffers++;
    const int b = free.back();
    free.pop_back();
    return b;
  };
  for (size_t i = 0; i < inputs; ++i) buffer[i] = take();
  for (size_t s = 0; s < call.steps.size(); ++s) {
    // before the operands' buffers are freed, because a step's result must not overlap its operands
    buffer[inputs + s] = take();
    for (size_t r = 0; r < inputs + s; ++r)
      if (last[r] == s && (r >= inputs || is_read[r])) free.push_back(buffer[r]);
  }
}

MapKernel::MapKernel(MapCall call) : call_(std::move(call)), walk_(call_), elements_(elements_of(call_)) {
  if (elements_ == 0) return;
  if (Chain::fits(call_, walk_))
    chain_.emplace(call_, walk_);
  else
    blocks_.emplace(call_, walk_);
}

bool MapKernel::run(std::span<void* const> inputs, std::span<void* const> outputs, Stream) const {
  const Addresses at{inputs, outputs};
  if (chain_)
    lorry::cpu::parallel_for(chain_->tasks(), std::max<int64_t>(1, kGrain / chain_->elements_a_task()),
                             [&](int64_t begin, int64_t end) { chain_->run(at, begin, end); });
  else
    lorry::cpu::parallel_for(elements_, kGrain,
                             [&](int64_t begin, int64_t end) { Worker(call_, walk_, *blocks_, at).run(begin, end); });
  return true;
}

void MapKernel::run_here(std::span<void* const> inputs, std::span<void* const> outputs) const {
  const Addresses at{inputs, outputs};
  if (chain_)
    chain_->run(at, 0, chain_->tasks());
  else if (elements_ > 0)
    Worker(call_, walk_, *blocks_, at).run(0, elements_);
}

const FusedKernels& fused_kernels() {
  static constexpr FusedKernels kKernels{.make = make, .make_rows = make_rows, .may_be_chain = may_be_chain};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
