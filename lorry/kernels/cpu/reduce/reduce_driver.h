#pragma once

// The driver of all reductions. Output and reduced dimensions are collapsed separately (Axes). Work is split into
// tasks, each a tile of neighbouring outputs and a chunk of the reduced range; their sizes depend on the shapes only:
//   rows     the reduced elements of one output are read in runs: in place if they are contiguous and of the compute
//            type, else through a buffer
//   columns  neighbouring outputs are neighbours in memory: a tile of them is accumulated at once, row by row
// If the reduced range has several chunks, each chunk stores partial cells, which are combined in the order of chunks.
//
// A policy P defines the reduction:
//   Value, Cell         the compute type; the partial result of one output, trivially copyable
//   direct(), ordered() whether elements can be read in place; whether positions in row-major order matter
//   identity()          the cell of no elements
//   load(to, from, stride, n)                       reads n elements into a buffer of the compute type
//   reads_rows(), row_of(cell, from, n)             optional: accumulates n elements without a buffer
//   reads_columns(), columns_of(cells, from, stride, rows, n)    optional: the same for rows of n elements
//   row(cell, block, n, position)                   accumulates n values, the first at `position` of the reduced range
//   column(cells, block, stride, rows, n, position) accumulates rows of n values, one value for each of n cells
//   combine(into, from)                             adds a later cell of the reduced range
//   finish(offset, stride, cells, n)                writes n outputs, `offset` elements from the first

#include <algorithm>
#include <memory>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/array.h"
#include "lorry/kernels/common/fold.h"
#include "lorry/kernels/cpu/common/fold_loops.h"

namespace lorry::kernels::cpu {

/// Defined in scan.cpp.
void scan(const ScanArgs& args, const Stream&);

template <class P>
class Reducer {
 public:
  Reducer(const P& policy, const Array& x, const Layout& out)
      : policy_(policy),
        x_(static_cast<const char*>(x.data)),
        element_(size_of(x.dtype)),
        axes_(x.layout, out, P::ordered()) {
    const bool in_rows = reduced_.strides[0][0] == 1 && count_ > 1;
    columns_ = !in_rows && output_dims_.strides[0][0] == 1 && output_dims_.sizes[0] >= kMinColumns;
    chunk_ = columns_ ? kColumnChunk : kRowChunk;
    chunks_ = std::max<int64_t>(1, (count_ + chunk_ - 1) / chunk_);
    const int64_t outputs = columns_ ? kTile : kRowTask / std::max<int64_t>(1, std::min(count_, chunk_));
    tile_ = std::clamp<int64_t>(outputs, 1, std::min<int64_t>(kTile, std::max<int64_t>(1, output_dims_.sizes[0])));
  }

  void run() {
    if (outputs_ == 0) return;
    std::unique_ptr<Cell[]> partials;
    if (chunks_ > 1) partials = std::make_unique_for_overwrite<Cell[]>(chunks_ * outputs_);
    const int64_t tiles = (output_dims_.sizes[0] + tile_ - 1) / tile_, outer = outputs_ / output_dims_.sizes[0];
    const int64_t work = std::max<int64_t>(1, tile_ * std::min(count_, chunk_));
    lorry::cpu::parallel_for(
        outer * tiles * chunks_, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
          Cell cells[kTile];
          for (int64_t task = begin; task < end; ++task) {
            const int64_t s = task % chunks_, tile = task / chunks_;
            const int64_t row = tile / tiles, first = tile % tiles * tile_;
            const int64_t n = std::min(tile_, output_dims_.sizes[0] - first);
            std::fill(cells, cells + n, policy_.identity());
            const Start at = start(row, first);
            accumulate(cells, at.x, n, s * chunk_, std::min(count_, (s + 1) * chunk_));
            if (partials)
              std::copy(cells, cells + n, partials.get() + s * outputs_ + row * output_dims_.sizes[0] + first);
            else
              policy_.finish(at.out, output_dims_.strides[1][0], cells, n);
          }
        });
    if (partials) combine(partials.get(), outer, tiles);
  }

 private:
  using Value = typename P::Value;
  using Cell = typename P::Cell;
  static constexpr int64_t kTile = 1024;         // maximum outputs of a task
  static constexpr int64_t kRowChunk = 1 << 16;  // reduced elements of a task by rows
  static constexpr int64_t kColumnChunk = 256;   // reduced elements of a task by columns
  static constexpr int64_t kRowTask = 1 << 14;   // elements that make a task of short rows worth its overhead
  static constexpr int64_t kGrain = 1 << 15;     // elements worth waking a thread for
  static constexpr int64_t kBlock = kFoldBlock;  // elements of a buffer
  static constexpr int64_t kMinColumns = 8;
  static constexpr int64_t kRows = 64, kConvertedRows = 8;

  struct Start {
    const char* x;
    int64_t out;
  };
  /// The first element of x, and the output's offset, for outputs (row, first...) of output_dims_.
  Start start(int64_t row, int64_t first) const {
    int64_t in = first * output_dims_.strides[0][0], out = first * output_dims_.strides[1][0];
    for (int d = 1; d < output_dims_.rank; ++d) {
      const int64_t i = row % output_dims_.sizes[d];
      row /= output_dims_.sizes[d];
      in += i * output_dims_.strides[0][d];
      out += i * output_dims_.strides[1][d];
    }
    return {x_ + in * element_, out};
  }

  /// Calls f(address, length, position) for the runs of the innermost reduced dimension within [begin, end).
  template <class F>
  void for_each_run(const char* base, int64_t begin, int64_t end, F&& f) const {
    for (int64_t position = begin; position < end;) {
      int64_t rest = position, offset = 0, length = 0;
      for (int d = 0; d < reduced_.rank; ++d) {
        const int64_t i = rest % reduced_.sizes[d];
        rest /= reduced_.sizes[d];
        offset += i * reduced_.strides[0][d];
        if (d == 0) length = std::min(reduced_.sizes[0] - i, end - position);
      }
      f(base + offset * element_, length, position);
      position += length;
    }
  }

  void accumulate(Cell* cells, const char* x, int64_t n, int64_t begin, int64_t end) const {
    if (columns_) return by_columns(cells, x, n, begin, end);
    const int64_t step = output_dims_.strides[0][0] * element_;
    for (int64_t i = 0; i < n; ++i) by_rows(cells[i], x + i * step, begin, end);
  }

  void by_rows(Cell& cell, const char* x, int64_t begin, int64_t end) const {
    const int64_t stride = reduced_.strides[0][0];
    if (policy_.direct() && stride == 1 && (reduced_.rank == 1 || reduced_.sizes[0] >= 64)) {
      for_each_run(x, begin, end, [&](const char* run, int64_t length, int64_t position) {
        policy_.row(cell, reinterpret_cast<const Value*>(run), length, position);
      });
      return;
    }
    Value block[kBlock];
    int64_t filled = 0, first = begin;
    for_each_run(x, begin, end, [&](const char* run, int64_t length, int64_t position) {
      for (int64_t done = 0; done < length;) {
        const int64_t part = std::min(length - done, kBlock - filled);
        if constexpr (requires { policy_.reads_rows(); }) {
          const bool whole = part == kBlock || position + length == end;  // what the buffer would contain
          if (filled == 0 && stride == 1 && whole && policy_.reads_rows()) {
            policy_.row_of(cell, run + done * element_, part);
            done += part;
            continue;
          }
        }
        policy_.load(block + filled, run + done * stride * element_, stride, part);
        filled += part;
        done += part;
        if (filled < kBlock) continue;
        policy_.row(cell, block, filled, first);
        first = position + done;
        filled = 0;
      }
    });
    if (filled > 0) policy_.row(cell, block, filled, first);
  }

  void by_columns(Cell* cells, const char* x, int64_t n, int64_t begin, int64_t end) const {
    const int64_t stride = reduced_.strides[0][0];
    if (policy_.direct()) {
      for_each_run(x, begin, end, [&](const char* run, int64_t length, int64_t position) {
        for (int64_t r = 0; r < length; r += kRows)
          policy_.column(cells, reinterpret_cast<const Value*>(run) + r * stride, stride, std::min(kRows, length - r),
                         n, position + r);
      });
      return;
    }
    Value block[kConvertedRows * kTile];
    for_each_run(x, begin, end, [&](const char* run, int64_t length, int64_t position) {
      for (int64_t r = 0; r < length; r += kConvertedRows) {
        const int64_t rows = std::min(kConvertedRows, length - r);
        if constexpr (requires { policy_.reads_columns(); }) {
          if (policy_.reads_columns()) {
            policy_.columns_of(cells, run + r * stride * element_, stride, rows, n);
            continue;
          }
        }
        for (int64_t i = 0; i < rows; ++i) policy_.load(block + i * n, run + (r + i) * stride * element_, 1, n);
        policy_.column(cells, block, n, rows, n, position + r);
      }
    });
  }

  void combine(Cell* partials, int64_t outer, int64_t tiles) {
    lorry::cpu::parallel_for(outer * tiles, std::max<int64_t>(1, kGrain / (tile_ * chunks_)),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t task = begin; task < end; ++task) {
                                 const int64_t row = task / tiles, first = task % tiles * tile_,
                                               n = std::min(tile_, output_dims_.sizes[0] - first);
                                 Cell* cells = partials + row * output_dims_.sizes[0] + first;
                                 for (int64_t s = 1; s < chunks_; ++s)
                                   for (int64_t i = 0; i < n; ++i) policy_.combine(cells[i], cells[s * outputs_ + i]);
                                 policy_.finish(start(row, first).out, output_dims_.strides[1][0], cells, n);
                               }
                             });
  }

  P policy_;
  const char* x_;
  int64_t element_;
  Axes axes_;
  const Iteration &output_dims_ = axes_.output_dims, &reduced_ = axes_.reduced;
  const int64_t outputs_ = axes_.outputs, count_ = axes_.count;
  int64_t chunk_ = 0, chunks_ = 0, tile_ = 0;
  bool columns_ = false;
};

template <class P>
void reduce(const P& policy, const Array& x, const Layout& out) {
  Reducer<P>(policy, x, out).run();
}

}  // namespace lorry::kernels::cpu
