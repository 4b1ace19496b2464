// Running sums and products. Totals of f32 and narrower types are f64, as on the CPU; the order of operations depends
// on the shapes only.
//
//   tiles   a block scans a line, up to 64 bytes per thread at a time; the total is carried from tile to tile
//   parts   few long lines: a block scans a part of one, and reads the totals of the parts before it (scan_parts.h)
//   rows    1 to 256 neighbouring threads scan a line, 16 bytes each at a time
//   lines   neighbouring lines are adjacent in memory: one thread per line, one element at a time
//
// Tiles and parts take types known when this is compiled. If rows, of other types, or lines are few and long, each is
// split, and there are two launches: the first computes the total of every part, the second starts each part with the
// fold of the totals before it.

#include "lorry/kernels/cuda/common/copy_ahead.h"
#include "lorry/kernels/cuda/reduce/scan_parts.h"

namespace lorry::kernels::cuda {
namespace {

/// How elements are read and written: as type T; void: types known at run time.
template <class T, class C>
struct Memory {
  static constexpr int kV = kRun<T>;
  const T* x;
  T* out;

  Memory(const ScanArgs& args) : x(args.x.as<const T>()), out(args.out.as<T>()) {}
  void addresses(auto& visit) const { visit(x, out); }
  __device__ C load(int64_t at) const { return cast<C, T>(x[at]); }
  __device__ void store(int64_t at, Total<C> v) const { out[at] = cast<T, Total<C>>(v); }
};
template <class C>
struct Memory<void, C> {
  static constexpr int kV = 2;
  const void* x;
  void* out;
  DType x_dtype, out_dtype;

  Memory(const ScanArgs& args) : x(args.x.data), out(args.out.data), x_dtype(args.x.dtype), out_dtype(args.out.dtype) {}
  void addresses(auto& visit) const { visit(x, out); }
  __device__ C load(int64_t at) const { return load_as<C>(x, x_dtype, at); }
  __device__ void store(int64_t at, Total<C> v) const { store_as<Total<C>>(out, out_dtype, at, v); }
};

template <class Cell>
__device__ __forceinline__ Cell joined(bool product, Cell a, Cell b) {
  return product ? fold_one<Fold::prod>(a, b) : fold_one<Fold::sum>(a, b);
}

struct ScanPlan {
  // of rows and lines: a block or a thread scans `chunk` elements of a line
  int64_t lines, length, chunk, step_x, step_out;
  int32_t lanes;  // threads per line
  int32_t parts;
  bool product;
  WideIndexer<2> line_indexer;

  void addresses(auto& visit) const { visit(); }
};

enum class Phase { whole, totals, outputs };

// ---- rows -----------------------------------------------------------------------------------------------------------

inline constexpr int kRowThreads = 256;

/// The fold of the cells of the threads before this one, among `lanes` (a power of two); `total` gets the fold of all.
template <class Cell>
__device__ Cell scan_lanes(bool product, Cell cell, int lanes, Cell& total) {
  const Cell identity = Cell(product ? 1 : 0);
  const int width = min(lanes, 32), lane = static_cast<int>(threadIdx.x) & (width - 1);
  for (int offset = 1; offset < width; offset *= 2) {
    const Cell before = __shfl_up_sync(0xffffffffu, cell, offset, width);
    if (lane >= offset) cell = joined(product, before, cell);
  }
  Cell exclusive = __shfl_up_sync(0xffffffffu, cell, 1, width);
  if (lane == 0) exclusive = identity;
  total = __shfl_sync(0xffffffffu, cell, width - 1, width);
  if (lanes <= 32) return exclusive;
  constexpr int kWarps = kRowThreads / 32;  // lanes is kRowThreads
  __shared__ Cell totals[kWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();  // the totals of the previous call have been read
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  Cell prefix = identity;
  total = identity;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    if (w == warp) prefix = total;
    total = joined(product, total, totals[w]);
  }
  return joined(product, prefix, exclusive);
}

/// The fold of the totals of a line's parts before `part`. All threads of the block, which has one line, must call it.
template <class Cell>
__device__ Cell prefix_of(bool product, const Cell* totals, int64_t line, int parts, int part) {
  Cell cell = Cell(product ? 1 : 0), total;
  for (int p = static_cast<int>(threadIdx.x); p < part; p += kRowThreads)
    cell = joined(product, cell, totals[line * parts + p]);
  scan_lanes(product, cell, kRowThreads, total);
  return total;
}

// Long: one kernel, whose running total stays in registers.
template <class T, class C>
__global__ void __launch_bounds__(kRowThreads)
    scan_rows(const Memory<T, C> memory, const ScanPlan plan, Phase phase, Total<C>* totals) {
  lorry::cuda::begin_programmatic();
  using Cell = Total<C>;
  constexpr int kV = Memory<T, C>::kV;
  const int lane = static_cast<int>(threadIdx.x) & (plan.lanes - 1);
  const int64_t line =
      static_cast<int64_t>(blockIdx.x) * (kRowThreads / plan.lanes) + static_cast<int>(threadIdx.x) / plan.lanes;
  const int part = static_cast<int>(blockIdx.y);
  const int64_t begin = part * plan.chunk, end = min(plan.length, begin + plan.chunk);
  const bool inside = line < plan.lines;
  int64_t at[2] = {};
  if (inside) plan.line_indexer(line, at);
  Cell carry = Cell(plan.product ? 1 : 0);
  if (phase == Phase::outputs) carry = prefix_of(plan.product, totals, line, plan.parts, part);
  bool aligned = false, aligned_out = false;
  if constexpr (!std::is_void_v<T>) {
    aligned = plan.step_x == 1 && reinterpret_cast<uintptr_t>(memory.x + at[0] + begin) % 16 == 0;
    aligned_out = plan.step_out == 1 && reinterpret_cast<uintptr_t>(memory.out + at[1] + begin) % 16 == 0;
  }

  for (int64_t base = begin; base < end;
       base += int64_t{plan.lanes} * kV) {  // the same number of iterations for every thread of the block
    const int64_t first = base + lane * kV;
    const int n = inside ? static_cast<int>(max(int64_t{0}, min(int64_t{kV}, end - first))) : 0;
    Cell cells[kV];
    bool loaded = false;
    if constexpr (!std::is_void_v<T>) {
      if (aligned && n == kV) {
        const Run<T, kV> run = load_run<T, kV>(memory.x + at[0] + first);
#pragma unroll
        for (int i = 0; i < kV; ++i) cells[i] = cast<C, T>(run.at[i]);
        loaded = true;
      }
    }
    if (!loaded) {
#pragma unroll
      for (int i = 0; i < kV; ++i)
        cells[i] = i < n ? Cell(memory.load(at[0] + (first + i) * plan.step_x)) : Cell(plan.product ? 1 : 0);
    }
#pragma unroll
    for (int i = 1; i < kV; ++i) cells[i] = joined(plan.product, cells[i - 1], cells[i]);
    Cell total;
    const Cell before = joined(plan.product, carry, scan_lanes(plan.product, cells[kV - 1], plan.lanes, total));
    carry = joined(plan.product, carry, total);
    if (phase == Phase::totals) continue;
    if constexpr (!std::is_void_v<T>) {
      if (aligned_out && n == kV) {
        Run<T, kV> run;
#pragma unroll
        for (int i = 0; i < kV; ++i) run.at[i] = cast<T, Cell>(joined(plan.product, before, cells[i]));
        store_run(memory.out + at[1] + first, run);
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < kV; ++i)
      if (i < n) memory.store(at[1] + (first + i) * plan.step_out, joined(plan.product, before, cells[i]));
  }
  if (phase == Phase::totals && lane == 0 && inside) totals[line * plan.parts + part] = carry;
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

/// A tile is kBands bands of kRowThreads runs, so that memory is accessed in order. Each warp scans its part of every
/// band by shuffles, then adds the totals of all that is before it.
template <class T, int kBands_>
struct Tile {
  static constexpr int kV = kRun<T>, kBands = kBands_, kWarps = kRowThreads / 32, kTotals = kBands * kWarps;
  static constexpr int kElements = kBands * kRowThreads * kV;

  const T* x;
  T* out;
  int64_t step_x, step_out;
  int left;  ///< elements: kElements, or fewer in the last tile
  bool aligned, aligned_out;

#ifdef __CUDACC__
  __device__ Tile(const T* x, T* out, const ScanPlan& plan, int64_t left)
      : x(x),
        out(out),
        step_x(plan.step_x),
        step_out(plan.step_out),
        left(static_cast<int>(min(left, int64_t{kElements}))),
        aligned(step_x == 1 && reinterpret_cast<uintptr_t>(x) % 16 == 0),
        aligned_out(step_out == 1 && reinterpret_cast<uintptr_t>(out) % 16 == 0) {}

  /// The first element of this thread's run in a band.
  static __device__ int first_of(int band) { return (band * kRowThreads + static_cast<int>(threadIdx.x)) * kV; }
  /// Whether the run is whole, and 16 bytes that can be read at once.
  __device__ bool is_run(int first) const { return aligned && first + kV <= left; }
  __device__ Run<T, kV> elements(int first, T identity) const {
    Run<T, kV> run;
#pragma unroll
    for (int i = 0; i < kV; ++i) run.at[i] = first + i < left ? x[(first + i) * step_x] : identity;
    return run;
  }
  __device__ void store(int first, const Run<T, kV>& run) const {
    if (aligned_out && first + kV <= left) return store_run(out + first, run);
#pragma unroll
    for (int i = 0; i < kV; ++i)
      if (first + i < left) out[(first + i) * step_out] = run.at[i];
  }
#endif
};

template <class T>
using CarriedTile = Tile<T, std::min(4, 16 / kRun<T>)>;
template <class T>
using PartTile = Tile<T, 8>;

/// A tile stays in registers from its loads to its stores.
template <class T, class C, bool kProduct>
__global__ void __launch_bounds__(kRowThreads, 4) scan_tiles(const Memory<T, C> memory, const ScanPlan plan) {
  lorry::cuda::begin_programmatic();
  using Cell = Total<C>;
  using Tile = CarriedTile<T>;
  constexpr Fold kFold = kProduct ? Fold::prod : Fold::sum;
  constexpr int kV = Tile::kV, kBands = Tile::kBands;
  static_assert(Tile::kTotals <= 32);
  const Cell identity = fold_identity<Cell>(kFold);
  __shared__ Cell warp_totals[2][Tile::kTotals];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int64_t at[2];
  plan.line_indexer(blockIdx.x, at);

  Cell carry = identity;
  int turn = 0;
  for (int64_t base = 0; base < plan.length; base += Tile::kElements, turn ^= 1) {
    const Tile tile(memory.x + at[0] + base * plan.step_x, memory.out + at[1] + base * plan.step_out, plan,
                    plan.length - base);
    Run<T, kV> runs[kBands];
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
      const int first = Tile::first_of(b);
      runs[b] = tile.is_run(first) ? load_run<T, kV>(tile.x + first) : tile.elements(first, cast<T, Cell>(identity));
    }
    Cell cells[kBands][kV], before[kBands];
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
#pragma unroll
      for (int i = 0; i < kV; ++i) cells[b][i] = cast<C, T>(runs[b].at[i]);
#pragma unroll
      for (int i = 1; i < kV; ++i) cells[b][i] = fold_one<kFold>(cells[b][i - 1], cells[b][i]);
      const Cell scanned = scan_warp<kFold>(cells[b][kV - 1]);
      before[b] = before_lane<kFold>(scanned);
      if (lane == 31) warp_totals[turn][b * Tile::kWarps + warp] = scanned;
    }
    __syncthreads();  // the totals of the tile before last, in the same memory, have been read
    const Cell all = scan_warp<kFold>(lane < Tile::kTotals ? warp_totals[turn][lane] : identity);
    const Cell before_warp = before_lane<kFold>(all);
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
      const Cell from = __shfl_sync(0xffffffffu, before_warp, b * Tile::kWarps + warp);
      before[b] = fold_one<kFold>(fold_one<kFold>(carry, from), before[b]);
#pragma unroll
      for (int i = 0; i < kV; ++i) runs[b].at[i] = cast<T, Cell>(fold_one<kFold>(before[b], cells[b][i]));
      tile.store(Tile::first_of(b), runs[b]);
    }
    carry = fold_one<kFold>(carry, __shfl_sync(0xffffffffu, all, 31));
  }
}

// ---- parts ----------------------------------------------------------------------------------------------------------

/// Block `part * lines + line` scans a part of a line, which is one tile. The tile lies in shared memory from its loads
/// to its stores, so that many bytes are on their way at once, and each thread reads only what it copied.
// Long: one kernel, whose folds before each run stay in registers.
template <class T, class C, bool kProduct>
__global__ void __launch_bounds__(kRowThreads, 4)
    scan_parts(const Memory<T, C> memory, const ScanPlan plan, const PartTotals totals) {
  lorry::cuda::begin_programmatic();
  using Cell = Total<C>;
  using Tile = PartTile<T>;
  constexpr Fold kFold = kProduct ? Fold::prod : Fold::sum;
  constexpr int kV = Tile::kV, kBands = Tile::kBands, kEach = Tile::kTotals / 32;
  const Cell identity = fold_identity<Cell>(kFold);
  __shared__ uint4 copies[kBands][kRowThreads];
  __shared__ Cell before_warps[Tile::kTotals], before_part;
  const auto lines = static_cast<uint32_t>(plan.lines);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int part = static_cast<int>(blockIdx.x / lines);
  const int64_t line = blockIdx.x % lines, begin = part * int64_t{Tile::kElements};
  int64_t at[2];
  plan.line_indexer(line, at);
  const Tile tile(memory.x + at[0] + begin * plan.step_x, memory.out + at[1] + begin * plan.step_out, plan,
                  plan.length - begin);
  const auto copied = [&](int band) { return reinterpret_cast<T*>(&copies[band][threadIdx.x]); };

#pragma unroll
  for (int b = 0; b < kBands; ++b) {
    const int first = Tile::first_of(b);
    if (tile.is_run(first))
      start_copy(copied(b), tile.x + first);
    else
      store_run(copied(b), tile.elements(first, cast<T, Cell>(identity)));
    commit_copies();
  }
  Cell before[kBands];  // each run, in its warp
  const auto scan_band = [&]<int b>(std::integral_constant<int, b>) {
    wait_for_copies<kBands - 1 - b>();
    const Run<T, kV> run = load_run<T, kV>(copied(b));
    Cell cell = cast<C, T>(run.at[0]);
#pragma unroll
    for (int i = 1; i < kV; ++i) cell = fold_one<kFold>(cell, Cell(cast<C, T>(run.at[i])));
    const Cell scanned = scan_warp<kFold>(cell);
    before[b] = before_lane<kFold>(scanned);
    if (lane == 31) before_warps[b * Tile::kWarps + warp] = scanned;
  };
  [&]<int... b>(std::integer_sequence<int, b...>) { (scan_band(std::integral_constant<int, b>{}), ...); }
  (std::make_integer_sequence<int, kBands>{});
  __syncthreads();
  if (warp == 0) {
    Cell cells[kEach], cell = identity;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      cells[i] = cell;
      cell = fold_one<kFold>(cell, before_warps[lane * kEach + i]);
    }
    const Cell scanned = scan_warp<kFold>(cell), before_these = before_lane<kFold>(scanned);
#pragma unroll
    for (int i = 0; i < kEach; ++i) before_warps[lane * kEach + i] = fold_one<kFold>(before_these, cells[i]);
    const Cell before_this = totals.look_back<kFold>(line, part, __shfl_sync(0xffffffffu, scanned, 31));
    if (lane == 0) before_part = before_this;
  }
  __syncthreads();
#pragma unroll
  for (int b = 0; b < kBands; ++b) {
    Run<T, kV> run = load_run<T, kV>(copied(b));
    Cell cell = fold_one<kFold>(fold_one<kFold>(before_part, before_warps[b * Tile::kWarps + warp]), before[b]);
#pragma unroll
    for (int i = 0; i < kV; ++i) {
      cell = fold_one<kFold>(cell, Cell(cast<C, T>(run.at[i])));
      run.at[i] = cast<T, Cell>(cell);
    }
    tile.store(Tile::first_of(b), run);
  }
}

// ---- lines ----------------------------------------------------------------------------------------------------------

inline constexpr int kLineThreads = 128;
inline constexpr int kAhead = 8;  // elements loaded before they are combined

template <class T, class C>
__global__ void __launch_bounds__(kLineThreads)
    scan_lines(const Memory<T, C> memory, const ScanPlan plan, Phase phase, Total<C>* totals) {
  lorry::cuda::begin_programmatic();
  using Cell = Total<C>;
  const int64_t line = static_cast<int64_t>(blockIdx.x) * kLineThreads + threadIdx.x;
  if (line >= plan.lines) return;
  const int part = static_cast<int>(blockIdx.y);
  const int64_t begin = part * plan.chunk, end = min(plan.length, begin + plan.chunk);
  int64_t at[2];
  plan.line_indexer(line, at);
  Cell carry = Cell(plan.product ? 1 : 0);
  if (phase == Phase::outputs)
    for (int p = 0; p < part; ++p) carry = joined(plan.product, carry, totals[p * plan.lines + line]);
  const auto put = [&](int64_t k, C v) {
    carry = joined(plan.product, carry, Cell(v));
    if (phase != Phase::totals) memory.store(at[1] + k * plan.step_out, carry);
  };
  int64_t k = begin;
  for (; k + kAhead <= end; k += kAhead) {
    C v[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) v[i] = memory.load(at[0] + (k + i) * plan.step_x);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) put(k + i, v[i]);
  }
#pragma unroll 1
  for (; k < end; ++k) put(k, memory.load(at[0] + k * plan.step_x));
  if (phase == Phase::totals) totals[part * plan.lines + line] = carry;
}

// ---- launches -------------------------------------------------------------------------------------------------------

/// If `args.x` has few long lines.
template <class T, class C>
void scan_in_parts(const ScanArgs& args, const ScanPlan& plan, Stream stream) {
  const int64_t parts = ceil_div(plan.length, PartTile<T>::kElements);
  PartTotals totals(parts);
  const LaunchSlots slots(plan.lines * totals.per_line(), stream);
  totals.use(slots.get());
  const auto scan = plan.product ? scan_parts<T, C, true> : scan_parts<T, C, false>;
  lorry::cuda::launch(stream, {static_cast<unsigned>(plan.lines * parts), kRowThreads}, scan, Memory<T, C>(args), plan,
                      totals);
}

template <class T, class C>
void scan_in_tiles(const ScanArgs& args, const ScanPlan& plan, Stream stream) {
  if (plan.lines < kFewBlocks && plan.length > PartTile<T>::kElements) return scan_in_parts<T, C>(args, plan, stream);
  const auto scan = plan.product ? scan_tiles<T, C, true> : scan_tiles<T, C, false>;
  lorry::cuda::launch(stream, {static_cast<unsigned>(plan.lines), kRowThreads}, scan, Memory<T, C>(args), plan);
}

template <class T, class C>
void scan_as(const ScanArgs& args, const Iteration& lines, Stream stream) {
  const int64_t length = args.x.size(args.dim), count = lines.numel();
  ScanPlan plan{.lines = count,
                .length = length,
                .chunk = length,
                .step_x = args.x.stride(args.dim),
                .step_out = args.out.stride(args.dim),
                .lanes = 1,
                .parts = 1,
                .product = args.product,
                .line_indexer = WideIndexer<2>(lines)};
  // Lines that are adjacent in memory advance together, unless they are too few to keep the device busy.
  const bool side_by_side = lines.strides[0][0] == 1 && lines.sizes[0] >= 8 && plan.step_x != 1;
  unsigned grid;
  if (side_by_side) {
    constexpr int64_t kEnough = 1 << 18, kMost = 256, kWorth = 32;  // in threads, parts, and elements per part
    plan.chunk = ceil_div(length, std::clamp<int64_t>(std::min(kEnough / count, length / kWorth), 1, kMost));
    grid = static_cast<unsigned>(ceil_div(count, kLineThreads));
  } else {
    constexpr int64_t kV = Memory<T, C>::kV, kTile = kRowThreads * kV;
    plan.lanes = static_cast<int32_t>(std::min<int64_t>(32, power_above(ceil_div(length, kV))));
    if (length > 32 * kV * 8 || (length > 32 * kV && count < kFewBlocks)) plan.lanes = kRowThreads;
    if constexpr (!std::is_void_v<T>) {
      if (plan.lanes == kRowThreads) return scan_in_tiles<T, C>(args, plan, stream);
    }
    if (count < kFewBlocks && length > 4 * kTile)
      plan.chunk = ceil_div(ceil_div(length, ceil_div(kBlocks, count)), kTile) * kTile;
    grid = static_cast<unsigned>(ceil_div(count, kRowThreads / plan.lanes));
  }
  plan.parts = static_cast<int32_t>(ceil_div(length, plan.chunk));
  const auto run = [&](Phase phase, Total<C>* totals) {
    const dim3 blocks(grid, static_cast<unsigned>(plan.parts));
    if (side_by_side)
      lorry::cuda::launch(stream, {blocks, kLineThreads}, scan_lines<T, C>, Memory<T, C>(args), plan, phase, totals);
    else
      lorry::cuda::launch(stream, {blocks, kRowThreads}, scan_rows<T, C>, Memory<T, C>(args), plan, phase, totals);
  };
  if (plan.parts == 1) return run(Phase::whole, nullptr);
  const Scratch totals(plan.parts * count * static_cast<int64_t>(sizeof(Total<C>)), stream);
  run(Phase::totals, totals.as<Total<C>>());
  run(Phase::outputs, totals.as<Total<C>>());
}

}  // namespace

void scan(const ScanArgs& args, const Stream& stream) {
  Layout layouts[2] = {args.x.layout, args.out.layout};
  layouts[0].sizes[args.dim] = layouts[1].sizes[args.dim] = 1;
  const Iteration lines = collapse(layouts, 2);
  if (lines.numel() == 0 || args.x.size(args.dim) == 0) return;
  if (args.x.dtype == args.out.dtype && has_rows(args.x.dtype)) {
    return visit_rows(args.x.dtype, [&]<class T>(Type<T>) { scan_as<T, Accumulate<T>>(args, lines, stream); });
  }
  visit_compute(args.out.dtype, [&]<class C>(Type<C>) { scan_as<void, C>(args, lines, stream); });
}

}  // namespace lorry::kernels::cuda
