// Compiled once for each instruction set.

#include "lorry/kernels/cpu/fused/threaded.h"

#include <hwy/cache_control.h>

#include "lorry/kernels/cpu/common/vec_formulas.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

using V = Vec<float>;
constexpr int64_t kLanes = V::kLanes;
static_assert(kThreadedVectors == 8);
#define LORRY_EIGHT V a, V b, V c, V d, V e, V f, V g, V h
using Function = void (*)(const ThreadedStep* step, int64_t i, LORRY_EIGHT);

LORRY_INLINE void next(const ThreadedStep* step, int64_t i, LORRY_EIGHT) {
  return reinterpret_cast<Function>(step[1].function)(step + 1, i, a, b, c, d, e, f, g, h);
}

/// Operand k of a step whose operand kAt is in the vector registers, for vector register number r.
template <int kAt, int k>
LORRY_INLINE V operand(const ThreadedStep* step, int64_t i, int64_t r, V travelling) {
  if constexpr (k == kAt) {
    return travelling;
  } else {
    constexpr int kIn = k < kAt ? k : k - 1;
    return V::load(step->in[kIn] + (i & step->mask[kIn]) + r * kLanes);
  }
}

template <class Formula, int kAt, int... k>
LORRY_INLINE V compute(const ThreadedStep* step, int64_t i, int64_t r, V travelling) {
  return Formula()(operand<kAt, k>(step, i, r, travelling)...);
}

template <class Formula, int kAt, int... k>
void row(const ThreadedStep* step, int64_t i, LORRY_EIGHT) {
  a = compute<Formula, kAt, k...>(step, i, 0, a);
  b = compute<Formula, kAt, k...>(step, i, 1, b);
  c = compute<Formula, kAt, k...>(step, i, 2, c);
  d = compute<Formula, kAt, k...>(step, i, 3, d);
  e = compute<Formula, kAt, k...>(step, i, 4, e);
  f = compute<Formula, kAt, k...>(step, i, 5, f);
  g = compute<Formula, kAt, k...>(step, i, 6, g);
  h = compute<Formula, kAt, k...>(step, i, 7, h);
  return next(step, i, a, b, c, d, e, f, g, h);
}

/// During long computations the hardware prefetcher loses its stream: gelu alone waited a third of its time. So steps
/// prefetch this far ahead.
constexpr uintptr_t kAhead = 4096;  ///< bytes

void load(const ThreadedStep* step, int64_t i, V, V, V, V, V, V, V, V) {
  const float* from = step->in[0] + (i & step->mask[0]);
  const auto at = [&](int64_t r) { return V::load(from + r * kLanes); };
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(from) + kAhead;
  for (uintptr_t line = 0; line < 8 * kLanes * sizeof(float); line += 64)
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + line));  // an address beyond the end is harmless
  return next(step, i, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}

/// Calls put(register, address) for the eight vector registers.
template <class Put>
LORRY_INLINE void store_each(float* to, const Put& put, LORRY_EIGHT) {
  put(a, to);
  put(b, to + kLanes);
  put(c, to + 2 * kLanes);
  put(d, to + 3 * kLanes);
  put(e, to + 4 * kLanes);
  put(f, to + 5 * kLanes);
  put(g, to + 6 * kLanes);
  put(h, to + 7 * kLanes);
}

void store(const ThreadedStep* step, int64_t i, LORRY_EIGHT) {
  float* const to = step->in[0] + (i & step->mask[0]);
  store_each(
      to, [](V v, float* at) { v.store(at); }, a, b, c, d, e, f, g, h);
  return next(step, i, a, b, c, d, e, f, g, h);
}

void store_past_cache(const ThreadedStep* step, int64_t i, LORRY_EIGHT) {
  float* const to = step->in[0] + (i & step->mask[0]);
  if (reinterpret_cast<uintptr_t>(to) % (kLanes * sizeof(float)) == 0)
    store_each(
        to, [](V v, float* at) { hn::Stream(v.raw, V::Tag(), at); }, a, b, c, d, e, f, g, h);
  else
    store_each(
        to, [](V v, float* at) { v.store(at); }, a, b, c, d, e, f, g, h);
  return next(step, i, a, b, c, d, e, f, g, h);
}

void end(const ThreadedStep*, int64_t, V, V, V, V, V, V, V, V) {}

void run(const ThreadedStep* steps, int64_t begin, int64_t end) {
  const auto first = reinterpret_cast<Function>(steps->function);
  const V zero(0.0);
  for (int64_t i = begin; i < end; i += kThreadedVectors * kLanes)
    first(steps, i, zero, zero, zero, zero, zero, zero, zero, zero);
}

using Stored = void (*)();
Stored stored(Function f) { return reinterpret_cast<Stored>(f); }

template <class Formula, int kArity, Result kResult, Domain kDomain>
void put(void (**row_functions)()) {
  if constexpr (kResult != Result::truth && kDomain != Domain::whole && kDomain != Domain::integer) {
    if constexpr (kArity == 1) row_functions[0] = stored(&row<Formula, 0, 0>);
    if constexpr (kArity == 2) {
      row_functions[0] = stored(&row<Formula, 0, 0, 1>);
      row_functions[1] = stored(&row<Formula, 1, 0, 1>);
    }
    // with more operands, only one position may be in the vector registers: the other forms would double the table
    if constexpr (kArity == 3) row_functions[0] = stored(&row<Formula, 0, 0, 1, 2>);
    if constexpr (kArity == 4) row_functions[0] = stored(&row<Formula, 0, 0, 1, 2, 3>);
  }
}

}  // namespace

void fill_threaded(ThreadedFunctions& table) {
#define LORRY_POINTWISE(name, Formula, arity, deciding, result, domain) \
  put<formula::Formula, arity, Result::result, Domain::domain>(table.rows[static_cast<int>(Pointwise::name)]);
#include "lorry/formula/pointwise.def"
  table.load = stored(&load);
  table.store = stored(&store);
  table.store_past_cache = stored(&store_past_cache);
  table.flush = [] { hwy::FlushStream(); };
  table.end = stored(&end);
  table.run = &run;
  table.width = kThreadedVectors * kLanes;
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
