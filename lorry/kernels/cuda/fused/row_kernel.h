#pragma once

// Parts of generated kernels over rows (emit_rows.h). A team of threads holds a row in registers, as in the operators'
// own kernels (rowwise/rows.h). A wide register is an array [runs][elements of a run] in each thread; a narrow one is a
// value that all threads of the team have. All rows begin and end at multiples of 16 bytes.

#include "lorry/device/cuda/begin_programmatic.h"
#include "lorry/kernels/cuda/fused/map_kernel.h"
#include "lorry/kernels/cuda/rowwise/row_steps.h"

namespace lorry::kernels::cuda {

/// A kernel's argument. The host writes the same words (row_arguments.h).
template <int kOperands, int kNumbers>
struct RowArguments {
  int64_t rows, n;
  uint64_t operands;  ///< kOperands
  void* at[kOperands];
  uint64_t numbers[kNumbers > 0 ? kNumbers : 1];
  int64_t lanes;  ///< threads per team
};

/// A wide register.
template <class T, int kRuns, int kLength>
struct Wide {
  Held<T> at[kRuns][kLength];
};

/// Loads a row of a wide operand, or, with first = 0, a column operand. Elements beyond the row are 0.
template <class T, int kRuns, int kLength>
__device__ __forceinline__ Wide<T, kRuns, kLength> load_wide(const void* data, int64_t first, int body,
                                                             const Team& team) {
  Elements<T, kLength> raw[kRuns] = {};
#pragma unroll
  for (int k = 0; k < kRuns; ++k) {
    const int j = team.lane + k * team.lanes;
    if (j < body) raw[k] = load<T, Along::run, kLength>(data, first + int64_t{j} * kLength);
  }
  Wide<T, kRuns, kLength> x;
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kLength; ++e) x.at[k][e] = hold<T>(raw[k].at[e]);
  return x;
}

template <class T, int kRuns, int kLength>
__device__ __forceinline__ void store_wide(void* data, int64_t first, int body, const Team& team,
                                           const Wide<T, kRuns, kLength>& x) {
#pragma unroll
  for (int k = 0; k < kRuns; ++k) {
    const int j = team.lane + k * team.lanes;
    if (j < body) store<T, kLength>(data, first + int64_t{j} * kLength, x.at[k]);
  }
}

/// A wide register in the form that the row operators use.
template <class T, int kRuns>
__device__ __forceinline__ HeldRow<T, kRuns> held_row(const Wide<T, kRuns, kRun<T>>& x, int body, const Team& team,
                                                      Accumulate<T> pad) {
  HeldRow<T, kRuns> held;
  held.edge = pad;
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) held.body[k][e] = team.lane + k * team.lanes < body ? x.at[k][e] : pad;
  return held;
}
/// The row, rounded to its type like the operator's result.
template <class T, int kRuns>
__device__ __forceinline__ Wide<T, kRuns, kRun<T>> rounded(const HeldRow<T, kRuns>& held) {
  Wide<T, kRuns, kRun<T>> x;
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e) x.at[k][e] = hold<T>(T(held.body[k][e]));
  return x;
}

/// The fold of a row as an element of type Out.
template <class T, formula::Fold kFold, class Out, int kRuns>
__device__ __forceinline__ Held<Out> folded(const Wide<T, kRuns, kRun<T>>& x, formula::Map map, formula::Finish finish,
                                            double parameter, int body, const Team& team,
                                            FoldCell<kFold, Accumulate<T>>* slots) {
  const double total = fold_row<T, kFold>(x.at, map, body, team, slots);
  return hold<Out>(cast<Out, double>(formula::finished(finish, total, parameter)));
}

/// The position of a row that consists of whole runs.
template <class T>
__device__ __forceinline__ Cut<T, int> whole_row(int body, const Team& team) {
  Cut<T, int> cut(nullptr, 0, team);
  cut.body = body;
  return cut;
}

/// Scales and shifts normalised values. kWeight, kBias: whether there is a weight, a bias.
template <class T, bool kWeight, bool kBias, int kRuns>
__device__ __forceinline__ void scale_and_shift(HeldRow<T, kRuns>& held, const Statistics<Accumulate<T>>& row,
                                                const Wide<T, kRuns, kRun<T>>& weight,
                                                const Wide<T, kRuns, kRun<T>>& bias) {
  using C = Accumulate<T>;
#pragma unroll
  for (int k = 0; k < kRuns; ++k)
#pragma unroll
    for (int e = 0; e < kRun<T>; ++e)
      held.body[k][e] =
          std::fma(row.normal(held.body[k][e]), kWeight ? C(weight.at[k][e]) : C(1), kBias ? C(bias.at[k][e]) : C(0));
}

}  // namespace lorry::kernels::cuda
