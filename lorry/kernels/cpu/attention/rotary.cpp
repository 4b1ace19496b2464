// Rotary positions. A thread processes whole positions; their elements are read once and written once. 16-bit heads go
// through a buffer of f32, a few at a time, so that they stay in the first-level cache.

#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <cstring>

#include "lorry/kernels/cpu/attention/rotary_runs.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/rowwise/rows.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_rotary_runs(RotaryRuns& runs))

const RotaryRuns& rotary_runs() {
  static const RotaryRuns table = [] {
    RotaryRuns runs;
    LORRY_SIMD_CHOOSE(fill_rotary_runs)(runs);
    return runs;
  }();
  return table;
}

namespace {

/// Elements of a buffer, unless one head has more.
constexpr int64_t kBuffer = 2048;

void turn(const RotaryRun<float>& run) { rotary_runs().f32(run); }
void turn(const RotaryRun<double>& run) { rotary_runs().f64(run); }

/// Rotates heads [first, last) of a position. x and out are the addresses of head 0.
template <class C>
class Heads {
 public:
  explicit Heads(const RotaryArgs& args)
      : args_(args),
        d_(args.x.size(3)),
        step_(args.x.stride(2)),
        bytes_(size_of(args.x.dtype)),
        direct_(args.x.dtype == dtype_of<C>),
        at_once_(std::clamp<int64_t>(kBuffer / d_, 1, std::max<int64_t>(1, args.heads))),
        buffer_(direct_ ? 0 : static_cast<size_t>(at_once_ * d_)) {}

  void turned(char* out, const char* x, int64_t position) {
    RotaryRun<C> run{.out = nullptr,
                     .x = nullptr,
                     .cos = args_.cos.as<const C>() + position * (d_ / 2),
                     .sin = args_.sin.as<const C>() + position * (d_ / 2),
                     .heads = args_.heads,
                     .half = d_ / 2,
                     .step = step_,
                     .inverse = args_.inverse};
    if (direct_) {
      run.out = reinterpret_cast<C*>(out), run.x = reinterpret_cast<const C*>(x);
      return turn(run);
    }
    run.out = buffer_.data(), run.x = buffer_.data(), run.step = d_;
    for (int64_t h = 0; h < args_.heads; h += run.heads) {
      run.heads = std::min(at_once_, args_.heads - h);
      each_stretch(h, h + run.heads, [&](int64_t head, int64_t n) {
        load(buffer_.data() + (head - h) * d_, x + head * step_ * bytes_, args_.x.dtype, 1, n);
      });
      turn(run);
      store(out + h * d_ * bytes_, args_.out.dtype, 1, buffer_.data(), run.heads * d_);
    }
  }

  void copied(char* out, const char* x) const {
    each_stretch(args_.heads, args_.x.size(2), [&](int64_t head, int64_t n) {
      std::memcpy(out + head * d_ * bytes_, x + head * step_ * bytes_, static_cast<size_t>(n * bytes_));
    });
  }

 private:
  /// Calls f(head, elements) for contiguous pieces of memory that begin with a head.
  template <class F>
  void each_stretch(int64_t first, int64_t last, const F& f) const {
    if (step_ == d_) {
      if (first < last) f(first, (last - first) * d_);
    } else {
      for (int64_t h = first; h < last; ++h) f(h, d_);
    }
  }

  const RotaryArgs& args_;
  int64_t d_, step_, bytes_;
  bool direct_;
  int64_t at_once_;
  std::vector<C> buffer_;
};

template <class C>
void rotary_as(const RotaryArgs& args) {
  const Array &x = args.x, &out = args.out;
  const int64_t t = x.size(1), bytes = size_of(x.dtype), row = x.size(2) * x.size(3);
  lorry::cpu::parallel_for(x.size(0) * t, row_grain(row), [&](int64_t begin, int64_t end) {
    Heads<C> heads(args);
    for (int64_t r = begin; r < end; ++r) {
      const char* const from = x.as<const char>() + (r / t * x.stride(0) + r % t * x.stride(1)) * bytes;
      char* const to = out.as<char>() + r * row * bytes;
      heads.turned(to, from, r % t);
      heads.copied(to, from);
    }
  });
}

void rotary(const RotaryArgs& args, const Stream&) {
  if (args.out.numel() == 0) return;
  args.x.dtype == kF64 ? rotary_as<double>(args) : rotary_as<float>(args);
}

}  // namespace

const RotaryKernels& rotary_kernels() {
  static constexpr RotaryKernels kKernels{rotary};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
