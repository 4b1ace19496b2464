#pragma once

// Shared by the forward and the backward pass of attention: the matrices of a (batch, head) pair, the mask and dropout.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lorry/kernels/attention.h"
#include "lorry/kernels/cpu/attention/attention_rows.h"
#include "lorry/kernels/cpu/common/scratch.h"
#include "lorry/kernels/cpu/random/random_tile.h"

namespace lorry::kernels::cpu {

/// Queries and keys of a block: 64 x 512 scores fit the second-level cache. Smaller blocks would skip more of the
/// causal triangle, but lose as much in the products (measured at t = 128, d = 32).
inline constexpr int64_t kQueries = 64, kKeys = 512;

constexpr int64_t padded(int64_t n) { return (n + kRowPadding - 1) / kRowPadding * kRowPadding; }

/// The matrix of one batch entry and head: rows of unit stride.
template <class S>
struct MatrixRows {
  S* data;
  int64_t row;
  int64_t width;

  MatrixRows(const Array& x, int64_t batch, int64_t head)
      : data(x.as<S>() + batch * x.stride(0) + head * x.stride(1)),
        row(x.size(2) == 1 ? x.size(3) : x.stride(2)),
        width(x.size(3)) {}
  S* operator()(int64_t i) const { return data + i * row; }
};

/// `count` rows in the compute type: in place for f32 and f64, else converted copies in `buffer`.
template <class T>
struct ConvertedRows {
  const T* data;
  int64_t row;

  template <class S>
  ConvertedRows(const MatrixRows<S>& x, int64_t first, int64_t count, T* buffer) {
    if constexpr (std::is_same_v<S, T>) {
      data = x(first), row = x.row;
    } else {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < x.width; ++j) buffer[i * x.width + j] = static_cast<T>(x(first + i)[j]);
      data = buffer, row = x.width;
    }
  }
};

/// The mask of a row as numbers to add to the scores.
template <class S, class T>
const T* bias_row(const Array& mask, int64_t batch, int64_t head, int64_t i, int64_t j, int64_t n, T* buffer) {
  if (mask.data == nullptr) return nullptr;
  const int64_t at = batch * mask.stride(0) + head * mask.stride(1) + i * mask.stride(2) + j * mask.stride(3),
                step = mask.stride(3);
  if (mask.dtype == kBool) {
    const bool* const takes_part = mask.as<bool>() + at;
    for (int64_t c = 0; c < n; ++c) buffer[c] = takes_part[c * step] ? T(0) : -std::numeric_limits<T>::infinity();
  } else {
    const S* const added = mask.as<S>() + at;
    for (int64_t c = 0; c < n; ++c) buffer[c] = static_cast<T>(added[c * step]);
  }
  return buffer;
}

/// The factors of dropout on the weights: 0, or 1 / (1 - p). Random words are generated tile by tile; neighbouring rows
/// may share a tile.
class Dropout {
 public:
  explicit Dropout(const AttentionArgs& args)
      : key_(args.key),
        row_(args.k.size(2)),
        rows_(args.q.size(2)),
        heads_(args.q.size(1)),
        keep_probability_(1 - args.dropout),
        active_(args.dropout > 0) {}
  bool active() const { return active_; }

  template <class T>
  void row(int64_t batch, int64_t head, int64_t i, int64_t j, int64_t n, T* factors) {
    // kernels/random.h: element e of the draw is 1 when word e < ceil(keep * 2^32).
    const double threshold = std::ceil(keep_probability_ * 4294967296.0);
    const T scale = keep_probability_ > 0 ? static_cast<T>(1 / keep_probability_) : T(0);
    const int64_t first = ((batch * heads_ + head) * rows_ + i) * row_ + j;
    for (int64_t c = 0; c < n; ++c) {
      const int64_t tile = (first + c) / kTileWords;
      if (tile != tile_) random_words(key_, static_cast<uint64_t>(tile * kTileBlocks), words_);
      tile_ = tile;
      factors[c] = static_cast<double>(words_[(first + c) % kTileWords]) < threshold ? scale : T(0);
    }
  }

 private:
  formula::RandomKey key_;
  int64_t row_, rows_, heads_;
  double keep_probability_;
  bool active_;
  int64_t tile_ = -1;
  alignas(64) uint32_t words_[kTileWords];
};

/// Takes consecutive buffers from one block of scratch memory.
template <class T>
class Buffers {
 public:
  explicit Buffers(int64_t total) : next_(scratch<T>(Scratch::attention, total)) {}
  T* take(int64_t count) { return std::exchange(next_, next_ + padded(count)); }

 private:
  T* next_;
};

/// The number of keys that queries below `last` attend to.
inline int64_t visible_keys(const AttentionArgs& args, int64_t last) {
  return args.causal ? std::min(args.k.size(2), last) : args.k.size(2);
}
/// How many of the n keys from j on query i attends to.
inline int64_t visible_in_row(const AttentionArgs& args, int64_t i, int64_t j, int64_t n) {
  return args.causal ? std::clamp<int64_t>(i + 1 - j, 0, n) : n;
}

void attention_backward(const AttentionArgs& args, const AttentionGrads& grads, Stream);

}  // namespace lorry::kernels::cpu
