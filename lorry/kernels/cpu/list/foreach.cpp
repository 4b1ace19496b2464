// Pointwise operators over lists: the block functions of kernels/cpu/pointwise/pointwise.cpp, over runs of all entries
// as one sequence. Arrays of the compute type are passed as they are, others block by block through buffers in the
// first-level cache.

#include <algorithm>
#include <cstring>

#include "lorry/formula/arithmetic.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/list/list.h"
#include "lorry/kernels/cpu/pointwise/blocks.h"
#include "lorry/kernels/cpu/table.h"
#include "lorry/kernels/list.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kBlock = 1'024;

char* at(void* data, int64_t element, DType dtype) { return static_cast<char*>(data) + element * size_of(dtype); }

struct alignas(kSplatBytes) Splat {
  char bytes[kSplatBytes];
  void set(const void* element, DType dtype, DType compute) {
    converter(dtype, compute)(element, 0, bytes, 1, kSplatBytes / size_of(compute));
  }
};

/// Runs the function over `count` elements of an entry, from `begin` on.
void run_entry(const ListPointwiseCall& call, BlockFunction function, const Splat* shared, const ListEntry& entry,
               int64_t begin, int64_t count) {
  alignas(kSplatBytes) char buffers[1 + kMaxArity][kBlock * sizeof(double)];
  Splat own[kMaxArity];
  const void* in[kMaxArity];
  int64_t step[kMaxArity];
  const List& list = call.list;
  bool is_direct = list.dtype(0) == call.compute;
  for (int k = 0; k < call.arity; ++k) {
    const ListOperand& x = call.in[k];
    step[k] = x.kind == ListOperand::Kind::array ? 1 : 0;
    if (step[k] == 1) {
      is_direct = is_direct && list.dtype(1 + k) == call.compute;
    } else if (x.kind == ListOperand::Kind::values && x.step > 0) {
      own[k].set(static_cast<const char*>(x.values) + int64_t{x.step} * entry.word * size_of(x.dtype), x.dtype,
                 call.compute);
      in[k] = own[k].bytes;
    } else {
      in[k] = shared[k].bytes;
    }
  }
  const int64_t block = is_direct ? count : kBlock;
  for (int64_t i = begin; i < begin + count; i += block) {
    const int64_t n = std::min(block, begin + count - i);
    for (int k = 0; k < call.arity; ++k) {
      if (step[k] == 0) continue;
      in[k] = at(entry.at[1 + k], i, list.dtype(1 + k));
      if (list.dtype(1 + k) == call.compute) continue;
      converter(list.dtype(1 + k), call.compute)(in[k], 1, buffers[1 + k], 1, n);
      in[k] = buffers[1 + k];
    }
    char* const out = at(entry.at[0], i, list.dtype(0));
    if (list.dtype(0) == call.compute) {
      function(in, step, out, n);
    } else {
      function(in, step, buffers[0], n);
      converter(call.compute, list.dtype(0))(buffers[0], 1, out, 1, n);
    }
  }
}

void run_list(const ListPointwiseCall& call, BlockFunction function) {
  if (call.unless_nan != nullptr && *call.unless_nan != *call.unless_nan) return;
  Splat shared[kMaxArity];
  for (int k = 0; k < call.arity; ++k) {
    const ListOperand& x = call.in[k];
    if (x.kind == ListOperand::Kind::number) shared[k].set(&x.real, x.dtype, call.compute);
    if (x.kind == ListOperand::Kind::values && x.step == 0) shared[k].set(x.values, x.dtype, call.compute);
  }
  for_each_run(call.list, [&](const ListEntry& entry, int64_t begin, int64_t count) {
    run_entry(call, function, shared, entry, begin, count);
  });
}

void pointwise(const ListPointwiseCall& call, const Stream&) {
  const BlockFunctions& row = block_functions()[static_cast<int>(call.op)];
  const BlockFunction function = call.compute == kF32 ? row.f32 : call.compute == kF64 ? row.f64 : row.i64;
  require<DTypeError>(function != nullptr, "no kernel computes it in {}", call.compute);
  run_list(call, function);
}

template <class C>
void blend_block(const void* const* in, const int64_t* step, void* out, int64_t n) {
  const C *const start = static_cast<const C*>(in[0]), *const end = static_cast<const C*>(in[1]),
                 *const weight = static_cast<const C*>(in[2]);
  for (int64_t i = 0; i < n; ++i)
    static_cast<C*>(out)[i] = formula::Blend()(start[step[0] * i], end[step[1] * i], weight[step[2] * i]);
}

void blend(const ListPointwiseCall& call, const Stream&) {
  run_list(call, call.compute == kF64 ? blend_block<double> : blend_block<float>);
}

void copy(const List& list, const Stream&) {
  const Convert convert = converter(list.dtype(1), list.dtype(0));
  for_each_run(list, [&](const ListEntry& entry, int64_t begin, int64_t count) {
    convert(at(entry.at[1], begin, list.dtype(1)), 1, at(entry.at[0], begin, list.dtype(0)), 1, count);
  });
}

void fill(const List& list, const void* value, DType dtype, const Stream&) {
  alignas(8) char element[8];
  converter(dtype, list.dtype(0))(value, 0, element, 1, 1);
  const Convert repeat = converter(list.dtype(0), list.dtype(0));
  for_each_run(list, [&](const ListEntry& entry, int64_t begin, int64_t count) {
    repeat(element, 0, at(entry.at[0], begin, list.dtype(0)), 1, count);
  });
}

}  // namespace

const ForeachKernels& foreach_kernels() {
  static constexpr ForeachKernels kKernels{.pointwise = pointwise, .blend = blend, .copy = copy, .fill = fill};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
