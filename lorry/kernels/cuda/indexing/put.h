#pragma once

// Shared by the kernels that write at computed positions. put.cu explains the algorithm and its terms.

#include "lorry/kernels/cuda/indexing/index_bounds.h"

namespace lorry::kernels::cuda {

struct PutPlan {
  Iteration orders;      ///< the orders, in row-major order; operands: target, source, index
  Iteration columns;     ///< the columns; operands: target, source
  bool meets;            ///< whether two orders may have the same key
  int64_t key_step;      ///< key = the target's offset + index * key_step
  int64_t address_step;  ///< address = key * address_step
  int64_t nowhere;       ///< the key of an invalid index, above all other keys
  Layout numbers;        ///< maps a coordinate to the number of its order
  int64_t count = 0;     ///< number of orders
};

/// Computes the key of each order.
template <class Key, class Index>
struct OrderKeys {
  const int64_t* index;
  int64_t key_step;
  Key nowhere;
  StridedIndexer<3, Index> offsets;  ///< operands: target, source, index
  IndexBounds positions;

  OrderKeys(const PutArgs& args, const PutPlan& p, Stream stream)
      : index(args.index.as<const int64_t>()),
        key_step(p.key_step),
        nowhere(static_cast<Key>(p.nowhere)),
        offsets(p.orders),
        positions(args, stream) {}
  void addresses(auto& visit) const { visit(index); }

#ifdef __CUDACC__
  __device__ __forceinline__ Key operator()(Index order) const {
    return find(order, [&](int64_t i) { return positions(i); });
  }
  /// Does not report an invalid index: without that call, several can be computed at the same time.
  __device__ __forceinline__ Key quiet(Index order) const {
    return find(order, [&](int64_t i) { return positions.find(i); });
  }

 private:
  __device__ __forceinline__ Key find(Index order, auto&& position_of) const {
    Index at[3];
    offsets(order, at);
    const int64_t position = position_of(index[at[2]]);
    return position < 0 ? nowhere : static_cast<Key>(at[0] + position * key_step);
  }
#endif
};

/// The lines of a put along one dimension (put_lines.h).
struct LineShape {
  int64_t count;                        ///< number of lines
  int64_t length;                       ///< orders per line
  int64_t step;                         ///< the target's stride along a line
  int64_t source_stride, index_stride;  ///< from an order to the next

  void addresses(auto& visit) const { visit(); }
};
struct PutLines {
  Iteration starts;  ///< operands: target, source, index
  LineShape shape;
};

/// Whether 32 bits hold every key, order and offset.
inline bool narrow(const PutPlan& p) {
  return p.nowhere <= INT32_MAX && fits_narrow(p.orders) && fits_narrow(p.columns);
}

/// All elements in words of `bytes` bytes (widen). Operands: target, source, index, number of the order.
struct PutWords {
  Iteration it;
  int64_t step, bytes;

  PutWords(const PutArgs& args, const PutPlan& p) : it(all(args, p)), step(args.step) {
    bytes = widen(it, size_of(args.target.dtype), args.target.data, args.source.data, step);
  }

 private:
  static Iteration all(const PutArgs& args, const PutPlan& p) {
    const Layout layouts[] = {args.target.layout, args.source.layout, args.index.layout, p.numbers};
    return collapse(layouts, 4);
  }
};

/// Assigns the last of a few orders with one launch, if they are long rows; else returns false. Defined in put_last.cu.
bool put_last(const PutArgs& args, const PutPlan& p, Stream stream);

/// Whether comparing all orders with each other takes less time than sorting. Defined in put_few.cu.
bool few(const PutPlan& p);
/// Writes the keys of all orders, sorted, and the orders' numbers.
void sort_few(const PutArgs& args, const PutPlan& p, uint32_t* keys, uint32_t* numbers, Stream stream);
/// wins[i]: whether order i is the last of its key.
void find_few_winners(const PutArgs& args, const PutPlan& p, uint8_t* wins, Stream stream);

/// Adds the orders of a chunk, sorted by key, to the target. Key is uint32_t if `narrow`. Defined in put_add.cu.
void add_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream);
void add_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream);
void add_lines(const PutArgs& args, const PutLines& lines, Stream stream);
/// Multiplies the orders, or takes the largest or the smallest. Defined in put_fold.cu.
void fold_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream);
void fold_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream);
void fold_lines(const PutArgs& args, const PutLines& lines, Stream stream);

}  // namespace lorry::kernels::cuda
