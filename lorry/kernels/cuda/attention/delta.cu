// The row sums of grad_out * out, which attention's backward pass begins with.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/attention/attention_problem.h"

namespace lorry::kernels::cuda {
namespace {

/// One warp per row.
template <class T>
__global__ void __launch_bounds__(256) delta_kernel(AttentionProblem p) {
  lorry::cuda::begin_programmatic();
  using C = Compute<T>;
  const int64_t n = int64_t{blockIdx.x} * 8 + threadIdx.x / 32, pair = n / p.t;
  if (pair >= p.batches * p.heads) return;
  const auto out = p.out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t),
             grad = p.grad_out.at<const T>(pair / p.heads, pair % p.heads).from(n % p.t);
  C sum = 0;
  for (int64_t c = threadIdx.x % 32; c < out.width; c += 32)
    sum = fma(static_cast<C>(grad.data[c]), static_cast<C>(out.data[c]), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) static_cast<C*>(p.delta)[n] = sum;
}

}  // namespace

void compute_delta(const AttentionProblem& p, DType dtype, Stream stream) {
  const int64_t rows = p.batches * p.heads * p.t;
  if (rows == 0) return;
  const lorry::cuda::Shape shape{{static_cast<unsigned>((rows + 7) / 8)}, {256}};
  visit_floating(dtype, [&]<class T>(Type<T>) { lorry::cuda::launch(stream, shape, delta_kernel<T>, p); });
}

}  // namespace lorry::kernels::cuda
