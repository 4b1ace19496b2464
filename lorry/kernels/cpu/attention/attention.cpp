#include "lorry/kernels/cpu/table.h"

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/attention/attention_block.h"
#include "lorry/kernels/cpu/matmul/gemm.h"

namespace lorry::kernels::cpu {
namespace {

/// Attention for one block of queries of one head.
template <class S, class T>
class ForwardBlock {
 public:
  ForwardBlock(const AttentionArgs& args, Dropout& dropout)
      : args_(args),
        dropout_(dropout),
        d_(args.q.size(3)),
        e_(args.v.size(3)),
        keys_(std::min(kKeys, args.k.size(2))),
        buffers_(total()) {
    scores_ = buffers_.take(kQueries * padded(keys_));
    bias_ = buffers_.take(padded(keys_));
    sum_ = buffers_.take(kQueries * e_);
    if constexpr (!std::is_same_v<S, T>) values_ = buffers_.take(keys_ * e_);
  }

  void run(int64_t batch, int64_t head, int64_t first) {
    const int64_t group = args_.q.size(1) / args_.k.size(1);
    const MatrixRows<S> q(args_.q, batch, head), k(args_.k, batch, head / group), v(args_.v, batch, head / group),
        out(args_.out, batch, head);
    const int64_t rows = std::min(kQueries, args_.q.size(2) - first), limit = visible_keys(args_, first + rows);
    std::fill(most_, most_ + rows, -std::numeric_limits<T>::infinity());
    std::fill(total_, total_ + rows, T(0));
    for (int64_t j = 0; j < limit; j += keys_) {
      const int64_t n = std::min(keys_, limit - j);
      gemm(Gemm<S, T>{rows, n, d_, q(first), q.row, 1, k(j), 1, k.row, scores_, padded(n)});
      for (int64_t r = 0; r < rows; ++r) weigh(batch, head, first + r, r, j, n);
      const ConvertedRows<T> value(v, j, n, values_);
      gemm(Gemm<T, T>{rows, e_, n, scores_, padded(n), 1, value.data, value.row, 1, sum_, e_, T(1), T(j > 0)});
    }
    T* const logsumexp = args_.logsumexp.as<T>() + (batch * args_.q.size(1) + head) * args_.q.size(2) + first;
    for (int64_t r = 0; r < rows; ++r) {
      // A row that attends to no key is 0, not 0 / 0. Its infinite logsumexp makes every weight 0 in the backward pass.
      const bool blind = total_[r] == T(0);
      const T inverse = blind ? T(0) : T(1) / total_[r];
      for (int64_t c = 0; c < e_; ++c) out(first + r)[c] = static_cast<S>(blind ? T(0) : sum_[r * e_ + c] * inverse);
      logsumexp[r] = blind ? std::numeric_limits<T>::infinity() : most_[r] + std::log(total_[r]);
    }
  }

 private:
  int64_t total() const {
    return kQueries * padded(keys_) + padded(keys_) + padded(kQueries * e_) +
           (std::is_same_v<S, T> ? 0 : padded(keys_ * e_));
  }

  /// Turns a row of scores into weights relative to the running maximum, and rescales the running sums to a new
  /// maximum.
  void weigh(int64_t batch, int64_t head, int64_t i, int64_t r, int64_t j, int64_t n) {
    T* const row = scores_ + r * padded(n);
    const int64_t seen = visible_in_row(args_, i, j, n);
    if (seen > 0) {
      const T* const bias = bias_row<S>(args_.mask, batch, head, i, j, seen, bias_);
      const T most = std::max(most_[r], scale_and_max(row, bias, seen, static_cast<T>(args_.scale)));
      const T shift = most == -std::numeric_limits<T>::infinity() ? T(0) : most;
      const T factor = std::exp(most_[r] - shift);
      total_[r] = total_[r] * factor + exp_and_sum(row, seen, shift);
      most_[r] = most;
      for (int64_t c = 0; j > 0 && c < e_; ++c) sum_[r * e_ + c] *= factor;
      if (dropout_.active()) {
        dropout_.row(batch, head, i, j, seen, bias_);
        for (int64_t c = 0; c < seen; ++c) row[c] *= bias_[c];
      }
    }
    std::fill(row + seen, row + n, T(0));
  }

  const AttentionArgs& args_;
  Dropout& dropout_;
  int64_t d_, e_, keys_;
  Buffers<T> buffers_;
  T *scores_, *bias_, *sum_, *values_ = nullptr;
  T most_[kQueries], total_[kQueries];
};

template <class S>
void forward_as(const AttentionArgs& args) {
  const int64_t heads = args.q.size(1), t = args.q.size(2), blocks = (t + kQueries - 1) / kQueries;
  const int64_t work = kQueries * args.k.size(2) * (args.q.size(3) + args.v.size(3)) + 1;
  lorry::cpu::parallel_for(args.q.size(0) * heads * blocks, std::max<int64_t>(1, (1 << 18) / work),
                           [&](int64_t first, int64_t last) {
                             Dropout dropout(args);
                             ForwardBlock<S, Accumulate<S>> block(args, dropout);
                             for (int64_t task = first; task < last; ++task)
                               block.run(task / blocks / heads, task / blocks % heads, task % blocks * kQueries);
                           });
}

void forward(const AttentionArgs& args, Stream) {
  visit_floating(args.q.dtype, [&]<class S>(Type<S>) { forward_as<S>(args); });
}

}  // namespace

const AttentionKernels& attention_kernels() {
  static constexpr AttentionKernels kKernels{.forward = forward, .backward = attention_backward};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
