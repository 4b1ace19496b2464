// Reductions, softmax, norms, losses and sorting: bytes moved a second (each operand read or written once) beside a
// plain memory copy, and what a call costs on a small input.

#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>

#include "lorry/autograd/engine.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"

namespace {

using namespace lorry;

/// Runs f; each run moves `passes` times x's bytes.
void measure(benchmark::State& state, const Tensor& x, double passes, const std::function<Tensor()>& f) {
  for (auto _ : state) benchmark::DoNotOptimize(f());
  state.SetBytesProcessed(
      static_cast<int64_t>(static_cast<double>(state.iterations()) * passes * static_cast<double>(x.nbytes())));
}

void memory_copy(benchmark::State& state) {
  const Tensor from = rand({4096, 4096}), to = rand({4096, 4096});
  const int64_t bytes = from.nbytes();
  for (auto _ : state) {
    cpu::parallel_for(bytes, 1 << 20, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to.data_ptr()) + begin, static_cast<char*>(from.data_ptr()) + begin,
                  static_cast<size_t>(end - begin));
    });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 2 * bytes);
}
BENCHMARK(memory_copy)->UseRealTime();

using Operator = Tensor (*)(const Tensor&);
void unary(benchmark::State& state, Operator f, Dims sizes, DType dtype, double passes) {
  const Tensor x = rand(sizes).to(dtype);
  measure(state, x, passes, [&] { return f(x); });
}

const Dims kVector{1 << 24}, kSquare{4096, 4096}, kRows{4096, 1024}, kSmall{8, 128};
Tensor sum_all(const Tensor& x) { return x.sum(); }
Tensor sum_rows(const Tensor& x) { return x.sum({1}); }
Tensor sum_columns(const Tensor& x) { return x.sum({0}); }
Tensor norm_all(const Tensor& x) { return x.norm(); }
Tensor max_all(const Tensor& x) { return x.max(); }
Tensor var_rows(const Tensor& x) { return x.var({1}); }
Tensor argmax_rows(const Tensor& x) { return x.argmax(1); }
Tensor cumsum_rows(const Tensor& x) { return x.cumsum(1); }
Tensor softmax_rows(const Tensor& x) { return x.softmax(1); }
Tensor softmax_columns(const Tensor& x) { return x.softmax(0); }
Tensor sort_rows(const Tensor& x) { return std::get<0>(x.sort(1)); }
Tensor top_rows(const Tensor& x) { return std::get<0>(x.topk(50)); }

BENCHMARK_CAPTURE(unary, sum_16M, sum_all, kVector, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, sum_16M_bf16, sum_all, kVector, kBF16, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, sum_dim0_4096x4096, sum_columns, kSquare, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, sum_dim1_4096x4096, sum_rows, kSquare, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, norm_16M, norm_all, kVector, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, max_16M, max_all, kVector, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, var_dim1_4096x4096, var_rows, kSquare, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, argmax_dim1_4096x4096, argmax_rows, kSquare, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, cumsum_dim1_4096x4096, cumsum_rows, kSquare, kF32, 2)->UseRealTime();
BENCHMARK_CAPTURE(unary, softmax_dim1_4096x1024, softmax_rows, kRows, kF32, 2)->UseRealTime();
BENCHMARK_CAPTURE(unary, softmax_dim1_4096x1024_bf16, softmax_rows, kRows, kBF16, 2)->UseRealTime();
BENCHMARK_CAPTURE(unary, softmax_dim0_4096x1024, softmax_columns, kRows, kF32, 2)->UseRealTime();
BENCHMARK_CAPTURE(unary, sort_dim1_4096x1024, sort_rows, kRows, kF32, 4)->UseRealTime();
BENCHMARK_CAPTURE(unary, topk50_dim1_4096x1024, top_rows, kRows, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, sum_8x128, sum_all, kSmall, kF32, 1)->UseRealTime();
BENCHMARK_CAPTURE(unary, softmax_8x128, softmax_rows, kSmall, kF32, 2)->UseRealTime();

/// What a training step runs: forward, then backward, of rows of 1024.
struct Rows {
  Tensor x = rand(kRows).requires_grad_(), weight = rand({1024}).requires_grad_(), bias = rand({1024}).requires_grad_(),
         grad = rand(kRows);
  Tensor target = randint(0, 1024, {4096});
};

void forward(benchmark::State& state, Tensor (*f)(const Rows&), double passes) {
  const Rows rows;
  measure(state, rows.x, passes, [&] { return f(rows); });
}
void backward(benchmark::State& state, Tensor (*f)(const Rows&), double passes) {
  const Rows rows;
  const Tensor y = f(rows), grad = y.dim() == 0 ? Tensor() : rows.grad;
  measure(state, rows.x, passes, [&] {
    return autograd::grad({y}, {rows.x, rows.weight, rows.bias}, {grad},
                          {.retain_graph = true, .allow_unused = true})[0];
  });
}
Tensor layer_norm_rows(const Rows& r) { return layer_norm(r.x, {1024}, r.weight, r.bias); }
Tensor rms_norm_rows(const Rows& r) { return rms_norm(r.x, {1024}, r.weight); }
Tensor log_softmax_rows(const Rows& r) { return r.x.log_softmax(1); }
Tensor cross_entropy_rows(const Rows& r) { return cross_entropy(r.x, r.target); }
Tensor dropout_rows(const Rows& r) { return dropout(r.x, 0.1); }

BENCHMARK_CAPTURE(forward, layer_norm, layer_norm_rows, 2)->UseRealTime();
BENCHMARK_CAPTURE(backward, layer_norm, layer_norm_rows, 3)->UseRealTime();
BENCHMARK_CAPTURE(forward, rms_norm, rms_norm_rows, 2)->UseRealTime();
BENCHMARK_CAPTURE(backward, rms_norm, rms_norm_rows, 3)->UseRealTime();
BENCHMARK_CAPTURE(forward, log_softmax, log_softmax_rows, 2)->UseRealTime();
BENCHMARK_CAPTURE(backward, log_softmax, log_softmax_rows, 3)->UseRealTime();
BENCHMARK_CAPTURE(forward, cross_entropy, cross_entropy_rows, 1)->UseRealTime();
BENCHMARK_CAPTURE(backward, cross_entropy, cross_entropy_rows, 2)->UseRealTime();
BENCHMARK_CAPTURE(forward, dropout, dropout_rows, 2.25)->UseRealTime();
BENCHMARK_CAPTURE(backward, dropout, dropout_rows, 2.25)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
