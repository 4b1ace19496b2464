// Optimizer steps, norms and clipping over whole lists of tensors: see tensor_list.h for how a list reaches a kernel. The formulas
// are those of the CPU, and so are all bits, those of the norm included.
//
// Bytes an element, f32: AdamW 28 (16 read), with amsgrad 36; SGD 12, with momentum 20; norm 4; clip 8, and none when the factor is 1.
// In 16 bits AdamW moves 22 (12 read), with a master 28 (14 read).
// A tile of a step is 8,192 elements for 512 threads. Each has a run of 16 bytes of every array in flight, and two blocks a
// multiprocessor, 64 KB of AdamW's loads, are enough to keep the memory busy.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/element.h"
#include "lorry/kernels/cuda/scratch.h"
#include "lorry/kernels/cuda/table.h"
#include "lorry/kernels/cuda/tensor_list.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kTile = 8'192;
constexpr size_t kMostArguments = 32'764;  // bytes; CUDA 12.1 and later

// ---- steps -----------------------------------------------------------------------------------------------------------

/// Different hyper-parameters in one launch: parameter groups, of which there are few.
constexpr int kMostHypers = 8;

template <int kStates>
struct StepEntry {
  void* param;
  const void* grad;
  void* states[kStates > 0 ? kStates : 1];
  int64_t count;
  float* master;
  uint32_t first_tile;
  uint8_t head, hyper;
};

template <int kStates, class Hyper, int kCapacity>
struct StepList {
  Hyper hypers[kMostHypers];
  const double* grad_factor;  // null: 1
  int count;
  StepEntry<kStates> entries[kCapacity];
};

/// Steps N elements that start at `i`, moving each array's as one access. `values` is the parameter itself or
/// its master.
template <int N, class Rule, class T, class Value, class Hyper>
__device__ __forceinline__ void step_run(T* param, Value* values, const T* grad, Accumulate<T>* const* states, int i, const Hyper& hyper,
                                         Accumulate<T> factor) {
  using C = Accumulate<T>;
  constexpr int kStates = Rule::kStates;
  constexpr bool kMaster = !std::is_same_v<Value, T>;
  Run<Value, N> v = load_run<Value, N>(values + i);
  const auto g = load_run<T, N>(grad + i);
  Run<C, N> s[kStates > 0 ? kStates : 1];
#pragma unroll
  for (int k = 0; k < kStates; ++k) s[k] = load_run<C, N>(states[k] + i);
#pragma unroll
  for (int e = 0; e < N; ++e) {
    C value = static_cast<C>(v.at[e]), own[3];
#pragma unroll
    for (int k = 0; k < kStates; ++k) own[k] = s[k].at[e];
    Rule()(value, static_cast<C>(g.at[e]) * factor, own, hyper);
    v.at[e] = Value(value);
#pragma unroll
    for (int k = 0; k < kStates; ++k) s[k].at[e] = own[k];
  }
  store_run(values + i, v);
  if constexpr (kMaster) {
    Run<T, N> p;
#pragma unroll
    for (int e = 0; e < N; ++e) p.at[e] = T(v.at[e]);
    store_run(param + i, p);
  }
#pragma unroll
  for (int k = 0; k < kStates; ++k) store_run(states[k] + i, s[k]);
}

template <class Rule, class T, class Hyper, int kCapacity>
__global__ void __launch_bounds__(kThreads, 2) step(const __grid_constant__ StepList<Rule::kStates, Hyper, kCapacity> list) {
  using C = Accumulate<T>;
  constexpr int kLength = kRun<C>;
  const auto& entry = list.entries[entry_of(list.entries, list.count, blockIdx.x)];
  const Hyper hyper = list.hypers[entry.hyper];
  const Tile tile = tile_at<kTile, kLength>(blockIdx.x - entry.first_tile, entry.count, entry.head);
  T* const param = static_cast<T*>(entry.param) + tile.first;
  const T* const grad = static_cast<const T*>(entry.grad) + tile.first;
  C* states[3] = {};
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k) states[k] = static_cast<C*>(entry.states[k]) + tile.first;
  const double by = list.grad_factor ? *list.grad_factor : 1;
  if (by != by) return;
  const C factor = static_cast<C>(by);
  const int thread = static_cast<int>(threadIdx.x);
  const auto step_tile = [&](auto* values) {
    for (int i = thread; i < tile.runs; i += kThreads) step_run<1, Rule>(param, values, grad, states, i, hyper, factor);
    for (int i = tile.runs + thread * kLength; i < tile.rest; i += kThreads * kLength) step_run<kLength, Rule>(param, values, grad, states, i, hyper, factor);
    for (int i = tile.rest + thread; i < tile.count; i += kThreads) step_run<1, Rule>(param, values, grad, states, i, hyper, factor);
  };
  if constexpr (kHalf<T>)
    if (entry.master) return step_tile(entry.master + tile.first);
  step_tile(param);
}

/// The number of elements before all arrays of a parameter lie on a boundary for runs.
template <class T>
uint8_t head_of(const OptimTensor& x, int states) {
  using C = Accumulate<T>;
  constexpr int kLength = kRun<C>;
  int head = join_head(kAnyHead, x.param, sizeof(T), kLength * sizeof(T));
  head = join_head(head, x.grad, sizeof(T), kLength * sizeof(T));
  for (int k = 0; k < states; ++k) head = join_head(head, x.states[k], sizeof(C), kLength * sizeof(C));
  if (x.master) head = join_head(head, x.master, sizeof(C), kLength * sizeof(C));
  return static_cast<uint8_t>(head);
}

/// Launches one list of the tensors from `next` on and returns the first tensor that it does not hold.
template <class Rule, class T, int kCapacity, template <class> class Hyper>
size_t step_some(std::span<const OptimTensor> tensors, std::span<const Hyper<double>> hypers, const double* grad_factor, size_t next, const Stream& stream) {
  using C = Accumulate<T>;
  using List = StepList<Rule::kStates, Hyper<C>, kCapacity>;
  static_assert(sizeof(List) <= kMostArguments);
  List list;
  list.count = 0;
  list.grad_factor = grad_factor;
  size_t distinct[kMostHypers];  // where each of the list's hyper-parameters first stood
  int known = 0, hyper = 0;
  int64_t tiles = 0;
  for (; next < tensors.size() && list.count < kCapacity; ++next) {
    const OptimTensor& x = tensors[next];
    if (x.count == 0) continue;
    if (known == 0 || !(hypers[distinct[hyper]] == hypers[next])) {
      for (hyper = 0; hyper < known; ++hyper)
        if (hypers[distinct[hyper]] == hypers[next]) break;
      if (hyper == kMostHypers) break;
      if (hyper == known) {
        list.hypers[known] = hypers[next].template as<C>();
        distinct[known++] = next;
      }
    }
    const uint8_t head = head_of<T>(x, Rule::kStates);
    StepEntry<Rule::kStates>& entry = list.entries[list.count++];
    entry = {.param = x.param,
             .grad = x.grad,
             .states = {},
             .count = x.count,
             .master = static_cast<float*>(x.master),
             .first_tile = static_cast<uint32_t>(tiles),
             .head = head,
             .hyper = static_cast<uint8_t>(hyper)};
    for (int k = 0; k < Rule::kStates; ++k) entry.states[k] = x.states[k];
    tiles += tiles_of<kTile>(x.count, head);
  }
  if (tiles > 0) lorry::cuda::launch(stream, {static_cast<unsigned>(tiles), kThreads}, step<Rule, T, Hyper<C>, kCapacity>, list);
  return next;
}

template <class Rule, template <class> class Hyper>
void step_all(DType dtype, std::span<const OptimTensor> tensors, std::span<const Hyper<double>> hypers, const double* grad_factor, const Stream& stream) {
  visit_floating(dtype, "optimizer step", [&]<class T>(Type<T>) {
    for (size_t next = 0; next < tensors.size();)
      next = (tensors.size() - next <= kShortList ? step_some<Rule, T, kShortList, Hyper> : step_some<Rule, T, kLongList, Hyper>)(tensors, hypers, grad_factor,
                                                                                                                                  next, stream);
  });
}

void adamw(const AdamWArgs& args, const Stream& stream) {
  using namespace formula;
  (args.amsgrad ? step_all<AdamW<true>, AdamWHyper> : step_all<AdamW<false>, AdamWHyper>)(args.dtype, args.tensors, args.hypers, args.grad_factor, stream);
}

void sgd(const SgdArgs& args, const Stream& stream) {
  using namespace formula;
  (args.momentum ? step_all<Sgd<true>, SgdHyper> : step_all<Sgd<false>, SgdHyper>)(args.dtype, args.tensors, args.hypers, args.grad_factor, stream);
}

// ---- lists of any floating dtypes ------------------------------------------------------------------------------------

struct Entry {
  void* data;
  int64_t count;
  uint32_t first_tile;
  DType dtype;
  uint8_t head;
};

template <int kCapacity>
struct List {
  uint32_t tiles;
  int count;
  Entry entries[kCapacity];
};

/// Appends a tensor's tiles of kElements.
template <int kElements, int kCapacity>
void append(List<kCapacity>& list, const ListTensor& x, uint8_t head) {
  list.entries[list.count++] = {x.data, x.count, list.tiles, x.dtype, head};
  list.tiles += static_cast<uint32_t>(tiles_of<kElements>(x.count, head));
}

/// Calls launch(list) for lists that hold all the tensors with elements, in order.
template <int kElements, class Head, class Launch>
void for_each_list(std::span<const ListTensor> tensors, const Head& head, const Launch& launch) {
  const auto some = [&]<int kCapacity>(size_t next, std::integral_constant<int, kCapacity>) {
    List<kCapacity> list;
    list.tiles = 0, list.count = 0;
    for (; next < tensors.size() && list.count < kCapacity; ++next)
      if (tensors[next].count > 0) append<kElements>(list, tensors[next], head(tensors[next]));
    if (list.tiles > 0) launch(list);
    return next;
  };
  for (size_t next = 0; next < tensors.size();)
    next = tensors.size() - next <= kShortList ? some(next, std::integral_constant<int, kShortList>()) : some(next, std::integral_constant<int, kLongList>());
}

/// Calls f with a null T* of a floating dtype.
template <class F>
__device__ __forceinline__ void with_floating(DType dtype, const F& f) {
  switch (dtype) {
    case kF16:
      return f(static_cast<Float16*>(nullptr));
    case kBF16:
      return f(static_cast<BFloat16*>(nullptr));
    case kF32:
      return f(static_cast<float*>(nullptr));
    default:
      return f(static_cast<double*>(nullptr));
  }
}

// ---- norms -----------------------------------------------------------------------------------------------------------

// The order of additions is that of kernels/cpu/optim.cpp: tiles of 1,024 elements, in each 16 sums of every 16th element, which
// are joined in halves; the tiles' sums are treated in the same way until one is left. Sixteen threads make a tile's sums.

constexpr int kNormTile = 1'024, kSums = 16, kNormThreads = 256, kTilesABlock = kNormThreads / kSums;

template <Norm kNorm, class T>
__device__ __forceinline__ double fold(double total, T element) {
  const double x = static_cast<double>(static_cast<Accumulate<T>>(element));
  if constexpr (kNorm == Norm::one) return total + fabs(x);
  if constexpr (kNorm == Norm::two) return sizeof(T) < 8 ? fma(x, x, total) : total + x * x;  // the square of an f32 is exact in f64
  const double size = fabs(x);
  return size > total || size != size ? size : total;
}

template <Norm kNorm>
__device__ __forceinline__ double join(double a, double b) {
  if constexpr (kNorm != Norm::inf) return a + b;
  return b > a || b != b ? b : a;
}

template <Norm kNorm, int kCapacity>
__global__ void __launch_bounds__(kNormThreads) fold_tiles(const __grid_constant__ List<kCapacity> list, double* sums, bool root) {
  const uint32_t first = blockIdx.x * kTilesABlock, tile = first + threadIdx.x / kSums;
  const int lane = static_cast<int>(threadIdx.x % kSums);
  double total = 0;
  if (tile < list.tiles) {
    int at = entry_of(list.entries, list.count, first);
    while (at + 1 < list.count && list.entries[at + 1].first_tile <= tile) ++at;
    const Entry& entry = list.entries[at];
    const int64_t begin = int64_t{tile - entry.first_tile} * kNormTile, left = entry.count - begin;
    const int count = left < kNormTile ? static_cast<int>(left) : kNormTile;
    with_floating(entry.dtype, [&]<class T>(T*) {
      constexpr int kFlight = 16;  // loads
      const T* const x = static_cast<const T*>(entry.data) + begin;
      int i = lane;
      for (; i + (kFlight - 1) * kSums < count; i += kFlight * kSums) {
        T loaded[kFlight];
#pragma unroll
        for (int k = 0; k < kFlight; ++k) loaded[k] = x[i + k * kSums];
#pragma unroll
        for (int k = 0; k < kFlight; ++k) total = fold<kNorm>(total, loaded[k]);
      }
      for (; i < count; i += kSums) total = fold<kNorm>(total, x[i]);
    });
  }
#pragma unroll
  for (int half = kSums / 2; half > 0; half /= 2) total = join<kNorm>(total, __shfl_down_sync(0xffffffffu, total, half, kSums));
  if (lane == 0 && tile < list.tiles) sums[tile] = root ? sqrt(total) : total;
}

template <Norm kNorm>
void norm_of(const ListNormArgs& args, const Stream& stream) {
  constexpr bool kRoot = kNorm == Norm::two;
  const auto fold_list = [&]<Norm kFold, int kCapacity>(const List<kCapacity>& list, double* sums, bool last, std::integral_constant<Norm, kFold>) {
    lorry::cuda::launch(stream, {(list.tiles + kTilesABlock - 1) / kTilesABlock, kNormThreads}, fold_tiles<kFold, kCapacity>, list, sums, kRoot && last);
  };
  const auto fewer = [](int64_t n) { return (n + kNormTile - 1) / kNormTile; };
  int64_t tiles = 0;
  for (const ListTensor& x : args.tensors) tiles += fewer(x.count);
  // The sums of every level beside each other; the last level is the total.
  int64_t room = 0;
  for (int64_t n = tiles; n > 1; n = fewer(n)) room += n;
  const Scratch memory(room * int64_t{sizeof(double)}, stream);
  double* sums = tiles > 1 ? memory.as<double>() : args.total;
  int64_t done = 0;
  for_each_list<kNormTile>(
      args.tensors, [](const ListTensor&) { return kNoHead; },
      [&](const auto& list) {
        fold_list(list, sums + done, tiles == 1, std::integral_constant<Norm, kNorm>());
        done += list.tiles;
      });
  // Sums are not negative, so the sum of their sizes is their sum. Without any elements the only level is one empty tile.
  for (int64_t n = tiles; n != 1; n = fewer(n)) {
    List<1> list;
    list.tiles = 0, list.count = 0;
    append<kNormTile>(list, {sums, n, kF64}, kNoHead);
    double* const next = n <= kNormTile ? args.total : sums + n;
    fold_list(list, next, n <= kNormTile, std::integral_constant < Norm, kNorm == Norm::inf ? Norm::inf : Norm::one > ());
    sums = next;
    if (n == 0) break;
  }
}

void norm(const ListNormArgs& args, const Stream& stream) {
  switch (args.norm) {
    case Norm::one:
      return norm_of<Norm::one>(args, stream);
    case Norm::two:
      return norm_of<Norm::two>(args, stream);
    case Norm::inf:
      return norm_of<Norm::inf>(args, stream);
  }
}

// ---- clipping --------------------------------------------------------------------------------------------------------

/// A block takes several tiles, so that a launch that has nothing to do is short.
template <int kCapacity>
__global__ void __launch_bounds__(kThreads, 2) clip_tiles(const __grid_constant__ List<kCapacity> list, const double* total, double max_norm) {
  const double factor = max_norm / (*total + 1e-6);
  if (factor >= 1) return;  // a NaN goes on and reaches every gradient
  const int thread = static_cast<int>(threadIdx.x);
  for (uint32_t at = blockIdx.x; at < list.tiles; at += gridDim.x) {
    const Entry& entry = list.entries[entry_of(list.entries, list.count, at)];
    with_floating(entry.dtype, [&]<class T>(T*) {
      using C = Accumulate<T>;
      constexpr int kLength = kRun<T>, kFlight = kLength > 4 ? 2 : 4;  // a tile of 16-bit elements is two runs a thread
      const Tile tile = tile_at<kTile, kLength>(at - entry.first_tile, entry.count, entry.head);
      T* const x = static_cast<T*>(entry.data) + tile.first;
      const C by = static_cast<C>(factor);
      const auto scale = [&](T& element) { element = T(static_cast<C>(element) * by); };
      for (int i = thread; i < tile.runs; i += kThreads) scale(x[i]);
      for (int i = tile.runs + thread * kLength; i < tile.rest; i += kFlight * kThreads * kLength) {
        Run<T, kLength> runs[kFlight];
#pragma unroll
        for (int k = 0; k < kFlight; ++k)
          if (const int j = i + k * kThreads * kLength; j < tile.rest) runs[k] = load_run<T, kLength>(x + j);
#pragma unroll
        for (int k = 0; k < kFlight; ++k) {
          const int j = i + k * kThreads * kLength;
          if (j >= tile.rest) break;
#pragma unroll
          for (int e = 0; e < kLength; ++e) scale(runs[k].at[e]);
          store_run(x + j, runs[k]);
        }
      }
      for (int i = tile.rest + thread; i < tile.count; i += kThreads) scale(x[i]);
    });
  }
}

void clip(const ListClipArgs& args, const Stream& stream) {
  const auto head = [](const ListTensor& x) { return static_cast<uint8_t>(join_head(kAnyHead, x.data, static_cast<int>(size_of(x.dtype)), 16)); };
  for_each_list<kTile>(args.tensors, head, [&]<int kCapacity>(const List<kCapacity>& list) {
    const unsigned grid = lorry::cuda::blocks_for(int64_t{list.tiles} * kThreads, kThreads, stream.device.index, 4);
    lorry::cuda::launch(stream, {grid, kThreads}, clip_tiles<kCapacity>, list, args.total, args.max_norm);
  });
}

}  // namespace

const OptimKernels& optim_kernels() {
  static constexpr OptimKernels kKernels{.adamw = adamw, .sgd = sgd, .norm = norm, .clip = clip};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
