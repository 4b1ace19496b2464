// Random fills. A thread computes whole Philox blocks of four words and makes as many elements as fill 16 bytes, so
// that a warp stores whole cache lines. The words of an element depend on its index only. Written: the elements. Read:
// nothing, except for dropout and bernoulli_each. A Philox block takes about 28 instructions and an f32 normal about 20
// more, 27 per element in all: uniforms are bound by memory, normals by arithmetic.

#include <algorithm>
#include <cmath>
#include <limits>

#include "lorry/device/cuda/launch.h"
#include "lorry/formula/random.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

using formula::Draw;
using formula::Words4;

constexpr int kThreads = 256;
/// Blocks of `fill` per multiprocessor. With 64 registers a thread holds the words of several turns at once, which uses
/// the arithmetic units better than more threads do (74 us instead of 87 for 64 M normals).
constexpr int kBlocksEach = 4;

/// The number of elements made from one block of four words.
template <class T, int kCount>
struct Made {
  T at[kCount];
};

/// The number of elements that a thread makes at a time: 16 bytes, or the elements of one block if these are more.
template <class T, int kWordsEach>
constexpr int kGroup = kRun<T> > 4 / kWordsEach ? kRun<T> : 4 / kWordsEach;

/// Stores a group, of which only the first `count` elements are in the array.
template <class T, int kCount>
__device__ __forceinline__ void store_group(T* to, const T (&values)[kCount], int64_t count, bool aligned) {
  constexpr int kAtOnce = kCount < kRun<T> ? kCount : kRun<T>;
  if (aligned && count >= kCount) {
#pragma unroll
    for (int i = 0; i < kCount; i += kAtOnce) {
      Run<T, kAtOnce> run;
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) run.at[k] = values[i + k];
      store_run(to + i, run);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i < count) to[i] = values[i];
  }
}

template <class T, int kCount>
__device__ __forceinline__ void load_group(const T* from, T (&values)[kCount], int64_t count, bool aligned) {
  constexpr int kAtOnce = kCount < kRun<T> ? kCount : kRun<T>;
  if (aligned && count >= kCount) {
#pragma unroll
    for (int i = 0; i < kCount; i += kAtOnce) {
      const auto run = load_run<T, kAtOnce>(from + i);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) values[i + k] = run.at[k];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = i < count ? from[i] : T(0);
  }
}

/// A draw, as an argument of kernels. Either it is prepared on the host and read from parameter memory at no cost; or a
/// state on the device completes its key, and each thread prepares it.
struct GivenDraw {
  Draw draw;
  const formula::RandomState* state;

  explicit GivenDraw(const RandomKey& key) : draw(key), state(key.state) {}
  void addresses(auto& visit) const { visit(state); }
  template <class Use>
  __device__ __forceinline__ void operator()(const Use& use) const {
    if (state == nullptr) return use(draw);
    use(Draw(RandomKey{0, draw.offset, state}.load()));
  }
};

/// The groups that a thread makes per turn: enough to make the cost of computing their position small.
constexpr int kTurn = 4;

/// out[i] = make(words of element i). A turn of a block of threads is a tile. Within a tile the upper half of the
/// Philox block number is constant, and the part of Philox that depends on it alone is computed once per tile.
/// Incomplete tiles have a loop of their own: a branch in the main loop costs 5 %.
template <class T, int kWordsEach, class Make>
__device__ __forceinline__ void fill_by(T* out, int64_t n, bool aligned, const Draw& draw, const Make& make) {
  constexpr int kEach = 4 / kWordsEach, kElements = kGroup<T, kWordsEach>, kBlocks = kElements / kEach,
                kTile = kTurn * kThreads * kElements;
  const auto make_group = [&](int64_t tile, int group, T(&to)[kElements]) {
    const uint64_t block = static_cast<uint64_t>(tile) / kEach;
    const auto high = static_cast<uint32_t>(block >> 32), low = static_cast<uint32_t>(block);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const Made<T, kEach> made =
          make(formula::random_block(draw, high, low + static_cast<uint32_t>(group * kBlocks + b)));
#pragma unroll
      for (int k = 0; k < kEach; ++k) to[b * kEach + k] = made.at[k];
    }
  };
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t step = int64_t{gridDim.x} * kTile;
  int64_t tile = int64_t{blockIdx.x} * kTile;
  for (; aligned && tile + kTile <= n; tile += step) {
#pragma unroll
    for (int turn = 0; turn < kTurn; ++turn) {
      const int group = turn * kThreads + thread;
      T made[kElements];
      make_group(tile, group, made);
      store_group(out + tile + group * kElements, made, kElements, true);
    }
  }
  for (; tile < n; tile += step) {
#pragma unroll 1
    for (int group = thread; group < kTurn * kThreads && tile + group * kElements < n; group += kThreads) {
      T made[kElements];
      make_group(tile, group, made);
      store_group(out + tile + group * kElements, made, n - tile - group * kElements, false);
    }
  }
}

template <class T, int kWordsEach, class Make>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    fill(T* out, int64_t n, bool aligned, const __grid_constant__ GivenDraw given, const Make make) {
  lorry::cuda::begin_programmatic();
  given([&](const Draw& draw) { fill_by<T, kWordsEach>(out, n, aligned, draw, make); });
}

template <class T, int kWordsEach, class Make>
void launch_fill(const Array& out, RandomKey key, Stream stream, const Make& make) {
  const int64_t n = out.numel();
  if (n == 0) return;
  constexpr int kTile = kTurn * kThreads * kGroup<T, kWordsEach>;
  const int64_t most = int64_t{lorry::cuda::properties(stream.device.index).multiprocessors} * kBlocksEach;
  const auto grid = static_cast<unsigned>(std::min((n + kTile - 1) / kTile, most));
  lorry::cuda::launch(stream, {grid, kThreads}, fill<T, kWordsEach, Make>, out.as<T>(), n, aligned16(out.data),
                      GivenDraw(key), make);
}

// ---- uniform and normal ---------------------------------------------------------------------------------------------

template <class T>
struct MakeUniform {
  T low, range, high;
  void addresses(auto& visit) const { visit(); }
  __device__ Made<T, 16 / sizeof(T)> operator()(const Words4& w) const {
    if constexpr (sizeof(T) == 4) {
      Made<T, 4> made;
      for (int k = 0; k < 4; ++k) made.at[k] = formula::stretch(formula::unit_f32(w.word[k]), low, range, high);
      return made;
    } else {
      Made<T, 2> made;
      for (int k = 0; k < 2; ++k)
        made.at[k] = formula::stretch(formula::unit_f64(w.word[2 * k], w.word[2 * k + 1]), low, range, high);
      return made;
    }
  }
};

/// Computed in f32 from as many random digits as T has, then rounded.
template <class T>
struct MakeUniformHalf {
  float low, range, high;
  __device__ Made<T, 4> operator()(const Words4& w) const {
    constexpr int kDigits = std::numeric_limits<T>::digits;
    Made<T, 4> made;
    for (int k = 0; k < 4; ++k) {
      const T value(formula::unit_of_digits<kDigits>(w.word[k]) * range + low);
      made.at[k] = static_cast<float>(value) < high ? value : T(low);
    }
    return made;
  }
};

void uniform(const Array& out, RandomKey key, double low, double high, Stream stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    const C from = static_cast<C>(low), to = static_cast<C>(high);
    if constexpr (kNarrowType<T>) {
      launch_fill<T, 1>(out, key, stream, MakeUniformHalf<T>{from, to - from, to});
    } else {
      launch_fill<T, sizeof(T) / 4>(out, key, stream, MakeUniform<T>{from, to - from, to});
    }
  });
}

/// T is the stored type; the pair of normals is computed in C.
template <class T, class C>
struct MakeNormal {
  C mean, std;
  void addresses(auto& visit) const { visit(); }
  __device__ Made<T, 16 / sizeof(C)> operator()(const Words4& w) const {
    Made<T, 16 / sizeof(C)> made;
    if constexpr (sizeof(C) == 4) {
      for (int k = 0; k < 4; k += 2) {
        const auto z = formula::normal_pair(w.word[k], w.word[k + 1], mean, std);
        made.at[k] = T(z.first);
        made.at[k + 1] = T(z.second);
      }
    } else {
      const auto z = formula::normal_pair(static_cast<uint64_t>(w.word[1]) << 32 | w.word[0],
                                          static_cast<uint64_t>(w.word[3]) << 32 | w.word[2], mean, std);
      made.at[0] = z.first;
      made.at[1] = z.second;
    }
    return made;
  }
};

void normal(const Array& out, RandomKey key, double mean, double std, Stream stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    using C = Accumulate<T>;
    launch_fill<T, sizeof(C) / 4>(out, key, stream, MakeNormal<T, C>{static_cast<C>(mean), static_cast<C>(std)});
  });
}

// ---- whole numbers --------------------------------------------------------------------------------------------------

template <class T>
struct MakeInteger {
  int64_t low;
  uint64_t range;
  void addresses(auto& visit) const { visit(); }
  __device__ Made<Stored<T>, 2> operator()(const Words4& w) const {
    Made<Stored<T>, 2> made;
    for (int k = 0; k < 2; ++k) {
      const uint64_t word = static_cast<uint64_t>(w.word[2 * k + 1]) << 32 | w.word[2 * k];
      made.at[k] = cast<T, int64_t>(static_cast<int64_t>(static_cast<uint64_t>(low) + formula::below(word, range)));
    }
    return made;
  }
};

void integers(const Array& out, RandomKey key, int64_t low, uint64_t range, Stream stream) {
  visit(out.dtype, [&]<class T>(Type<T>) { launch_fill<Stored<T>, 2>(out, key, stream, MakeInteger<T>{low, range}); });
}

// ---- coins ----------------------------------------------------------------------------------------------------------

/// Calls f with an unsigned type of the element's size and the bits of 1 in the dtype. The bits of 0 are 0 in every
/// dtype.
template <class F>
void visit_coin(DType dtype, const F& f) {
  visit(dtype, [&]<class T>(Type<T>) { f(std::bit_cast<BitsOf<T>>(T(static_cast<Accumulate<T>>(1)))); });
}

/// The number of words that give 1: words below ceil(p 2^32), which may be 2^32.
uint64_t threshold_of(double p) { return static_cast<uint64_t>(std::ceil(p * 0x1p32)); }

template <class Bits>
struct MakeCoin {
  uint64_t threshold;
  Bits one;
  void addresses(auto& visit) const { visit(); }
  __device__ Made<Bits, 4> operator()(const Words4& w) const {
    Made<Bits, 4> made;
    for (int k = 0; k < 4; ++k) made.at[k] = w.word[k] < threshold ? one : Bits(0);
    return made;
  }
};

void bernoulli(const Array& out, RandomKey key, double p, Stream stream) {
  visit_coin(out.dtype, [&]<class Bits>(Bits one) {
    launch_fill<Bits, 1>(out, key, stream, MakeCoin<Bits>{threshold_of(p), one});
  });
}

template <class P, class Bits>
__device__ __forceinline__ void draw_each_by(Bits* out, const P* chances, int64_t n, bool aligned, Bits one,
                                             const Draw& draw, const lorry::cuda::AssertSite& site) {
  const int64_t groups = (n + 3) / 4;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < groups;
       group += int64_t{gridDim.x} * kThreads) {
    P p[4];
    Bits values[4];
    load_group(chances + group * 4, p, n - group * 4, aligned);
    const Words4 words = formula::random_block(draw, static_cast<uint64_t>(group));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const double chance = static_cast<double>(p[k]);
      const bool good = chance >= 0 && chance <= 1;
      if (!good) site.report(lorry::cuda::DeviceAssert::probability, __double_as_longlong(chance), 0, 0);
      values[k] = good && static_cast<double>(words.word[k]) < ceil(chance * 0x1p32) ? one : Bits(0);
    }
    store_group(out + group * 4, values, n - group * 4, aligned);
  }
}

template <class P, class Bits>
__global__ void __launch_bounds__(kThreads)
    draw_each(Bits* out, const P* chances, int64_t n, bool aligned, Bits one, const __grid_constant__ GivenDraw given,
              lorry::cuda::AssertSite site) {
  lorry::cuda::begin_programmatic();
  given([&](const Draw& draw) { draw_each_by(out, chances, n, aligned, one, draw, site); });
}

/// Reads and writes each element once; a thread has four.
bool bernoulli_each(const Array& out, const Array& p, RandomKey key, Stream stream) {
  visit_floating(p.dtype, [&]<class P>(Type<P>) {
    visit_coin(out.dtype, [&]<class Bits>(Bits one) {
      const int64_t n = out.numel();
      if (n == 0) return;
      const unsigned grid = lorry::cuda::blocks_for((n + 3) / 4, kThreads, stream.device.index);
      lorry::cuda::launch(stream, {grid, kThreads}, draw_each<P, Bits>, out.as<Bits>(), p.as<const P>(), n,
                          aligned16(out.data) && aligned16(p.data), one, GivenDraw(key),
                          lorry::cuda::AssertSite(stream.device.index, "bernoulli"));
    });
  });
  return true;
}

// ---- dropout --------------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ void drop_by(T* out, uint8_t* mask, const T* x, int64_t n, bool aligned, const Draw& draw,
                                        uint64_t threshold, Accumulate<T> factor) {
  constexpr int kElements = kGroup<T, 1>;
  const int64_t groups = (n + kElements - 1) / kElements;
  for (int64_t group = int64_t{blockIdx.x} * kThreads + threadIdx.x; group < groups;
       group += int64_t{gridDim.x} * kThreads) {
    T values[kElements];
    uint8_t mask_group[kElements];
    const int64_t first = group * kElements, count = n - first;
    load_group(x + first, values, count, aligned);
#pragma unroll
    for (int b = 0; b < kElements / 4; ++b) {
      const Words4 words = formula::random_block(draw, static_cast<uint64_t>(group * (kElements / 4) + b));
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int i = b * 4 + k;
        mask_group[i] = words.word[k] < threshold;
        values[i] = mask_group[i] != 0 ? T(static_cast<Accumulate<T>>(values[i]) * factor) : T(0);
      }
    }
    store_group(mask + first, mask_group, count, aligned);
    store_group(out + first, values, count, aligned);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    drop(T* out, uint8_t* mask, const T* x, int64_t n, bool aligned, const __grid_constant__ GivenDraw given,
         uint64_t threshold, Accumulate<T> factor) {
  lorry::cuda::begin_programmatic();
  given([&](const Draw& draw) { drop_by(out, mask, x, n, aligned, draw, threshold, factor); });
}

/// Reads each element; writes each element and its mask byte.
void dropout(const Array& out, const Array& mask, const Array& x, RandomKey key, double keep, double scale,
             Stream stream) {
  visit_floating(out.dtype, [&]<class T>(Type<T>) {
    const int64_t n = out.numel();
    if (n == 0) return;
    const unsigned grid = lorry::cuda::blocks_for((n + kGroup<T, 1> - 1) / kGroup<T, 1>, kThreads, stream.device.index);
    lorry::cuda::launch(stream, {grid, kThreads}, drop<T>, out.as<T>(), mask.as<uint8_t>(), x.as<const T>(), n,
                        aligned16(out.data) && aligned16(mask.data) && aligned16(x.data), GivenDraw(key),
                        threshold_of(keep), static_cast<Accumulate<T>>(scale));
  });
}

}  // namespace

// Defined in sampling.cu.
void permutation(const Array& out, RandomKey key, Stream stream);
void multinomial(const Array& out, const Array& weights, bool replacement, RandomKey key, Stream stream);

const RandomKernels& random_kernels() {
  static constexpr RandomKernels kKernels = {uniform,        normal,  integers,    bernoulli,
                                             bernoulli_each, dropout, permutation, multinomial};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
