// Running sums and products. A scan is sequential along its dimension, so work is divided along the other dimensions.
// Totals of f32 and narrower types are f64, as in PyTorch on the CPU. Each element is read once and written once.

#include <algorithm>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/cursor.h"
#include "lorry/kernels/cpu/common/fold_loops.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/common/move_runs.h"
#include "lorry/kernels/cpu/reduce/scan_loops.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kTile = 256;          // neighbouring lines that are scanned together
constexpr int64_t kFewSums = 16;        // fewer are added one by one
constexpr int64_t kManyProducts = 128;  // of so many, some may be subnormal

/// A scan of type C. A line is what is scanned; `lines` iterates over the first elements of all.
template <class C, Fold kFold>
class Scan {
 public:
  Scan(const ScanArgs& args, const Iteration& lines)
      : out_(args.out),
        x_(args.x),
        lines_(lines),
        length_(x_.size(args.dim)),
        step_x_(x_.stride(args.dim)),
        step_out_(out_.stride(args.dim)),
        in_place_(x_.dtype == dtype_of<C> && out_.dtype == dtype_of<C> && step_x_ == 1 && step_out_ == 1 &&
                  !spans_overlap(x_.data, x_.layout, sizeof(C), out_.data, out_.layout, sizeof(C))) {}

  void run() const {
    // Lines that are adjacent in memory advance together.
    if (lines_.strides[0][0] == 1 && lines_.sizes[0] >= 8) return side_by_side();
    lorry::cpu::parallel_for(lines_.numel(), std::max<int64_t>(1, 32768 / length_), [&](int64_t begin, int64_t end) {
      Blocks blocks;
      for (Cursor line(lines_, begin); begin < end;) {
        if constexpr (kInLanes) {
          const int64_t lines = std::min(end - begin, line.left_in_row());
          if (loops_.products != nullptr && lines >= kScanLines && length_ >= kManyProducts) {
            multiply(line.offset[0], lines_.strides[0][0], line.offset[1], lines_.strides[1][0], blocks);
            line.step(kScanLines);
            begin += kScanLines;
            continue;
          }
        }
        scan(line.offset[0], line.offset[1], blocks);
        line.step(1);
        ++begin;
      }
    });
  }

 private:
  /// Whether several lines that are equally far apart are multiplied in the lanes of vectors. Additions wait less for
  /// one another.
  static constexpr bool kInLanes = !std::is_integral_v<C> && kFold == Fold::prod;

  struct Blocks {
    C x[kScanLines * kScanBlock], out[kScanLines * kScanBlock];
  };

  const char* from(int64_t offset) const { return x_.as<const char>() + offset * size_of(x_.dtype); }
  char* to(int64_t offset) const { return out_.as<char>() + offset * size_of(out_.dtype); }

  /// Scans a line.
  void scan(int64_t at_x, int64_t at_out, Blocks& blocks) const {
    Total<C> total = fold_identity<Total<C>>(kFold);
    int64_t distrusted = 0;
    for (int64_t k = 0; k < length_; k += kScanBlock) {
      const int64_t n = std::min(kScanBlock, length_ - k);
      if (in_place_) {
        scan_block(reinterpret_cast<C*>(to(at_out + k)), reinterpret_cast<const C*>(from(at_x + k)), n, total,
                   distrusted);
        continue;
      }
      load(blocks.x, from(at_x + k * step_x_), x_.dtype, step_x_, n);
      scan_block(blocks.out, blocks.x, n, total, distrusted);
      store(to(at_out + k * step_out_), out_.dtype, step_out_, blocks.out, n);
    }
  }

  /// Multiplies kScanLines lines in the lanes of vectors: they are transposed, and back. Lines of out begin pitch_out
  /// elements apart, lines of x pitch_x.
  void multiply(int64_t at_x, int64_t pitch_x, int64_t at_out, int64_t pitch_out, Blocks& blocks) const {
    double totals[kScanLines];
    std::fill_n(totals, kScanLines, 1.0);
    for (int64_t k = 0; k < length_; k += kScanBlock) {
      const int64_t n = std::min(kScanBlock, length_ - k);
      const C* lines = reinterpret_cast<const C*>(from(at_x + k));
      if (!in_place_) {
        for (int64_t l = 0; l < kScanLines; ++l)
          load(blocks.x + l * n, from(at_x + l * pitch_x + k * step_x_), x_.dtype, step_x_, n);
        lines = blocks.x;
      }
      LORRY_SIMD_CHOOSE(transpose_tile)
      (lines, in_place_ ? pitch_x : n, blocks.out, kScanLines, kScanLines, n, sizeof(C));
      loops_.products(blocks.out, n, totals);
      C* const results = in_place_ ? reinterpret_cast<C*>(to(at_out + k)) : blocks.x;
      LORRY_SIMD_CHOOSE(transpose_tile)
      (blocks.out, kScanLines, results, in_place_ ? pitch_out : n, n, kScanLines, sizeof(C));
      if (in_place_) continue;
      for (int64_t l = 0; l < kScanLines; ++l)
        store(to(at_out + l * pitch_out + k * step_out_), out_.dtype, step_out_, results + l * n, n);
    }
  }

  /// `distrusted`: how many blocks are not worth an attempt, because one before failed.
  void scan_block(C* out, const C* x, int64_t n, Total<C>& total, int64_t& distrusted) const {
    if constexpr (!std::is_integral_v<C> && kFold == Fold::sum) {
      if (loops_.sums != nullptr && n >= kFewSums && --distrusted < 0) {
        if (loops_.sums(out, x, n, total)) return;
        distrusted = 8;
      }
    }
    Total<C> running = total;
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<C>(running = fold_one<kFold, Total<C>>(running, x[i]));
    total = running;
  }

  void side_by_side() const {
    const int64_t tiles = (lines_.sizes[0] + kTile - 1) / kTile;
    lorry::cpu::parallel_for(
        lines_.numel() / lines_.sizes[0] * tiles, std::max<int64_t>(1, 32768 / (kTile * length_)),
        [&](int64_t begin, int64_t end) {
          C converted[kTile];
          Total<C> totals[kTile];
          for (int64_t task = begin; task < end; ++task) {
            const int64_t first = task % tiles * kTile, n = std::min(kTile, lines_.sizes[0] - first);
            const Cursor line(lines_, task / tiles * lines_.sizes[0] + first);
            std::fill(totals, totals + n, fold_identity<Total<C>>(kFold));
            for (int64_t k = 0; k < length_; ++k) {
              load(converted, from(line.offset[0] + k * step_x_), x_.dtype, 1, n);
              for (int64_t i = 0; i < n; ++i) totals[i] = fold_one<kFold, Total<C>>(totals[i], converted[i]);
              store(to(line.offset[1] + k * step_out_), out_.dtype, lines_.strides[1][0], totals, n);
            }
          }
        });
  }

  struct NoLoops {};
  static auto loops() {
    if constexpr (std::is_integral_v<C>)
      return NoLoops{};
    else
      return scan_loops<C>();
  }

  const Array &out_, &x_;
  const Iteration& lines_;
  const int64_t length_, step_x_, step_out_;
  const decltype(loops()) loops_ = loops();
  const bool in_place_;  ///< lines are read and written without buffers; an attempt that fails must not overwrite x
};

}  // namespace

void scan(const ScanArgs& args, const Stream&) {
  Layout layouts[2] = {args.x.layout, args.out.layout};
  layouts[0].sizes[args.dim] = layouts[1].sizes[args.dim] = 1;
  const Iteration lines = collapse(layouts, 2);
  if (args.x.size(args.dim) == 0 || lines.numel() == 0) return;
  visit_compute(args.out.dtype, [&]<class C>(Type<C>) {
    args.product ? Scan<C, Fold::prod>(args, lines).run() : Scan<C, Fold::sum>(args, lines).run();
  });
}

}  // namespace lorry::kernels::cpu
