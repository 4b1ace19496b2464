// Elements are converted to f32 a block at a time, in a buffer that stays in the first-level cache.

#include "lorry/kernels/quantize.h"

#include <algorithm>
#include <array>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/optim/compressed_runs.h"
#include "lorry/kernels/cpu/quantize/code_runs.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_code_runs(CodeRuns& runs))

const CodeRuns& code_runs() {
  static const CodeRuns table = [] {
    CodeRuns runs;
    LORRY_SIMD_CHOOSE(fill_code_runs)(runs);
    return runs;
  }();
  return table;
}

namespace {

constexpr int64_t kBlock = 1024;     // elements of a buffer
constexpr int64_t kGrain = 1 << 15;  // elements worth waking a thread for

/// n elements from `at` on as f32: those in memory, or in the buffer.
const float* load(const Array& x, int64_t at, int64_t n, float* buffer) {
  if (x.dtype == kF32) return x.as<float>() + at;
  cpu::load(buffer, x.as<char>() + at * size_of(x.dtype), x.dtype, 1, n);
  return buffer;
}
/// Writes n elements from `at` on: write(to) gives them as f32.
template <class F>
void store(const Array& x, int64_t at, int64_t n, float* buffer, const F& write) {
  if (x.dtype == kF32) return write(x.as<float>() + at);
  write(buffer);
  cpu::store(x.as<char>() + at * size_of(x.dtype), x.dtype, 1, buffer, n);
}

/// The rows of codes as the loops go through them: elements of a row share a scale or, with `each`, have one each.
struct Rows {
  bool each;
  int64_t count, length, channels, blocks;

  explicit Rows(const Array& codes)
      : each(codes.size(2) == 1 && codes.size(1) > 1),
        count(each ? codes.size(0) : codes.size(0) * codes.size(1)),
        length(each ? codes.size(1) : codes.size(2)),
        channels(codes.size(1)),
        blocks((length + kBlock - 1) / kBlock) {}

  /// Calls f(position, n, channel) for blocks of at most kBlock elements. channel: that of the first element.
  template <class F>
  void for_each_block(const F& f) const {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::clamp<int64_t>(length, 1, kBlock));
    lorry::cpu::parallel_for(count * blocks, grain, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        const int64_t row = t / blocks, begin = t % blocks * kBlock;
        f(row * length + begin, std::min(kBlock, length - begin), each ? begin : row % channels);
      }
    });
  }
};

constexpr int32_t kNoZeroPoints[kBlock] = {};
constexpr std::array<float, kBlock> kOnes = [] {
  std::array<float, kBlock> ones{};
  ones.fill(1);
  return ones;
}();

/// 1 / scale of each channel, computed once although every row needs them.
std::vector<float> inverses_of(const LinearCodes& args, int64_t channels) {
  std::vector<float> inverses(static_cast<size_t>(channels), 1.0f);
  if (args.scale != nullptr)
    for (size_t i = 0; i < inverses.size(); ++i) inverses[i] = 1 / args.scale[i];
  return inverses;
}

void quantize(const LinearCodes& args, Stream) {
  const CodeRuns& runs = code_runs();
  const auto format = static_cast<size_t>(args.format);
  const Rows rows(args.codes);
  const std::vector<float> inverses = inverses_of(args, rows.channels);
  rows.for_each_block([&](int64_t at, int64_t n, int64_t channel) {
    float buffer[kBlock];
    const float* const from = load(args.x, at, n, buffer);
    uint8_t* const to = args.codes.as<uint8_t>() + at;
    const int32_t* const zeros = args.zero_point ? args.zero_point + channel : kNoZeroPoints;
    const float* const inverse = inverses.data() + channel;
    rows.each ? runs.encode_each[format](from, to, n, inverse, zeros)
              : runs.encode[format](from, to, n, *inverse, zeros[0]);
  });
}

void dequantize(const LinearCodes& args, Stream) {
  const CodeRuns& runs = code_runs();
  const auto format = static_cast<size_t>(args.format);
  const Rows rows(args.codes);
  rows.for_each_block([&](int64_t at, int64_t n, int64_t channel) {
    float buffer[kBlock];
    const uint8_t* const from = args.codes.as<const uint8_t>() + at;
    const int32_t* const zeros = args.zero_point ? args.zero_point + channel : kNoZeroPoints;
    store(args.x, at, n, buffer, [&](float* to) {
      if (!rows.each) return runs.decode[format](from, to, n, args.scale ? args.scale[channel] : 1.0f, zeros[0]);
      runs.decode_each[format](from, to, n, args.scale ? args.scale + channel : kOnes.data(), zeros);
    });
  });
}

void quantize_blocks(const BlockCodes& args, Stream) {
  lorry::cpu::parallel_for(args.scales.numel(), kGrain / formula::kQuantBlock, [&](int64_t first, int64_t last) {
    float buffer[formula::kQuantBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t at = b * formula::kQuantBlock, n = std::min<int64_t>(formula::kQuantBlock, args.x.numel() - at);
      args.scales.as<float>()[b] =
          compressed_runs().encode[true](load(args.x, at, n, buffer), args.codes.as<uint8_t>() + at, n);
    }
  });
}

void dequantize_blocks(const BlockCodes& args, Stream) {
  lorry::cpu::parallel_for(args.scales.numel(), kGrain / formula::kQuantBlock, [&](int64_t first, int64_t last) {
    float buffer[formula::kQuantBlock];
    for (int64_t b = first; b < last; ++b) {
      const int64_t at = b * formula::kQuantBlock, n = std::min<int64_t>(formula::kQuantBlock, args.x.numel() - at);
      store(args.x, at, n, buffer, [&](float* to) {
        compressed_runs().decode[true](args.codes.as<const uint8_t>() + at, args.scales.as<float>()[b], to, n);
      });
    }
  });
}

}  // namespace

const QuantizeKernels& quantize_kernels() {
  static constexpr QuantizeKernels kKernels{quantize, dequantize, quantize_blocks, dequantize_blocks};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
