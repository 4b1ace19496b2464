// Runs fused calls block by block: a block's elements of every input, step by step through the functions that the
// operators alone run (pointwise/blocks.h), then to the outputs. Registers are buffers that stay in the first-level
// cache, so what moves through memory is each input and each output once.
//
// A register holds its elements in the type in which values of its dtype are computed: floats of 16 bits in f32,
// integers and bool in i64. After each step they are rounded as the operator's result is.

#include <algorithm>
#include <array>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/fused/chain.h"
#include "lorry/kernels/cpu/fused/rows.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = 16384;  ///< elements worth a second thread
constexpr int64_t kBlock = 512;    ///< elements a block: eight registers of f64 fill a first-level cache

/// The type in which elements of a dtype wait in a register.
constexpr DType held_as(DType t) { return t == kF64 ? kF64 : is_floating(t) ? kF32 : kI64; }

using Buffer = char[kBlock * sizeof(double)];

/// Where a register's elements are: in memory of the caller, in a buffer, or one value repeated.
struct Register {
  const void* data = nullptr;
  int64_t step = 1;  ///< 0: a splat
};

/// What is the same for all blocks of a call.
class Plan {
 public:
  Plan(const FusedCall& call, const Walk& walk) : call(call), walk(walk) {
    find_runs();
    find_buffers();
    numbers_.resize(call.inputs.size());
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const FusedOperand& x = call.inputs[i];
      if (walk.of_input[i] >= 0) continue;
      converter(x.dtype, held_as(x.dtype))(x.data, 0, numbers_[i].data(), 1, kSplatBytes / size_of(held_as(x.dtype)));
    }
  }

  DType dtype(int r) const {
    const auto i = static_cast<size_t>(r);
    return i < call.inputs.size() ? call.inputs[i].dtype : call.steps[i - call.inputs.size()].dtype;
  }
  const void* number(size_t input) const { return numbers_[input].data(); }

  const FusedCall& call;
  const Walk& walk;
  std::vector<bool> run;    ///< operands of the iteration that are contiguous over the whole of it
  std::vector<int> buffer;  ///< of each register
  int buffers = 0;

 private:
  struct alignas(kSplatBytes) Splat : std::array<char, kSplatBytes> {};

  void find_runs() {
    const Iteration& iteration = walk.iteration;
    for (int k = 0; k < iteration.operands; ++k) {
      int64_t expected = 1;
      bool contiguous = true;
      for (int d = 0; d < iteration.rank; ++d) {
        contiguous &= iteration.strides[k][d] == expected;
        expected *= iteration.sizes[d];
      }
      run.push_back(contiguous);
    }
  }

  /// A buffer for each register, used again when its register is read no more.
  void find_buffers() {
    const size_t inputs = call.inputs.size(), registers = inputs + call.steps.size();
    std::vector<size_t> last(registers, 0);
    for (size_t s = 0; s < call.steps.size(); ++s)
      for (int k = 0; k < call.steps[s].arity; ++k) last[static_cast<size_t>(call.steps[s].in[k])] = s;
    for (const FusedOutput& x : call.outputs) last[static_cast<size_t>(x.from)] = call.steps.size();
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
      buffer[inputs + s] = take();  // before its operands' are free: a step's result overlaps none of them
      for (size_t r = 0; r < inputs + s; ++r)
        if (last[r] == s && (r >= inputs || is_read(r))) free.push_back(buffer[r]);
    }
  }
  bool is_read(size_t r) const {
    return std::ranges::any_of(call.steps, [&](const FusedStep& s) {
      return std::any_of(s.in, s.in + s.arity, [&](int16_t i) { return static_cast<size_t>(i) == r; });
    });
  }

  std::vector<Splat> numbers_;
};

/// One thread's share of a call.
class Worker {
 public:
  explicit Worker(const Plan& plan)
      : plan_(plan),
        call_(plan.call),
        buffers_(static_cast<size_t>(plan.buffers)),
        registers_(call_.inputs.size() + call_.steps.size()) {}

  void run(int64_t begin, int64_t end) {
    Cursor cursor(plan_.walk.iteration, begin);
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
  struct alignas(kSplatBytes) Aligned {
    Buffer bytes;
  };

  void* buffer(size_t r) { return buffers_[static_cast<size_t>(plan_.buffer[r])].bytes; }

  static char* advance(void* data, int64_t elements, DType dtype) {
    return static_cast<char*>(data) + elements * size_of(dtype);
  }

  void load(const Cursor& cursor, int64_t linear, int64_t n) {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const FusedOperand& x = call_.inputs[i];
      const int layout = plan_.walk.of_input[i];
      if (layout < 0) {
        registers_[i] = {plan_.number(i), 0};
        continue;
      }
      const bool run = plan_.run[static_cast<size_t>(layout)];
      const bool one_row = n <= cursor.left_in_row();
      const int64_t stride = plan_.walk.iteration.strides[layout][0];
      const DType held = held_as(x.dtype);
      char* first = advance(x.data, run ? linear : cursor.offset[layout], x.dtype);
      if ((run || (one_row && stride == 1)) && x.dtype == held) {
        registers_[i] = {first, 1};
        continue;
      }
      registers_[i] = {buffer(i), 1};
      if (run || one_row)
        converter(x.dtype, held)(first, run ? 1 : stride, buffer(i), 1, n);
      else
        gather(cursor, x, layout, static_cast<char*>(buffer(i)), n);
    }
  }

  void gather(Cursor cursor, const FusedOperand& x, int layout, char* to, int64_t n) {
    const DType held = held_as(x.dtype);
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(cursor.left_in_row(), n - done);
      converter(x.dtype, held)(advance(x.data, cursor.offset[layout], x.dtype), plan_.walk.iteration.strides[layout][0],
                               to + done * size_of(held), 1, part);
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
      converter(held_as(plan_.dtype(step.in[0])), step.dtype)(registers_[from].data, registers_[from].step, spare_[0],
                                                              1, n);
      converter(step.dtype, held)(spare_[0], 1, buffer(r), 1, n);
      return;
    }
    const void* in[kMaxArity];
    int64_t steps[kMaxArity];
    for (int k = 0; k < step.arity; ++k) {
      const Register& x = registers_[static_cast<size_t>(step.in[k])];
      const DType from = held_as(plan_.dtype(step.in[k]));
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

  /// Elements in `compute` as a value of `result`, converted to `dtype`, as a register holds it.
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
      const int layout = plan_.walk.of_output[o];
      const DType held = held_as(x.to.dtype);
      const Register& from = registers_[static_cast<size_t>(x.from)];
      if (plan_.run[static_cast<size_t>(layout)]) {
        converter(held, x.to.dtype)(from.data, from.step, advance(x.to.data, linear, x.to.dtype), 1, n);
        continue;
      }
      Cursor at = cursor;
      for (int64_t done = 0; done < n;) {
        const int64_t part = std::min(at.left_in_row(), n - done);
        converter(held, x.to.dtype)(static_cast<const char*>(from.data) + done * from.step * size_of(held), from.step,
                                    advance(x.to.data, at.offset[layout], x.to.dtype),
                                    plan_.walk.iteration.strides[layout][0], part);
        at.step(part);
        done += part;
      }
    }
  }

  const Plan& plan_;
  const FusedCall& call_;
  std::vector<Aligned> buffers_;
  std::vector<Register> registers_;
  alignas(kSplatBytes) Buffer spare_[kMaxArity];
};

void run(const FusedCall& call, Stream) {
  int64_t n = 1;
  for (const int64_t size : call.sizes) n *= size;
  if (n == 0) return;
  const Walk walk(call);
  if (is_chain(call, walk)) return run_chain(call, walk);
  const Plan plan(call, walk);
  lorry::cpu::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) { Worker(plan).run(begin, end); });
}

}  // namespace

Walk::Walk(const FusedCall& call) {
  std::vector<Layout> layouts;
  const auto index = [&](const FusedOperand& x) {
    if (x.layout.rank < 0) return -1;
    const auto found = std::find(layouts.begin(), layouts.end(), x.layout);
    if (found != layouts.end()) return static_cast<int>(found - layouts.begin());
    layouts.push_back(x.layout);
    return static_cast<int>(layouts.size()) - 1;
  };
  for (const FusedOutput& x : call.outputs) of_output.push_back(index(x.to));
  for (const FusedOperand& x : call.inputs) of_input.push_back(index(x));
  require<ValueError>(layouts.size() <= static_cast<size_t>(kMaxFusedLayouts), "too many layouts; got {}",
                      layouts.size());
  iteration = collapse(layouts.data(), static_cast<int>(layouts.size()));
}

const FusedKernels& fused_kernels() {
  static constexpr FusedKernels kKernels{.run = run, .run_rows = run_rows};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
