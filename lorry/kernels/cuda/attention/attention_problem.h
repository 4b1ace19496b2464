#pragma once

// A call of the built-in attention kernels, as these read it, and the operands of its gradients.

#include <algorithm>
#include <cmath>
#include <limits>

#include "lorry/kernels/attention.h"
#include "lorry/kernels/cuda/common/element.h"

namespace lorry::kernels::cuda {

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// `rows` rows of `width` elements of unit stride.
template <class T>
struct Matrix {
  T* data;
  int64_t row, rows, width;
  bool runs;  ///< addresses, strides and width are multiples of 16 bytes

  __device__ Matrix from(int64_t first) const { return {data + first * row, row, rows - first, width, runs}; }
};

/// A tensor [batch, heads, length, width], as kernels get it.
struct Heads {
  void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, rows = 0, width = 0;
  bool runs = false;

  Heads() = default;
  void addresses(auto& visit) const { visit(data); }
  explicit Heads(const Array& x)
      : data(x.data), batch(step(x, 0)), head(step(x, 1)), row(step(x, 2)), rows(x.size(2)), width(x.size(3)) {
    const int64_t run = 16 / size_of(x.dtype);
    runs = reinterpret_cast<uintptr_t>(data) % 16 == 0 && (batch | head | row | width) % run == 0;
  }
  template <class T>
  __device__ Matrix<T> at(int64_t b, int64_t h) const {
    return {static_cast<T*>(data) + b * batch + h * head, row, rows, width, runs};
  }

 private:
  static int64_t step(const Array& x, int dim) { return x.size(dim) == 1 ? 0 : x.stride(dim); }
};

/// The whole numbers from `first` to before `last`.
struct Range {
  int first, last;
  __device__ bool has(int n) const { return n >= first && n < last; }
};

/// A call, passed by value. Operands that are null or have width 0 are not read.
struct AttentionProblem {
  Heads q, k, v, out, grad_out;
  void* logsumexp;        ///< [b, h, t] of the compute type
  void* delta = nullptr;  ///< [b, h, t] of the compute type: the row sums of grad_out * out
  const void* mask;
  int64_t mask_strides[4] = {};
  bool mask_is_bool, causal, drops;
  int64_t batches, heads, shared, t, s;
  double scale, dropout_scale;  ///< dropout_scale: the factor of the weights that are not dropped
  uint64_t threshold;           ///< weights with words below it are not dropped (kernels/random.h)
  formula::RandomKey key;

  explicit AttentionProblem(const AttentionArgs& args)
      : q(args.q),
        k(args.k),
        v(args.v),
        out(args.out),
        logsumexp(args.logsumexp.data),
        mask(args.mask.data),
        mask_is_bool(args.mask.dtype == kBool),
        causal(args.causal),
        drops(args.dropout > 0),
        batches(args.q.size(0)),
        heads(args.q.size(1)),
        shared(args.k.size(1)),
        t(args.q.size(2)),
        s(args.k.size(2)),
        scale(args.scale),
        dropout_scale(args.dropout < 1 ? 1 / (1 - args.dropout) : 0),
        threshold(static_cast<uint64_t>(std::ceil((1 - args.dropout) * 4294967296.0))),
        key(args.key) {
    for (int i = 0; mask != nullptr && i < 4; ++i) mask_strides[i] = args.mask.stride(i);
  }

  __device__ bool sees(int64_t i, int64_t j) const { return i < t && j < s && (!causal || j <= i); }

  /// Of `count` keys from j on, those that query i attends to, but for the mask.
  __device__ Range keys_of(int64_t i, int64_t j, int count) const {
    const int64_t last = causal && i + 1 < s ? i + 1 : s;
    return {0, i < t ? within(last - j, count) : 0};
  }
  /// Of `count` queries from i on, those that attend to key j, but for the mask.
  __device__ Range queries_of(int64_t i, int64_t j, int count) const {
    return {causal ? within(j - i, count) : 0, j < s ? within(t - i, count) : 0};
  }

  void addresses(auto& visit) const { visit(q, k, v, out, grad_out, logsumexp, delta, mask, key); }

  /// The score of query i and key j, from their product. Query i must attend to key j.
  template <class T>
  __device__ Compute<T> score(Compute<T> product, int64_t b, int64_t h, int64_t i, int64_t j) const {
    using C = Compute<T>;
    const C scaled = product * static_cast<C>(scale);
    if (mask == nullptr) return scaled;
    const int64_t at = b * mask_strides[0] + h * mask_strides[1] + i * mask_strides[2] + j * mask_strides[3];
    if (!mask_is_bool) return scaled + static_cast<C>(static_cast<const T*>(mask)[at]);
    return static_cast<const uint8_t*>(mask)[at] != 0 ? scaled : scaled - std::numeric_limits<C>::infinity();
  }

  /// The factors of dropout for query i and keys j to j + 3. A Philox block has four words, so at most two blocks are
  /// needed.
  template <class C>
  __device__ void factors(C (&factor)[4], int64_t b, int64_t h, int64_t i, int64_t j) const {
    const uint64_t first = static_cast<uint64_t>(((b * heads + h) * t + i) * s + j);
    const int skipped = static_cast<int>(first % 4);
    formula::Words4 words = formula::random_block(key, first / 4);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      if (skipped != 0 && skipped + n == 4) words = formula::random_block(key, first / 4 + 1);
      const int at = (skipped + n) % 4;
      const uint32_t word =
          at < 2 ? (at == 0 ? words.word[0] : words.word[1]) : (at == 2 ? words.word[2] : words.word[3]);
      factor[n] = word < threshold ? static_cast<C>(dropout_scale) : C(0);
    }
  }

 private:
  static __device__ int within(int64_t n, int most) { return static_cast<int>(n < 0 ? 0 : n > most ? most : n); }
};

/// The operands of one gradient. Its rows are those of `rows`, its columns those of `values`. For grad_q, rows are
/// queries and columns of the weights are keys; for the others it is the reverse.
struct Gradient {
  Heads rows[2], columns[2];  ///< of the products that give the weights, and the slopes grad_out v^T
  Heads values, result;
  bool by_query, has_slopes;

  void addresses(auto& visit) const { visit(rows[0], rows[1], columns[0], columns[1], values, result); }
};

struct Gradients {
  Gradient of[3];

  Gradients(const AttentionProblem& p, const AttentionGrads& grads)
      : of{{{p.q, p.grad_out}, {p.k, p.v}, p.k, Heads(grads.grad_q), true, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.q, Heads(grads.grad_k), false, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.grad_out, Heads(grads.grad_v), false, false}} {}
  void addresses(auto& visit) const { visit(of[0], of[1], of[2]); }
  int64_t rows() const { return std::max({of[0].result.rows, of[1].result.rows, of[2].result.rows}); }
  int64_t width() const { return std::max({of[0].result.width, of[1].result.width, of[2].result.width}); }
};

/// Writes p.delta. One warp per row.
template <class T>
__global__ void __launch_bounds__(256) delta_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using C = Compute<T>;
  const int64_t n = int64_t{blockIdx.x} * 8 + threadIdx.x / 32, pair = n / p.t;
  if (pair >= p.batches * p.heads) return;
  const auto out = p.out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t),
             grad = p.grad_out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t);
  C sum = 0;
  for (int64_t c = threadIdx.x % 32; c < out.width; c += 32)
    sum = fma(static_cast<C>(grad.data[c]), static_cast<C>(out.data[c]), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) static_cast<C*>(p.delta)[n] = sum;
}

/// Writes p.delta.
template <class T>
void compute_delta(const AttentionProblem& p, Stream stream) {
  const int64_t rows = p.batches * p.heads * p.t;
  if (rows > 0) lorry::cuda::launch(stream, {{static_cast<unsigned>((rows + 7) / 8)}, {256}}, delta_kernel<T>, p);
}

}  // namespace lorry::kernels::cuda
