// The backward pass of attention. The weights are recomputed from the saved logsumexp, block by block (Dao et al. 2022,
// algorithm 4). One thread processes a head of k and v with all heads of q that share it, so no two threads add to the
// same result.

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/attention/attention_block.h"
#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu {
namespace {

/// Rows to accumulate into: the array itself if it has the compute type, else a buffer, which `store` converts.
template <class S, class T>
class Accumulator {
 public:
  Accumulator(const MatrixRows<S>& to, int64_t rows, T* buffer) : to_(to), rows_(rows) {
    if constexpr (std::is_same_v<S, T>) {
      data_ = to(0), row_ = to.row;
    } else {
      data_ = buffer, row_ = to.width;
    }
    for (int64_t i = 0; i < rows; ++i) std::fill_n((*this)(i), to.width, T(0));
  }
  T* operator()(int64_t i) const { return data_ + i * row_; }
  int64_t row() const { return row_; }
  void store() const {
    if constexpr (!std::is_same_v<S, T>) {
      for (int64_t i = 0; i < rows_; ++i)
        for (int64_t c = 0; c < to_.width; ++c) to_(i)[c] = static_cast<S>((*this)(i)[c]);
    }
  }

 private:
  MatrixRows<S> to_;
  int64_t rows_, row_;
  T* data_;
};

template <class S, class T>
class BackwardHead {
 public:
  BackwardHead(const AttentionArgs& args, const AttentionGrads& grads, Dropout& dropout)
      : args_(args),
        grads_(grads),
        dropout_(dropout),
        d_(args.q.size(3)),
        e_(args.v.size(3)),
        t_(args.q.size(2)),
        s_(args.k.size(2)),
        keys_(std::min(kKeys, s_)),
        buffers_(2 * kQueries * padded(keys_) + padded(keys_) + (kConverts ? converted_elements() : 0)) {
    weights_ = buffers_.take(kQueries * padded(keys_));
    scores_ = buffers_.take(kQueries * padded(keys_));
    bias_ = buffers_.take(keys_);
    if constexpr (kConverts) {
      query_ = buffers_.take(kQueries * d_), grad_query_ = buffers_.take(kQueries * d_);
      grad_out_ = buffers_.take(kQueries * e_), out_ = buffers_.take(kQueries * e_);
      key_ = buffers_.take(keys_ * d_);
      grad_key_ = buffers_.take(s_ * d_), grad_value_ = buffers_.take(s_ * e_);
    }
  }

  /// Processes all heads of q that share head `shared` of k and v.
  void run(int64_t batch, int64_t shared) {
    const Accumulator<S, T> grad_k(MatrixRows<S>(grads_.grad_k, batch, shared), s_, grad_key_),
        grad_v(MatrixRows<S>(grads_.grad_v, batch, shared), s_, grad_value_);
    const int64_t group = args_.q.size(1) / args_.k.size(1);
    for (int64_t head = shared * group; head < (shared + 1) * group; ++head)
      for (int64_t first = 0; first < t_; first += kQueries) block(batch, head, shared, first, grad_k, grad_v);
    grad_k.store();
    grad_v.store();
  }

 private:
  static constexpr bool kConverts = !std::is_same_v<S, T>;

  int64_t converted_elements() const {
    return 2 * padded(kQueries * d_) + 2 * padded(kQueries * e_) + padded(keys_ * d_) + padded(s_ * d_) +
           padded(s_ * e_);
  }

  void block(int64_t batch, int64_t head, int64_t shared, int64_t first, const Accumulator<S, T>& grad_k,
             const Accumulator<S, T>& grad_v) {
    const MatrixRows<S> q(args_.q, batch, head), k(args_.k, batch, shared), v(args_.v, batch, shared),
        grad_out(grads_.grad_out, batch, head);
    const int64_t rows = std::min(kQueries, t_ - first), limit = visible_keys(args_, first + rows);
    const ConvertedRows<T> query(q, first, rows, query_), grad(grad_out, first, rows, grad_out_),
        out(MatrixRows<S>(args_.out, batch, head), first, rows, out_);
    for (int64_t r = 0; r < rows; ++r) delta_[r] = row_dot(grad.data + r * grad.row, out.data + r * out.row, e_);
    MatrixRows<S> grad_q_rows(grads_.grad_q, batch, head);
    grad_q_rows.data += first * grad_q_rows.row;
    const Accumulator<S, T> grad_q(grad_q_rows, rows, grad_query_);
    for (int64_t j = 0; j < limit; j += keys_) {
      const int64_t n = std::min(keys_, limit - j), wide = padded(n);
      gemm(Gemm<S, T>{rows, n, d_, q(first), q.row, 1, k(j), 1, k.row, weights_, wide});
      gemm(Gemm<S, T>{rows, n, e_, grad_out(first), grad_out.row, 1, v(j), 1, v.row, scores_, wide});
      for (int64_t r = 0; r < rows; ++r) row(batch, head, first + r, r, j, n);
      gemm(Gemm<T, T>{n, e_, rows, weights_, 1, wide, grad.data, grad.row, 1, grad_v(j), grad_v.row(), 1, 1});
      gemm(Gemm<T, T>{n, d_, rows, scores_, 1, wide, query.data, query.row, 1, grad_k(j), grad_k.row(), 1, 1});
      const ConvertedRows<T> key(k, j, n, key_);
      gemm(Gemm<T, T>{rows, d_, n, scores_, wide, 1, key.data, key.row, 1, grad_q(0), grad_q.row(), 1, 1});
    }
    grad_q.store();
  }

  /// Processes one row: turns products into weights, and gradients of weights into gradients of scores.
  void row(int64_t batch, int64_t head, int64_t i, int64_t r, int64_t j, int64_t n) {
    T *const weights = weights_ + r * padded(n), *const scores = scores_ + r * padded(n);
    const int64_t seen = visible_in_row(args_, i, j, n);
    const T logsumexp = args_.logsumexp.as<T>()[(batch * args_.q.size(1) + head) * t_ + i],
            scale = static_cast<T>(args_.scale);
    attention_weights(weights, bias_row<S>(args_.mask, batch, head, i, j, seen, bias_), seen, scale, logsumexp);
    if (dropout_.active()) {
      dropout_.row(batch, head, i, j, seen, bias_);
      for (int64_t c = 0; c < seen; ++c) scores[c] *= bias_[c];
    }
    score_gradient(scores, weights, seen, delta_[r], scale);
    for (int64_t c = 0; dropout_.active() && c < seen; ++c) weights[c] *= bias_[c];
    std::fill(weights + seen, weights + n, T(0));
    std::fill(scores + seen, scores + n, T(0));
  }

  const AttentionArgs& args_;
  const AttentionGrads& grads_;
  Dropout& dropout_;
  int64_t d_, e_, t_, s_, keys_;
  Buffers<T> buffers_;
  T *weights_, *scores_, *bias_;
  T *query_ = nullptr, *grad_query_ = nullptr, *grad_out_ = nullptr, *out_ = nullptr, *key_ = nullptr,
    *grad_key_ = nullptr, *grad_value_ = nullptr;
  T delta_[kQueries];
};

template <class S>
void backward_as(const AttentionArgs& args, const AttentionGrads& grads) {
  const int64_t heads = args.k.size(1);
  lorry::cpu::parallel_for(args.k.size(0) * heads, 1, [&](int64_t first, int64_t last) {
    Dropout dropout(args);
    BackwardHead<S, Accumulate<S>> head(args, grads, dropout);
    for (int64_t task = first; task < last; ++task) head.run(task / heads, task % heads);
  });
}

}  // namespace

void attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream) {
  visit_floating(args.q.dtype, [&]<class S>(Type<S>) { backward_as<S>(args, grads); });
}

}  // namespace lorry::kernels::cpu
