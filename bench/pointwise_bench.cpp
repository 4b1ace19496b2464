// Pointwise operators: what a call costs on 64 elements, and how fast long tensors go beside a plain memory copy.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "lorry/ops/ops.h"

namespace {

using namespace lorry;

constexpr int64_t kSmall = 64;                ///< the call itself
constexpr int64_t kCached = 4096;             ///< computing: fits the first-level cache
constexpr int64_t kLarge = int64_t{1} << 24;  ///< moving: exceeds every cache

Tensor filled(int64_t n, DType t) { return empty({n}, {t}).fill_(1); }

void report(benchmark::State& state, int64_t elements, int64_t bytes) {
  state.SetItemsProcessed(state.iterations() * elements);
  state.SetBytesProcessed(state.iterations() * bytes);
}

void add_in_place(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor x = filled(n, kF32), y = empty({n}).fill_(0);
  for (auto _ : state) x.add_(y);
  report(state, n, 3 * x.nbytes());
}
BENCHMARK(add_in_place)->Arg(kSmall)->Arg(kLarge);

void add_new(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Tensor x = filled(n, kF32), y = filled(n, kF32);
  for (auto _ : state) benchmark::DoNotOptimize(add(x, y));
  report(state, n, 3 * x.nbytes());
}
BENCHMARK(add_new)->Arg(kSmall)->Arg(kLarge);

void memory_copy(benchmark::State& state) {
  const size_t n = static_cast<size_t>(state.range(0)) * sizeof(float);
  std::vector<char> from(n, 1), to(n);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), n);
    benchmark::ClobberMemory();
  }
  report(state, state.range(0), 2 * static_cast<int64_t>(n));
}
BENCHMARK(memory_copy)->Arg(kLarge);

void add_bias(benchmark::State& state) {
  const Tensor x = filled(state.range(0) * 128, kF32).view({state.range(0), 128}), bias = filled(128, kF32);
  for (auto _ : state) benchmark::DoNotOptimize(add(x, bias));
  report(state, x.numel(), 2 * x.nbytes());
}
BENCHMARK(add_bias)->Arg(8)->Arg(512);

void transpose_copy(benchmark::State& state) {
  const Tensor x = filled(1024 * 1024, kF32).view({1024, 1024}).t();
  for (auto _ : state) benchmark::DoNotOptimize(x.contiguous());
  report(state, x.numel(), 2 * x.nbytes());
}
BENCHMARK(transpose_copy);

using Unary = Tensor (*)(const Tensor&);
void unary(benchmark::State& state, Unary function, DType t) {
  const Tensor x = filled(kCached, t);
  for (auto _ : state) benchmark::DoNotOptimize(function(x));
  report(state, kCached, 2 * x.nbytes());
}
#define LORRY_BENCH_UNARY(name)                                     \
  BENCHMARK_CAPTURE(unary, name##_f32, Unary(lorry::name), kF32);   \
  BENCHMARK_CAPTURE(unary, name##_bf16, Unary(lorry::name), kBF16); \
  BENCHMARK_CAPTURE(unary, name##_f64, Unary(lorry::name), kF64)
LORRY_BENCH_UNARY(exp);
LORRY_BENCH_UNARY(tanh);
LORRY_BENCH_UNARY(gelu_tanh);
LORRY_BENCH_UNARY(gelu);
LORRY_BENCH_UNARY(silu);
LORRY_BENCH_UNARY(log);
LORRY_BENCH_UNARY(sin);

}  // namespace

BENCHMARK_MAIN();
