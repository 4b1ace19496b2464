// Running sums and products. A scan is sequential along its dimension, so work is divided along the other dimensions.
// Totals of f32 and narrower types are f64, as in PyTorch on the CPU. Each element is read once and written once.

#include <algorithm>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/fold_loops.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kTile = 256;  // neighbouring lines that are scanned together
constexpr int64_t kBlock = 1024;

template <class C, Fold kFold>
void scan_as(const ScanArgs& args) {
  const Array &out = args.out, &x = args.x;
  const int64_t length = x.size(args.dim), step_x = x.stride(args.dim), step_out = out.stride(args.dim);
  Layout lines[2] = {x.layout, out.layout};
  lines[0].sizes[args.dim] = lines[1].sizes[args.dim] = 1;
  const Iteration it = collapse(lines, 2);
  if (length == 0 || it.numel() == 0) return;
  const int64_t bytes_x = size_of(x.dtype), bytes_out = size_of(out.dtype);
  // Lines that are adjacent in memory advance together; others are scanned one by one, in blocks.
  const bool side_by_side = it.strides[0][0] == 1 && it.sizes[0] >= 8;
  const int64_t tile = side_by_side ? kTile : 1, tiles = (it.sizes[0] + tile - 1) / tile;
  const int64_t block = side_by_side ? 1 : kBlock;

  lorry::cpu::parallel_for(
      it.numel() / it.sizes[0] * tiles, std::max<int64_t>(1, 32768 / (tile * length)), [&](int64_t begin, int64_t end) {
        C converted[kBlock];
        Total<C> carried[kTile], results[kBlock];
        for (int64_t task = begin; task < end; ++task) {
          const int64_t first = task % tiles * tile, n = std::min(tile, it.sizes[0] - first);
          int64_t row = task / tiles, at_x = first * it.strides[0][0], at_out = first * it.strides[1][0];
          for (int d = 1; d < it.rank; ++d) {
            at_x += row % it.sizes[d] * it.strides[0][d];
            at_out += row % it.sizes[d] * it.strides[1][d];
            row /= it.sizes[d];
          }
          std::fill(carried, carried + n, fold_identity<Total<C>>(kFold));
          for (int64_t k = 0; k < length; k += block) {
            const char* from = x.as<const char>() + (at_x + k * step_x) * bytes_x;
            char* to = out.as<char>() + (at_out + k * step_out) * bytes_out;
            if (side_by_side) {
              load(converted, from, x.dtype, 1, n);
              for (int64_t i = 0; i < n; ++i) carried[i] = fold_one<kFold, Total<C>>(carried[i], converted[i]);
              store(to, out.dtype, it.strides[1][0], carried, n);
            } else {
              const int64_t count = std::min(block, length - k);
              load(converted, from, x.dtype, step_x, count);
              for (int64_t i = 0; i < count; ++i)
                results[i] = carried[0] = fold_one<kFold, Total<C>>(carried[0], converted[i]);
              store(to, out.dtype, step_out, results, count);
            }
          }
        }
      });
}

}  // namespace

void scan(const ScanArgs& args, const Stream&) {
  visit_compute(args.out.dtype,
                [&]<class C>(Type<C>) { args.product ? scan_as<C, Fold::prod>(args) : scan_as<C, Fold::sum>(args); });
}

}  // namespace lorry::kernels::cpu
