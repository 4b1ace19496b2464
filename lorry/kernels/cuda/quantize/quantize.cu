// Floating elements as codes of one byte, and back. Bytes per element: those of the element and 1 of its code; a
// block's scale is 1 / 64 byte more.
//
// Codes with scales of channels: a warp has 2048 neighbouring elements of a row, which share a scale or, where
// neighbours are channels, have one each. It goes through them in runs of four elements per lane: 16 bytes of f32, and
// one word of codes. Rows that do not begin at a multiple of a run are read element by element.
//
// Block-wise codes: a warp has a block of 256 elements. A lane has two runs of four elements, 128 elements apart; the
// block's scale is found by one reduction over the warp.

#include "lorry/kernels/quantize.h"

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/formula/codes.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarpSize = 32, kEach = 4, kTile = 2048, kBlock = formula::kQuantBlock;

/// What the kernels of codes with scales take. Rows: as cpu/quantize/quantize.cpp describes them.
struct Rows {
  uint8_t* codes;
  void* x;
  const float* scale;
  const int32_t* zero_point;
  int64_t count, length, channels, tiles;  // tiles: of a row
  bool each;

  void addresses(auto& visit) const { visit(codes, x, scale, zero_point); }

  explicit Rows(const LinearCodes& args)
      : codes(args.codes.as<uint8_t>()),
        x(args.x.data),
        scale(args.scale),
        zero_point(args.zero_point),
        each(args.codes.size(2) == 1 && args.codes.size(1) > 1) {
    channels = args.codes.size(1);
    count = each ? args.codes.size(0) : args.codes.size(0) * channels;
    length = each ? channels : args.codes.size(2);
    tiles = (length + kTile - 1) / kTile;
  }
  __device__ __forceinline__ float scale_of(int64_t channel) const { return scale != nullptr ? scale[channel] : 1.0f; }
  __device__ __forceinline__ int32_t zero_of(int64_t channel) const {
    return zero_point != nullptr ? zero_point[channel] : 0;
  }

  /// Calls f(whole, at, n, channel) for the runs of this thread: n elements from `at` on. whole: a constant, whether n
  /// is kEach and the run is aligned. channel: that of the first element.
  template <class T, class F>
  __device__ __forceinline__ void for_each_run(const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int64_t warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
    for (int64_t item = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize; item < count * tiles;
         item += warps) {
      const int64_t row = item / tiles, begin = (item - row * tiles) * kTile, start = row * length + begin;
      const int here = static_cast<int>(min(int64_t{kTile}, length - begin));
      const int64_t channel = each ? begin : row % channels;
      const bool aligned = reinterpret_cast<uintptr_t>(static_cast<const T*>(x) + start) % (kEach * sizeof(T)) == 0 &&
                           reinterpret_cast<uintptr_t>(codes + start) % kEach == 0;
#pragma unroll 4
      for (int i = lane * kEach; i < here; i += kWarpSize * kEach) {
        const int64_t first = each ? channel + i : channel;
        if (aligned && i + kEach <= here)
          f(std::true_type(), start + i, kEach, first);
        else
          f(std::false_type(), start + i, min(kEach, here - i), first);
      }
    }
  }
};

/// A run of a thread, whole or of n elements.
template <bool kWhole, class T>
__device__ __forceinline__ Run<T, kEach> load(const T* from, int n) {
  if constexpr (kWhole) {
    return load_run<T, kEach>(from);
  } else {
    Run<T, kEach> run;
#pragma unroll
    for (int e = 0; e < kEach; ++e) run.at[e] = e < n ? from[e] : T(0);
    return run;
  }
}
template <bool kWhole, class T>
__device__ __forceinline__ void store(T* to, const Run<T, kEach>& run, int n) {
  if constexpr (kWhole) {
    store_run<T, kEach>(to, run);
  } else {
#pragma unroll
    for (int e = 0; e < kEach; ++e)
      if (e < n) to[e] = run.at[e];
  }
}

template <class T, CodeFormat kFormat>
__global__ void __launch_bounds__(kThreads) encode_rows(const Rows rows) {
  lorry::cuda::begin_programmatic();
  rows.for_each_run<T>([&]<bool kWhole>(std::bool_constant<kWhole>, int64_t at, int n, int64_t channel) {
    const auto values = load<kWhole>(static_cast<const T*>(rows.x) + at, n);
    Run<uint8_t, kEach> codes;
    float inverse = 1 / rows.scale_of(channel);
    int32_t zero = rows.zero_of(channel);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (rows.each && e > 0 && e < n) inverse = 1 / rows.scale_of(channel + e), zero = rows.zero_of(channel + e);
      codes.at[e] = static_cast<uint8_t>(formula::encode<kFormat>(cast<float, T>(values.at[e]), inverse, zero));
    }
    store<kWhole>(rows.codes + at, codes, n);
  });
}

template <class T, CodeFormat kFormat>
__global__ void __launch_bounds__(kThreads) decode_rows(const Rows rows) {
  lorry::cuda::begin_programmatic();
  rows.for_each_run<T>([&]<bool kWhole>(std::bool_constant<kWhole>, int64_t at, int n, int64_t channel) {
    const auto codes = load<kWhole>(static_cast<const uint8_t*>(rows.codes) + at, n);
    Run<T, kEach> values;
    float scale = rows.scale_of(channel);
    int32_t zero = rows.zero_of(channel);
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (rows.each && e > 0 && e < n) scale = rows.scale_of(channel + e), zero = rows.zero_of(channel + e);
      values.at[e] = cast<T, float>(formula::decode<kFormat>(codes.at[e], scale, zero));
    }
    store<kWhole>(static_cast<T*>(rows.x) + at, values, n);
  });
}

/// Calls f with the format as a constant.
template <class F>
void with_format(CodeFormat format, const F& f) {
  switch (format) {
    case CodeFormat::int8:
      return f.template operator()<CodeFormat::int8>();
    case CodeFormat::e4m3:
      return f.template operator()<CodeFormat::e4m3>();
    case CodeFormat::e5m2:
      break;
  }
  f.template operator()<CodeFormat::e5m2>();
}

template <bool kEncode>
void run_rows(const LinearCodes& args, Stream stream) {
  const Rows rows(args);
  if (rows.count * rows.length == 0) return;
  const unsigned grid = lorry::cuda::blocks_for(rows.count * rows.tiles * kWarpSize, kThreads, stream.device.index);
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    with_format(args.format, [&]<CodeFormat kFormat>() {
      lorry::cuda::launch(stream, {grid, kThreads}, kEncode ? encode_rows<T, kFormat> : decode_rows<T, kFormat>, rows);
    });
  });
}

void quantize(const LinearCodes& args, Stream stream) { run_rows<true>(args, stream); }
void dequantize(const LinearCodes& args, Stream stream) { run_rows<false>(args, stream); }

// ---- blocks ---------------------------------------------------------------------------------------------------------

struct Blocks {
  uint8_t* codes;
  float* scales;
  void* x;
  int64_t n;

  void addresses(auto& visit) const { visit(codes, scales, x); }

  explicit Blocks(const BlockCodes& args)
      : codes(args.codes.as<uint8_t>()), scales(args.scales.as<float>()), x(args.x.data), n(args.x.numel()) {}

  /// Calls f(whole, block, at, n): for each block of this warp, the lane's first element is number `at` of the array;
  /// its second run begins kBlock / 2 elements behind. n: elements from `at` to the end of the array.
  template <class T, class F>
  __device__ __forceinline__ void for_each_block(const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const int64_t blocks = (n + kBlock - 1) / kBlock, warps = int64_t{gridDim.x} * (kThreads / kWarpSize);
    const bool aligned =
        reinterpret_cast<uintptr_t>(x) % (kEach * sizeof(T)) == 0 && reinterpret_cast<uintptr_t>(codes) % kEach == 0;
    for (int64_t b = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize; b < blocks; b += warps) {
      const int64_t at = b * kBlock + lane * kEach;
      const int left = static_cast<int>(max(int64_t{0}, min(int64_t{kBlock}, n - at)));
      if (aligned && (b + 1) * kBlock <= n)
        f(std::true_type(), b, at, left);
      else
        f(std::false_type(), b, at, left);
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) encode_blocks(const Blocks blocks) {
  lorry::cuda::begin_programmatic();
  using Code = formula::QuantCode<true>;
  blocks.for_each_block<T>([&]<bool kWhole>(std::bool_constant<kWhole>, int64_t b, int64_t at, int left) {
    float values[2][kEach];
    uint32_t largest = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int apart = half * kBlock / 2;
      const auto run = load<kWhole>(static_cast<const T*>(blocks.x) + at + apart, left - apart);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        values[half][e] = cast<float, T>(run.at[e]);
        largest = max(largest, __float_as_uint(values[half][e]) & 0x7fffffffu);
      }
    }
    const formula::QuantScale by = formula::quant_scale(__reduce_max_sync(~0u, largest));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int apart = half * kBlock / 2;
      Run<uint8_t, kEach> codes;
#pragma unroll
      for (int e = 0; e < kEach; ++e) codes.at[e] = static_cast<uint8_t>(Code::encode(values[half][e], by));
      store<kWhole>(blocks.codes + at + apart, codes, left - apart);
    }
    if (threadIdx.x % kWarpSize == 0) blocks.scales[b] = by.scale;
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) decode_blocks(const Blocks blocks) {
  lorry::cuda::begin_programmatic();
  using Code = formula::QuantCode<true>;
  blocks.for_each_block<T>([&]<bool kWhole>(std::bool_constant<kWhole>, int64_t b, int64_t at, int left) {
    const float scale = blocks.scales[b];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int apart = half * kBlock / 2;
      const auto codes = load<kWhole>(static_cast<const uint8_t*>(blocks.codes) + at + apart, left - apart);
      Run<T, kEach> values;
#pragma unroll
      for (int e = 0; e < kEach; ++e) values.at[e] = cast<T, float>(Code::decode(codes.at[e]) * scale);
      store<kWhole>(static_cast<T*>(blocks.x) + at + apart, values, left - apart);
    }
  });
}

template <bool kEncode>
void run_blocks(const BlockCodes& args, Stream stream) {
  const Blocks blocks(args);
  if (blocks.n == 0) return;
  const unsigned grid =
      lorry::cuda::blocks_for(formula::quant_blocks(blocks.n) * kWarpSize, kThreads, stream.device.index);
  visit_floating(args.x.dtype, [&]<class T>(Type<T>) {
    lorry::cuda::launch(stream, {grid, kThreads}, kEncode ? encode_blocks<T> : decode_blocks<T>, blocks);
  });
}

void quantize_blocks(const BlockCodes& args, Stream stream) { run_blocks<true>(args, stream); }
void dequantize_blocks(const BlockCodes& args, Stream stream) { run_blocks<false>(args, stream); }

}  // namespace

const QuantizeKernels& quantize_kernels() {
  static constexpr QuantizeKernels kKernels{quantize, dequantize, quantize_blocks, dequantize_blocks};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
