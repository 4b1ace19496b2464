// Attention over a paged cache. A task is one query head of one row. It reads its keys in splits of kSplit, with a
// running maximum and sum, so a result does not depend on the rest of the batch.

#include "lorry/kernels/paged.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/attention/attention_rows.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
using lorry::cpu::parallel_for;
namespace {

constexpr int64_t kSplit = 64;

/// The rows of a batch in the cache.
class Rows {
 public:
  Rows(const PagedRows& rows, const Array& cache)
      : table_(rows.block_table.as<const int32_t>()),
        slots_(rows.slots.as<const int32_t>()),
        positions_(rows.positions.as<const int32_t>()),
        sequences_(rows.block_table.size(0)),
        per_sequence_(rows.block_table.size(1)),
        blocks_(cache.size(0)),
        block_size_(cache.size(1)),
        stride_block_(cache.stride(0)),
        stride_row_(cache.stride(1)) {}

  bool padding(int64_t row) const { return slots_[row] < 0; }
  int64_t position(int64_t row) const { return positions_[row]; }
  /// The offset in the cache of a position of the row's sequence.
  int64_t offset(int64_t row, int64_t position) const {
    const int64_t block = table_[slots_[row] * per_sequence_ + position / block_size_];
    return block * stride_block_ + position % block_size_ * stride_row_;
  }

  /// Throws unless the blocks of positions [first(row), position] exist.
  template <class First>
  void check(int64_t n, const First& first) const {
    for (int64_t row = 0; row < n; ++row) {
      if (padding(row)) continue;
      require<IndexError>(slots_[row] < sequences_, "slot {} of row {} does not exist; expected {}, or a negative one",
                          slots_[row], row, IndexRange{0, sequences_});
      const int64_t position = positions_[row], capacity = per_sequence_ * block_size_;
      require<IndexError>(position >= 0 && position < capacity,
                          "position {} of row {} is outside its sequence's blocks; expected {}", position, row,
                          IndexRange{0, capacity});
      for (int64_t b = first(position) / block_size_; b <= position / block_size_; ++b) {
        const int32_t block = table_[slots_[row] * per_sequence_ + b];
        require<IndexError>(block >= 0 && block < blocks_,
                            "block {} of slot {} does not exist; got entry {} of the block table; expected {}", block,
                            slots_[row], b, IndexRange{0, blocks_});
      }
    }
  }

 private:
  const int32_t *table_, *slots_, *positions_;
  int64_t sequences_, per_sequence_, blocks_, block_size_, stride_block_, stride_row_;
};

/// Copies the [heads, d] of a row.
template <class Word>
void copy_row(Word* to, const Array& cache, const Word* from, const Array& x) {
  for (int64_t h = 0; h < x.size(1); ++h)
    for (int64_t e = 0; e < x.size(2); ++e)
      to[h * cache.stride(2) + e * cache.stride(3)] = from[h * x.stride(1) + e * x.stride(2)];
}

template <class Word>
void write_as(const PagedWrite& args) {
  const int64_t n = args.k.size(0), width = args.k.size(1) * args.k.size(2);
  const Rows k_rows(args.rows, args.k_cache), v_rows(args.rows, args.v_cache);
  k_rows.check(n, [](int64_t position) { return position; });
  parallel_for(n, std::max<int64_t>(1, (1 << 14) / (width + 1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      if (k_rows.padding(row)) continue;
      const int64_t position = k_rows.position(row);
      copy_row(args.k_cache.as<Word>() + k_rows.offset(row, position), args.k_cache,
               args.k.as<const Word>() + row * args.k.stride(0), args.k);
      copy_row(args.v_cache.as<Word>() + v_rows.offset(row, position), args.v_cache,
               args.v.as<const Word>() + row * args.v.stride(0), args.v);
    }
  });
}

void write(const PagedWrite& args, Stream) {
  switch (size_of(args.k.dtype)) {
    case 2:
      return write_as<uint16_t>(args);
    case 4:
      return write_as<uint32_t>(args);
    default:
      return write_as<uint64_t>(args);
  }
}

/// The attention of one head of one row. C is the compute type.
template <class C>
class Query {
 public:
  Query(const PagedAttention& args, const Rows& rows)
      : args_(args),
        rows_(rows),
        d_(args.q.size(2)),
        bytes_(size_of(args.q.dtype)),
        q_(static_cast<size_t>(d_)),
        sum_(static_cast<size_t>(d_)),
        row_of_cache_(static_cast<size_t>(d_)),
        scores_(static_cast<size_t>(kSplit + kRowPadding)) {}

  void run(int64_t row, int64_t head) {
    const int64_t group = args_.q.size(1) / args_.k_cache.size(2), keys = rows_.position(row) + 1;
    const char* const q = args_.q.as<const char>() + (row * args_.q.stride(0) + head * args_.q.stride(1)) * bytes_;
    load(q_.data(), q, args_.q.dtype, 1, d_);
    std::ranges::fill(sum_, C(0));
    most_ = -std::numeric_limits<C>::infinity(), total_ = 0;
    for (int64_t first = 0; first < keys; first += kSplit)
      split(row, head / group, first, std::min(kSplit, keys - first));
    for (C& x : sum_) x = total_ == C(0) ? C(0) : x / total_;
    char* const out = args_.out.as<char>() + (row * args_.out.size(1) + head) * d_ * bytes_;
    store(out, args_.out.dtype, 1, sum_.data(), d_);
  }

 private:
  /// One head's key or value at a position, in the compute type.
  const C* cached(const Array& cache, int64_t row, int64_t position, int64_t head) {
    const char* const at = cache.as<const char>() + (rows_.offset(row, position) + head * cache.stride(2)) * bytes_;
    if (cache.dtype == dtype_of<C>) return reinterpret_cast<const C*>(at);
    load(row_of_cache_.data(), at, cache.dtype, 1, d_);
    return row_of_cache_.data();
  }

  void split(int64_t row, int64_t head, int64_t first, int64_t n) {
    for (int64_t j = 0; j < n; ++j) {
      const C* const key = cached(args_.k_cache, row, first + j, head);
      scores_[static_cast<size_t>(j)] = row_dot(q_.data(), key, d_);
    }
    const C scale = static_cast<C>(args_.scale);
    const C most = std::max(most_, scale_and_max(scores_.data(), nullptr, n, scale));
    const C shift = most == -std::numeric_limits<C>::infinity() ? C(0) : most;
    const C factor = std::exp(most_ - shift);
    total_ = total_ * factor + exp_and_sum(scores_.data(), n, shift);
    most_ = most;
    for (C& x : sum_) x *= factor;
    for (int64_t j = 0; j < n; ++j)
      add_scaled(sum_.data(), cached(args_.v_cache, row, first + j, head), scores_[static_cast<size_t>(j)], d_);
  }

  const PagedAttention& args_;
  const Rows& rows_;
  int64_t d_, bytes_;
  std::vector<C> q_, sum_, row_of_cache_, scores_;
  C most_ = 0, total_ = 0;
};

template <class C>
void attention_as(const PagedAttention& args) {
  const int64_t n = args.q.size(0), heads = args.q.size(1), width = heads * args.q.size(2) * size_of(args.q.dtype);
  const Rows rows(args.rows, args.k_cache);
  rows.check(n, [](int64_t) { return int64_t{0}; });
  parallel_for(n * heads, 1, [&](int64_t begin, int64_t end) {
    Query<C> query(args, rows);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / heads, head = task % heads;
      if (!rows.padding(row))
        query.run(row, head);
      else if (head == 0)
        std::fill_n(args.out.as<char>() + row * width, width, char{0});
    }
  });
}

void attention(const PagedAttention& args, Stream) {
  if (args.out.numel() == 0) return;
  args.q.dtype == kF64 ? attention_as<double>(args) : attention_as<float>(args);
}

}  // namespace

const PagedKernels& paged_kernels() {
  static constexpr PagedKernels kKernels{.write = write, .attention = attention};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
