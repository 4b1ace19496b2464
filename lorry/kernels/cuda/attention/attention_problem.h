#pragma once

// A call of the built-in attention kernels, as these read it, and the operands of its gradients.

#include <algorithm>
#include <cmath>
#include <limits>

#include "lorry/base/error.h"
#include "lorry/base/integers.h"
#include "lorry/kernels/attention.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/scratch.h"

namespace lorry::kernels::cuda {

/// The rows and columns of a tile of scores on tensor cores.
inline constexpr int kTileSide = 64;

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

/// The calls that a kernel on tensor cores is compiled for.
enum class Masks {
  none,       ///< neither a mask nor dropout
  of_bool,    ///< a mask of bool, no dropout
  of_floats,  ///< a mask of floats, no dropout
  dropout,    ///< no mask
  any         ///< all calls
};
constexpr bool can_mask(Masks masks) { return masks != Masks::none && masks != Masks::dropout; }
constexpr bool can_drop(Masks masks) { return masks == Masks::dropout || masks == Masks::any; }

/// A call, passed by value. Operands that are null or have width 0 are not read.
struct AttentionProblem {
  Heads q, k, v, out, grad_out;
  void* logsumexp;        ///< [b, h, t] of the compute type
  void* delta = nullptr;  ///< [b, h, t] of the compute type: the row sums of grad_out * out
  const void* mask;
  int64_t mask_strides[4] = {};
  /// The bytes of one copy of a mask's row: the most of 16, 8 and 4 that divide its address and strides; 0: there are
  /// none, and rows are read element by element.
  int mask_run = 0;
  bool mask_is_bool, causal, drops;
  int64_t batches, heads, shared, t, s;
  double scale, dropout_scale;  ///< dropout_scale: the factor of the weights that are not dropped
  /// Weights with words up to this are not dropped (kernels/random.h). Where all are dropped, dropout_scale is 0.
  uint32_t last_kept;
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
        last_kept(static_cast<uint32_t>(static_cast<uint64_t>(std::ceil((1 - args.dropout) * 4294967296.0)) - 1)),
        key(args.key) {
    if (mask == nullptr) return;
    auto bytes = static_cast<int64_t>(reinterpret_cast<uintptr_t>(mask));
    for (int i = 0; i < 4; ++i) {
      // Of a dimension of size 1, kernels also compute addresses beyond the mask, which must be aligned too.
      mask_strides[i] = args.mask.size(i) > 1 ? args.mask.stride(i) : i == 3 ? 1 : 0;
      if (i < 3) bytes |= mask_strides[i] * size_of(args.mask.dtype);
    }
    if (mask_strides[3] == 1)
      for (const int run : {4, 8, 16})
        if (bytes % run == 0) mask_run = run;
  }

  /// The narrowest kind of kernel that computes the call.
  Masks masks() const {
    if (mask == nullptr) return drops ? Masks::dropout : Masks::none;
    return drops ? Masks::any : mask_is_bool ? Masks::of_bool : Masks::of_floats;
  }
  __device__ bool adds_mask() const { return mask != nullptr && !mask_is_bool; }

  /// Whether all of `count` queries from i on attend to all of `count` keys from j on, but for the mask.
  __device__ bool sees_all(int64_t i, int64_t j, int count) const {
    return i + count <= t && j + count <= s && (!causal || j + count <= i + 1);
  }

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

  /// Whether dropout keeps the weight with this word.
  __device__ bool keeps(uint32_t word) const { return word <= last_kept; }

  /// n, but not less than 0 or more than `most`.
  static __device__ int within(int64_t n, int most) { return static_cast<int>(n < 0 ? 0 : n > most ? most : n); }
};

/// What one block computes of the forward pass: `side` queries from `first` on. The blocks of a head end with its last
/// tile. If they are several tiles wide, the first one may begin before query 0: with a causal mask it has the fewest
/// keys, so it matters least that it is not full.
struct QueryRows {
  int64_t pair, b, h, first;
  int64_t shared;  ///< the head of k and v

  /// nth: the number of the block. With a causal mask the last queries have the most keys, so they start first.
  __device__ QueryRows(const AttentionProblem& p, int side, uint32_t nth) {
    // Blocks are at most 2^31 - 1 (grid_of), and divisions of 32 bits are quicker.
    const auto heads = static_cast<uint32_t>(p.heads), pairs = static_cast<uint32_t>(p.batches) * heads;
    pair = nth % pairs, b = static_cast<uint32_t>(pair) / heads, h = static_cast<uint32_t>(pair) % heads;
    shared = static_cast<uint32_t>(h) / (heads / static_cast<uint32_t>(p.shared));
    first = round_up(p.t, side < kTileSide ? side : kTileSide) - (int64_t{nth / pairs} + 1) * side;
  }
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
  int64_t blocks[3];  ///< of each gradient

  /// side: the rows of a block.
  Gradients(const AttentionProblem& p, const AttentionGrads& grads, int side)
      : of{{{p.q, p.grad_out}, {p.k, p.v}, p.k, Heads(grads.grad_q), true, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.q, Heads(grads.grad_k), false, true},
           {{p.k, p.v}, {p.q, p.grad_out}, p.grad_out, Heads(grads.grad_v), false, false}} {
    for (int n = 0; n < 3; ++n)
      blocks[n] = p.batches * (of[n].by_query ? p.heads : p.shared) * ceil_div(of[n].result.rows, side);
  }
  void addresses(auto& visit) const { visit(of[0], of[1], of[2]); }
  int64_t all_blocks() const { return blocks[0] + blocks[1] + blocks[2]; }
  int64_t width() const { return std::max({of[0].result.width, of[1].result.width, of[2].result.width}); }
};

/// What one block computes of a gradient: `side` rows from `first` on of head `owner`, from columns `begin` to before
/// `end` of each of `heads` query heads.
struct GradientRows {
  int64_t b, owner, first, begin, end, first_head, heads;

  /// nth: the number of the block. With a causal mask the last queries have the most keys, and the first keys the most
  /// queries, so these start first.
  __device__ GradientRows(const AttentionProblem& p, bool by_query, int side, int64_t nth) {
    const int64_t tiles = ceil_div(by_query ? p.t : p.s, side), columns = by_query ? p.s : p.t;
    const auto block = static_cast<uint32_t>(nth), owners = static_cast<uint32_t>(by_query ? p.heads : p.shared),
               pairs = static_cast<uint32_t>(p.batches) * owners, pair = block % pairs;
    b = pair / owners, owner = pair % owners;
    first = (by_query ? tiles - 1 - block / pairs : block / pairs) * side;
    begin = p.causal && !by_query ? first : 0;
    end = p.causal && by_query && first + side < columns ? first + side : columns;
    heads = by_query ? 1 : p.heads / p.shared, first_head = owner * heads;
  }
  __device__ bool empty() const { return begin >= end || heads == 0; }
};

/// Writes p.delta, from operands of this type.
void compute_delta(const AttentionProblem& p, DType dtype, Stream stream);

/// The call of a backward pass, with delta.
struct BackwardProblem {
  AttentionProblem p;
  Scratch delta;

  BackwardProblem(const AttentionArgs& args, const AttentionGrads& grads, Stream stream)
      : p(args), delta(args.logsumexp.numel() * size_of(args.logsumexp.dtype), stream) {
    p.grad_out = Heads(grads.grad_out), p.delta = delta.data();
    compute_delta(p, args.q.dtype, stream);
  }
};

/// The first dimension of a grid. Throws ValueError for more blocks than a grid has.
inline unsigned grid_of(int64_t blocks) {
  require<ValueError>(blocks <= std::numeric_limits<int32_t>::max(),
                      "scaled_dot_product_attention: {} blocks of rows are more than a launch can have, 2147483647; "
                      "split the batch",
                      blocks);
  return static_cast<unsigned>(blocks);
}

}  // namespace lorry::kernels::cuda
