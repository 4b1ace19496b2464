// Values computed from positions. Bound by the bytes written: each thread computes the 16 bytes that it stores.
// Operations and their order are those of kernels/cpu/pointwise/creation.cpp, so the bits are the same.

#include "lorry/kernels/pointwise.h"

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/element.h"
#include "lorry/kernels/cuda/common/narrow.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kBlock = 256;
constexpr int kFlight = 4;  ///< elements of a triangle in flight per thread

// ---- sequences ------------------------------------------------------------------------------------------------------

struct IntegralSteps {
  uint64_t start, step;  // unsigned, because the product may exceed 2^63 although the sum does not
  void addresses(auto& visit) const { visit(); }
  __device__ int64_t operator()(int64_t i) const {
    return static_cast<int64_t>(start + static_cast<uint64_t>(i) * step);
  }
};
struct FloatingSteps {
  double start, step;
  void addresses(auto& visit) const { visit(); }
  __device__ double operator()(int64_t i) const { return start + static_cast<double>(i) * step; }
};
struct EvenSteps {
  double start, end, step;
  int64_t n;
  void addresses(auto& visit) const { visit(); }
  __device__ double operator()(int64_t i) const {
    if (n == 1) return start;
    return i < n / 2 ? start + static_cast<double>(i) * step : end - static_cast<double>(n - 1 - i) * step;
  }
};

/// out[i] = value(i) for i < n. With `vectors`, `out` is aligned to 16 bytes.
template <class T, class Steps>
__global__ void __launch_bounds__(kBlock) generate(Stored<T>* out, int64_t n, Steps value, bool vectors) {
  lorry::cuda::begin_programmatic();
  using V = decltype(value(0));
  constexpr int kLength = kRun<T>;
  const int64_t first = (int64_t{blockIdx.x} * kBlock + threadIdx.x) * kLength;
  if (vectors && first + kLength <= n) {
    Run<Stored<T>, kLength> run;
#pragma unroll
    for (int i = 0; i < kLength; ++i) run.at[i] = cast<T, V>(value(first + i));
    store_run(out + first, run);
  } else {
    for (int64_t i = first; i < n && i < first + kLength; ++i) out[i] = cast<T, V>(value(i));
  }
}

template <class Steps>
void launch_generate(const Array& out, const Steps& value, Stream stream) {
  const int64_t n = out.numel();
  if (n == 0) return;
  visit(out.dtype, [&]<class T>(Type<T>) {
    const int64_t threads = (n + kRun<T> - 1) / kRun<T>;
    lorry::cuda::launch(stream, {static_cast<unsigned>((threads + kBlock - 1) / kBlock), kBlock}, generate<T, Steps>,
                        out.as<Stored<T>>(), n, value, aligned16(out.data));
  });
}

void arange_integral(const Array& out, int64_t start, int64_t step, Stream stream) {
  launch_generate(out, IntegralSteps{static_cast<uint64_t>(start), static_cast<uint64_t>(step)}, stream);
}

void arange_floating(const Array& out, double start, double step, Stream stream) {
  launch_generate(out, FloatingSteps{start, step}, stream);
}

void linspace(const Array& out, double start, double end, Stream stream) {
  const int64_t n = out.numel();
  launch_generate(out, EvenSteps{start, end, (end - start) / static_cast<double>(n - 1), n}, stream);
}

// ---- triangles ------------------------------------------------------------------------------------------------------

/// Operands of the iteration: the result, x, and as a pseudo operand column minus row, relative to `first`.
template <class Word>
struct Triangle {
  Word* out;
  const Word* x;
  uint32_t n;
  bool upper;
  int64_t first, diagonal;
  StridedIndexer<3, uint32_t> offsets;

  void addresses(auto& visit) const { visit(out, x); }
};

/// Writes every word of the result; reads the words of x that are copied.
template <class Word>
__global__ void __launch_bounds__(kBlock) keep_triangle(const __grid_constant__ Triangle<Word> call) {
  lorry::cuda::begin_programmatic();
  const uint32_t begin = blockIdx.x * (kBlock * kFlight) + threadIdx.x;
  Word words[kFlight];
  uint32_t to[kFlight];
#pragma unroll
  for (int u = 0; u < kFlight; ++u) {
    const uint32_t position = begin + u * kBlock;
    words[u] = 0;
    if (position >= call.n) continue;
    uint32_t at[3];
    call.offsets(position, at);
    to[u] = at[0];
    const int64_t distance = call.first + static_cast<int32_t>(at[2]);
    if (call.upper ? distance >= call.diagonal : distance <= call.diagonal) words[u] = call.x[at[1]];
  }
#pragma unroll
  for (int u = 0; u < kFlight; ++u)
    if (begin + u * kBlock < call.n) call.out[to[u]] = words[u];
}

template <class Word>
void triangle_words(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream stream) {
  Iteration it;  // not collapsed: dimensions 0 and 1 are columns and rows
  it.operands = 3;
  it.rank = out.layout.rank;
  for (int d = 0; d < it.rank; ++d) {
    const int dim = it.rank - 1 - d;
    it.sizes[d] = out.size(dim);
    it.strides[0][d] = out.stride(dim);
    it.strides[1][d] = x.stride(dim);
    it.strides[2][d] = d == 0 ? 1 : d == 1 ? -1 : 0;
  }
  for_each_narrow(it, [&](const Iteration& part, const int64_t* starts) {
    const Triangle<Word> call{.out = out.as<Word>() + starts[0],
                              .x = x.as<Word>() + starts[1],
                              .n = static_cast<uint32_t>(part.numel()),
                              .upper = upper,
                              .first = starts[2],
                              .diagonal = diagonal,
                              .offsets = StridedIndexer<3, uint32_t>(part)};
    lorry::cuda::launch(stream, {(call.n + kBlock * kFlight - 1) / (kBlock * kFlight), kBlock}, keep_triangle<Word>,
                        call);
  });
}

void triangle(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream stream) {
  if (out.numel() == 0) return;
  switch (size_of(out.dtype)) {
    case 1:
      return triangle_words<uint8_t>(out, x, diagonal, upper, stream);
    case 2:
      return triangle_words<uint16_t>(out, x, diagonal, upper, stream);
    case 4:
      return triangle_words<uint32_t>(out, x, diagonal, upper, stream);
    default:
      return triangle_words<uint64_t>(out, x, diagonal, upper, stream);
  }
}

}  // namespace

const CreationKernels& creation_kernels() {
  static constexpr CreationKernels kKernels = {arange_integral, arange_floating, linspace, triangle};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
