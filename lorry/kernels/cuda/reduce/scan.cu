// Running sums and products. Totals of f32 and narrower types are f64, as on the CPU; the order of operations depends
// on the shapes only.
//
//   tiles   a block scans a line, up to 64 bytes per thread at a time; the total is carried from tile to tile
//   rows    1 to 256 neighbouring threads scan a line, 16 bytes each at a time
//   lines   neighbouring lines are adjacent in memory: one thread per line, one element at a time
//
// If there are few long lines, each is split: a first launch computes the total of every part, a second starts each
// part with the fold of the totals before it. If a part is one tile, one launch does both: a block stores the total of
// its tile and waits for the totals before it, with the tile in registers. An f32 moves 8 bytes in one launch, 12 in
// two. The order of additions is the same.

#include "lorry/kernels/cuda/reduce/reduce_fold.h"

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
  // a block (rows) or a thread (lines) scans `chunk` elements of a line
  int64_t lines, length, chunk, step_x, step_out;
  int32_t lanes;  // threads per line
  int32_t parts;
  bool product;
  WideIndexer<2> line_indexer;

  void addresses(auto& visit) const { visit(); }
};

enum class Phase { whole, totals, parts, chained };

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

/// How the blocks of a chained launch wait for each other. A block takes the next part when it starts, so all parts
/// before it have started too.
struct Chain {
  uint32_t* counters;  ///< all zero: parts that have started, blocks that have finished, a bit per stored total

  void addresses(auto& visit) const { visit(counters); }
  static constexpr int64_t count(int64_t lines, int64_t parts) { return 2 + lines * ceil_div(parts, 32); }

#ifdef __CUDACC__
  /// The number of this block; one thread calls it.
  __device__ uint32_t start(uint32_t blocks) const { return atomicInc(&counters[0], blocks - 1); }
  __device__ uint32_t* stored(int64_t line, int parts) const { return counters + 2 + line * ((parts + 31) / 32); }
  /// One thread calls it, after it has stored the total.
  __device__ void store(int64_t line, int parts, int part) const {
    __threadfence();
    atomicOr(stored(line, parts) + part / 32, 1u << part % 32);
  }
  /// Waits until all totals of parts before `part` are stored. All threads call it.
  __device__ void wait(int64_t line, int parts, int part) const {
    if (threadIdx.x < 32) {
      const uint32_t* const words = stored(line, parts);
      for (int first = static_cast<int>(threadIdx.x) * 32; first < part; first += 32 * 32) {
        const uint32_t wanted = part - first >= 32 ? ~0u : (1u << (part - first)) - 1;
        uint32_t seen;
        do
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                       : "=r"(seen)
                       : "l"(__cvta_generic_to_global(words + first / 32))
                       : "memory");
        while ((seen & wanted) != wanted);
      }
    }
    __syncthreads();
  }
  /// Zeroes the counters when all blocks are done. All threads call it.
  __device__ void finish(uint32_t blocks, int64_t used) const {
    if (!is_last_block(&counters[1], blocks)) return;
    for (int64_t i = 2 + threadIdx.x; i < used; i += blockDim.x) counters[i] = 0;
  }
#endif
};

/// The fold of the totals of a line's parts before `part`. All threads of the block, which has one line, must call it.
template <class Cell>
__device__ Cell prefix_of(bool product, const Cell* totals, int64_t line, int parts, int part) {
  Cell cell = Cell(product ? 1 : 0), total;
  for (int p = static_cast<int>(threadIdx.x); p < part; p += kRowThreads)
    cell = joined(product, cell, __ldcg(&totals[line * parts + p]));  // other blocks may just have stored them
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
  if (phase == Phase::parts) carry = prefix_of(plan.product, totals, line, plan.parts, part);
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

template <class T>
inline constexpr int kTileElements = kRowThreads* kRun<T>* std::min(4, 16 / kRun<T>);

/// A tile is kBands bands of kRowThreads runs, so that memory is accessed in order. Each warp scans its part of every
/// band by shuffles, then adds the totals of all parts before it: one barrier per tile.
// Long: a tile stays in registers from its loads to its stores.
template <class T, class C, bool kProduct>
__global__ void __launch_bounds__(kRowThreads)
    scan_tiles(const Memory<T, C> memory, const ScanPlan plan, Phase phase, Total<C>* totals, const Chain chain) {
  lorry::cuda::begin_programmatic();
  using Cell = Total<C>;
  constexpr Fold kFold = kProduct ? Fold::prod : Fold::sum;
  constexpr int kV = kRun<T>, kBands = kTileElements<T> / (kRowThreads * kV), kWarps = kRowThreads / 32,
                kTotals = kBands * kWarps;
  static_assert(kTotals <= 32);
  const Cell identity = Cell(kProduct ? 1 : 0);
  __shared__ Cell warp_totals[2][kTotals];
  const uint32_t blocks = gridDim.x * gridDim.y;
  uint32_t number = blockIdx.y * gridDim.x + blockIdx.x;
  if (phase == Phase::chained) {
    __shared__ uint32_t started;
    if (threadIdx.x == 0) started = chain.start(blocks);
    __syncthreads();
    number = started;
  }
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32,
            part = static_cast<int>(number / gridDim.x);
  const int64_t line = number % gridDim.x, begin = part * plan.chunk, end = min(plan.length, begin + plan.chunk);
  int64_t at[2];
  plan.line_indexer(line, at);
  const T* const x = memory.x + at[0];
  T* const out = memory.out + at[1];
  const bool aligned = plan.step_x == 1 && reinterpret_cast<uintptr_t>(x + begin) % 16 == 0;
  const bool aligned_out = plan.step_out == 1 && reinterpret_cast<uintptr_t>(out + begin) % 16 == 0;
  const auto scan_warp = [&](Cell cell) {
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const Cell before = __shfl_up_sync(0xffffffffu, cell, offset);
      if (lane >= offset) cell = fold_one<kFold>(before, cell);
    }
    return cell;
  };
  const auto before_lane = [&](Cell scanned) {
    const Cell before = __shfl_up_sync(0xffffffffu, scanned, 1);
    return lane == 0 ? identity : before;
  };

  Cell carry = phase == Phase::parts ? prefix_of(kProduct, totals, line, plan.parts, part) : identity;
  int turn = 0;
  for (int64_t base = begin; base < end; base += kBands * kRowThreads * kV, turn ^= 1) {
    const int left = static_cast<int>(min(end - base, int64_t{kBands * kRowThreads * kV}));
    Run<T, kV> runs[kBands];
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
      const int first = (b * kRowThreads + thread) * kV;
      if (aligned && first + kV <= left) {
        runs[b] = load_run<T, kV>(x + base + first);
      } else {
#pragma unroll
        for (int i = 0; i < kV; ++i)
          runs[b].at[i] = first + i < left ? x[(base + first + i) * plan.step_x] : cast<T, Cell>(identity);
      }
    }
    Cell cells[kBands][kV], before[kBands];
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
#pragma unroll
      for (int i = 0; i < kV; ++i) cells[b][i] = cast<C, T>(runs[b].at[i]);
#pragma unroll
      for (int i = 1; i < kV; ++i) cells[b][i] = fold_one<kFold>(cells[b][i - 1], cells[b][i]);
      const Cell scanned = scan_warp(cells[b][kV - 1]);
      before[b] = before_lane(scanned);
      if (lane == 31) warp_totals[turn][b * kWarps + warp] = scanned;
    }
    __syncthreads();  // the totals of the tile before last, in the same memory, have been read
    const Cell all = scan_warp(lane < kTotals ? warp_totals[turn][lane] : identity), before_part = before_lane(all);
    if (phase == Phase::chained) {  // the only tile of the part
      const Cell total = fold_one<kFold>(carry, __shfl_sync(0xffffffffu, all, 31));
      if (thread == 0) {
        totals[line * plan.parts + part] = total;
        chain.store(line, plan.parts, part);
      }
      chain.wait(line, plan.parts, part);
      carry = prefix_of(kProduct, totals, line, plan.parts, part);
    }
#pragma unroll
    for (int b = 0; b < kBands; ++b)
      before[b] =
          fold_one<kFold>(fold_one<kFold>(carry, __shfl_sync(0xffffffffu, before_part, b * kWarps + warp)), before[b]);
    carry = fold_one<kFold>(carry, __shfl_sync(0xffffffffu, all, 31));
    if (phase == Phase::totals) continue;
#pragma unroll
    for (int b = 0; b < kBands; ++b) {
      const int first = (b * kRowThreads + thread) * kV;
#pragma unroll
      for (int i = 0; i < kV; ++i) runs[b].at[i] = cast<T, Cell>(fold_one<kFold>(before[b], cells[b][i]));
      if (aligned_out && first + kV <= left) {
        store_run(out + base + first, runs[b]);
      } else {
#pragma unroll
        for (int i = 0; i < kV; ++i)
          if (first + i < left) out[(base + first + i) * plan.step_out] = runs[b].at[i];
      }
    }
  }
  if (phase == Phase::totals && thread == 0) totals[line * plan.parts + part] = carry;
  if (phase == Phase::chained) chain.finish(blocks, Chain::count(plan.lines, plan.parts));
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
  if (phase == Phase::parts)
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
    if (count < kFewBlocks && length > 4 * kTile)
      plan.chunk = ceil_div(ceil_div(length, ceil_div(kBlocks, count)), kTile) * kTile;
    grid = static_cast<unsigned>(ceil_div(count, kRowThreads / plan.lanes));
  }
  plan.parts = static_cast<int32_t>(ceil_div(length, plan.chunk));
  const auto run = [&](Phase phase, Total<C>* totals, const Chain& chain = {}) {
    const dim3 blocks(grid, static_cast<unsigned>(plan.parts));
    if constexpr (!std::is_void_v<T>) {
      if (!side_by_side && plan.lanes == kRowThreads) {
        const auto tiles = plan.product ? scan_tiles<T, C, true> : scan_tiles<T, C, false>;
        return lorry::cuda::launch(stream, {blocks, kRowThreads}, tiles, Memory<T, C>(args), plan, phase, totals,
                                   chain);
      }
    }
    if (side_by_side) {
      lorry::cuda::launch(stream, {blocks, kLineThreads}, scan_lines<T, C>, Memory<T, C>(args), plan, phase, totals);
    } else {
      lorry::cuda::launch(stream, {blocks, kRowThreads}, scan_rows<T, C>, Memory<T, C>(args), plan, phase, totals);
    }
  };
  if (plan.parts == 1) return run(Phase::whole, nullptr);
  const Scratch totals(plan.parts * count * static_cast<int64_t>(sizeof(Total<C>)), stream);
  if constexpr (!std::is_void_v<T>) {
    if (!side_by_side && plan.lanes == kRowThreads && plan.chunk <= kTileElements<T>) {
      const Tickets counters(Chain::count(count, plan.parts), stream);
      return run(Phase::chained, totals.as<Total<C>>(), {counters.data()});
    }
  }
  run(Phase::totals, totals.as<Total<C>>());
  run(Phase::parts, totals.as<Total<C>>());
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
