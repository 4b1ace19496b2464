// Runs block functions over tensors.
//
// Contiguous operands of the block function's type are passed to it as they are. Otherwise the iteration is divided
// into blocks. In each block, operands that are not contiguous or not of that type are gathered and converted into
// buffers in the first-level cache; the result is written back the same way. So small integers, mixed types and
// strides need no functions of their own; they cost a pass over cached memory. A long row (kRow) has blocks of its
// own, whose unit-stride operands are used in place; shorter rows share blocks.
//
// Bytes moved: every operand once, the result once. Elements are independent, so results do not depend on the division
// among threads.

#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <atomic>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"

namespace lorry::kernels::cpu {
namespace {

static_assert(1 + kMaxArity <= kMaxOperands);
constexpr int64_t kGrain = 32768;  ///< elements worth a second thread
constexpr int64_t kBlock = 1024;   ///< elements per block: five buffers of 8-byte elements fit the first-level cache
constexpr int64_t kRow = 64;       ///< rows at least this long do not share blocks

struct alignas(kSplatBytes) Splat {
  char bytes[kSplatBytes];
};

const BlockFunctions& functions_of(Pointwise op) { return block_functions()[static_cast<int>(op)]; }

BlockFunction block_function(Pointwise op, DType compute) {
  const BlockFunctions& row = functions_of(op);
  const BlockFunction function = compute == kF32 ? row.f32 : compute == kF64 ? row.f64 : row.i64;
  require<DTypeError>(function != nullptr, "no kernel computes it in {}", compute);
  return function;
}

/// Over elements of `stored`, which are converted in registers; null if there is none.
BlockFunction narrow_function(Pointwise op, DType compute, DType stored) {
  const BlockFunctions& row = functions_of(op);
  if (compute == kF32) return stored == kBF16 ? row.bf16 : stored == kF16 ? row.f16 : nullptr;
  return compute == kI64 && stored == kI32 ? row.i32 : nullptr;
}

/// Converts one element of `dtype` to `number` and repeats it.
void splat(const void* element, DType dtype, DType number, Splat& to) {
  converter(dtype, number)(element, 0, to.bytes, 1, kSplatBytes / size_of(number));
}

bool is_single(const PointwiseOperand& x) { return x.layout == nullptr || x.layout->numel() == 1; }

char* advance(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * size_of(dtype);
}

/// A function, and the types of the elements that it reads and writes, and of the numbers that it repeats.
struct Chosen {
  BlockFunction function;
  DType element, number;
};

/// Whether a single whole number is one of i32.
bool fits_i32(const PointwiseOperand& x) {
  int64_t value;
  converter(x.dtype, kI64)(x.data, 0, &value, 1, 1);
  return value == static_cast<int32_t>(value);
}

/// A call whose tensors all have one narrower type takes the function of that type whatever their layouts are: two
/// functions of a formula may differ in the sign of a NaN. Of whole numbers, narrower functions give the same bits.
Chosen choose(const PointwiseCall& call) {
  const DType stored = call.out.dtype, number = stored == kI32 ? kI32 : call.compute;
  const auto can_be = [&](const PointwiseOperand& x) {
    return is_single(x) ? number != kI32 || fits_i32(x) : x.dtype == stored;
  };
  if (stored != call.compute && std::all_of(call.in, call.in + call.arity, can_be))
    if (const BlockFunction function = narrow_function(call.op, call.compute, stored))
      return {function, stored, number};
  return {block_function(call.op, call.compute), call.compute, call.compute};
}

/// If every operand is a number or contiguous like the result, and all have the function's type: runs without buffers
/// and without an iteration.
bool run_contiguous(const PointwiseCall& call, const Chosen& chosen) {
  const auto [function, element, number] = chosen;
  if (!call.out.contiguous || call.out.dtype != element) return false;
  const void* in[kMaxArity];
  int64_t step[kMaxArity];
  Splat splats[kMaxArity];
  for (int k = 0; k < call.arity; ++k) {
    const PointwiseOperand& x = call.in[k];
    if (is_single(x)) {
      splat(x.data, x.dtype, number, splats[k]);
      in[k] = splats[k].bytes;
      step[k] = 0;
    } else if (x.contiguous && x.dtype == element && same_sizes(*x.layout, *call.out.layout)) {
      in[k] = x.data;
      step[k] = 1;
    } else {
      return false;
    }
  }
  const int64_t n = call.out.layout->numel();
  if (n <= kGrain) {
    function(in, step, call.out.data, n);
    return true;
  }
  lorry::cpu::parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    const void* part[kMaxArity];
    for (int k = 0; k < call.arity; ++k)
      part[k] = static_cast<const char*>(in[k]) + begin * step[k] * size_of(chosen.element);
    chosen.function(part, step, advance(call.out.data, begin, chosen.element), end - begin);
  });
  return true;
}

/// The iteration over all operands (0 is the result), and how each is accessed.
struct OperandPlan {
  enum class Access { splat, run, rows };  ///< one value; contiguous over the whole iteration; strided

  Iteration iteration;
  Access access[1 + kMaxArity];
  Splat splats[1 + kMaxArity];
  const PointwiseOperand* operands[1 + kMaxArity];
  DType element, number;  ///< the types of what functions read and write, and of splats

  OperandPlan(const PointwiseCall& call, const Chosen& chosen) : element(chosen.element), number(chosen.number) {
    Layout layouts[1 + kMaxArity];
    const Dims sizes = call.out.layout->size_list();
    for (int k = 0; k <= call.arity; ++k) {
      operands[k] = k == 0 ? &call.out : &call.in[k - 1];
      if (k > 0 && is_single(*operands[k])) {
        access[k] = Access::splat;
        splat(operands[k]->data, operands[k]->dtype, number, splats[k]);
        layouts[k] = expand(Layout::contiguous({}), sizes);
      } else {
        access[k] = Access::rows;
        layouts[k] = expand(*operands[k]->layout, sizes);
      }
    }
    iteration = collapse(layouts, 1 + call.arity);
    for (int k = 0; k <= call.arity; ++k)
      if (access[k] == Access::rows && is_run(k)) access[k] = Access::run;
  }

  bool is_direct(int k) const { return operands[k]->dtype == element; }

 private:
  bool is_run(int k) const {
    int64_t expected = 1;
    for (int d = 0; d < iteration.rank; ++d) {
      if (iteration.strides[k][d] != expected) return false;
      expected *= iteration.sizes[d];
    }
    return true;
  }
};

/// Runs one thread's share, block by block. Operands that are strided or of another dtype are read and written through
/// contiguous copies in the type of the function.
class BlockRunner {
 public:
  BlockRunner(const OperandPlan& plan, BlockFunction function, int arity)
      : plan_(plan), function_(function), arity_(arity) {}

  void run(int64_t begin, int64_t end) {
    const bool long_rows = plan_.iteration.sizes[0] >= kRow;
    Cursor cursor(plan_.iteration, begin);
    while (begin < end) {
      int64_t n = std::min(kBlock, end - begin);
      if (long_rows) n = std::min(n, cursor.left_in_row());
      block(cursor, begin, n);
      begin += n;
    }
  }

 private:
  using Buffer = char[kBlock * sizeof(double)];

  /// Computes the n elements at the cursor, which is at position `linear` of the iteration, and moves it past them.
  void block(Cursor& cursor, int64_t linear, int64_t n) {
    const Iteration& it = plan_.iteration;
    const bool one_row = n <= cursor.left_in_row();
    const void* in[kMaxArity];
    int64_t step[kMaxArity];
    bool gathered[1 + kMaxArity] = {};
    bool any_gathered = false;
    for (int k = 1; k <= arity_; ++k) {
      const PointwiseOperand& x = *plan_.operands[k];
      const int64_t stride = it.strides[k][0];
      step[k - 1] = 1;
      if (plan_.access[k] == OperandPlan::Access::splat) {
        in[k - 1] = plan_.splats[k].bytes;
        step[k - 1] = 0;
      } else if (plan_.access[k] == OperandPlan::Access::run && plan_.is_direct(k)) {
        in[k - 1] = advance(x.data, linear, x.dtype);
      } else if (plan_.access[k] == OperandPlan::Access::run) {
        converter(x.dtype, plan_.element)(advance(x.data, linear, x.dtype), 1, buffers_[k], 1, n);
        in[k - 1] = buffers_[k];
      } else if (one_row && stride == 0) {
        splat(advance(x.data, cursor.offset[k], x.dtype), x.dtype, plan_.number, splats_[k]);
        in[k - 1] = splats_[k].bytes;
        step[k - 1] = 0;
      } else if (one_row && stride == 1 && plan_.is_direct(k)) {
        in[k - 1] = advance(x.data, cursor.offset[k], x.dtype);
      } else {
        in[k - 1] = buffers_[k];
        gathered[k] = any_gathered = true;
      }
    }
    const PointwiseOperand& out = *plan_.operands[0];
    const bool run = plan_.access[0] == OperandPlan::Access::run;
    const bool in_place = plan_.is_direct(0) && (run || (one_row && it.strides[0][0] == 1));
    if (any_gathered) gather(cursor, n, gathered);
    void* target = in_place ? advance(out.data, run ? linear : cursor.offset[0], out.dtype) : buffers_[0];
    function_(in, step, target, n);
    if (in_place) {
      skip(cursor, n);
    } else if (run) {
      converter(plan_.element, out.dtype)(buffers_[0], 1, advance(out.data, linear, out.dtype), 1, n);
      skip(cursor, n);
    } else {
      scatter(cursor, n);
    }
  }

  void gather(Cursor cursor, int64_t n, const bool* gathered) {
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(cursor.left_in_row(), n - done);
      for (int k = 1; k <= arity_; ++k) {
        if (!gathered[k]) continue;
        const PointwiseOperand& x = *plan_.operands[k];
        converter(x.dtype, plan_.element)(advance(x.data, cursor.offset[k], x.dtype), plan_.iteration.strides[k][0],
                                          buffers_[k] + done * size_of(plan_.element), 1, part);
      }
      cursor.step(part);
      done += part;
    }
  }

  void scatter(Cursor& cursor, int64_t n) {
    const PointwiseOperand& out = *plan_.operands[0];
    for (int64_t done = 0; done < n;) {
      const int64_t part = std::min(cursor.left_in_row(), n - done);
      converter(plan_.element, out.dtype)(buffers_[0] + done * size_of(plan_.element), 1,
                                          advance(out.data, cursor.offset[0], out.dtype), plan_.iteration.strides[0][0],
                                          part);
      cursor.step(part);
      done += part;
    }
  }

  static void skip(Cursor& cursor, int64_t n) {
    for (int64_t part; n > 0; n -= part) {
      part = std::min(cursor.left_in_row(), n);
      cursor.step(part);
    }
  }

  const OperandPlan& plan_;
  BlockFunction function_;
  int arity_;
  alignas(kSplatBytes) Buffer buffers_[1 + kMaxArity];
  Splat splats_[1 + kMaxArity];
};

void run(const PointwiseCall& call, Stream) {
  const Chosen chosen = choose(call);
  if (run_contiguous(call, chosen)) return;
  const int64_t n = call.out.layout->numel();
  if (n == 0) return;
  const OperandPlan plan(call, chosen);
  lorry::cpu::parallel_for(
      n, kGrain, [&](int64_t begin, int64_t end) { BlockRunner(plan, chosen.function, call.arity).run(begin, end); });
}

bool has_zero(const Array& x, Stream) {
  const Layout layouts[] = {x.layout};
  const Iteration it = collapse(layouts, 1);
  const int64_t stride = it.strides[0][0];
  std::atomic<bool> found = false;
  visit(x.dtype, [&]<class T>(Type<T>) {
    lorry::cpu::parallel_for(x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      Cursor cursor(it, begin);
      for (int64_t n; begin < end && !found.load(std::memory_order_relaxed); begin += n) {
        n = std::min({end - begin, cursor.left_in_row(), kGrain});
        const T* const row = x.as<T>() + cursor.offset[0];
        bool here = false;
        if (stride == 1)
          for (int64_t i = 0; i < n; ++i) here |= row[i] == T(0);
        else
          for (int64_t i = 0; i < n; ++i) here |= row[i * stride] == T(0);
        if (here) found.store(true, std::memory_order_relaxed);
        cursor.step(n);
      }
    });
  });
  return found;
}

}  // namespace

const PointwiseKernels& pointwise_kernels() {
  static constexpr PointwiseKernels kKernels{.run = run, .has_zero = has_zero};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
