// Sorts a few orders, or finds the winners among them, with one launch: every order is compared with all others. A
// block copies the keys of all orders to shared memory and compares 32 of them, each warp with an eighth of all. This
// is quadratic, but the launches of a sort take longer than 2^26 comparisons.

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/indexing/put.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kNumberBits = 13;
constexpr int kFew = 1 << kNumberBits;
/// Above every key with its number. They have 31 bits, so that the sign of a difference tells which is larger.
constexpr uint32_t kLast = INT32_MAX;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

/// Where the results go.
struct Compared {
  uint32_t *keys, *numbers;  ///< sorted; null: not wanted
  uint8_t* wins;             ///< wins[i]: whether order i is the last of its key

  void addresses(auto& visit) const { visit(keys, numbers, wins); }
};

/// kSorts: writes the sorted orders, else the winners.
template <bool kSorts>
__global__ void __launch_bounds__(kThreads)
    compare_orders(Compared out, uint32_t count, OrderKeys<uint32_t, uint32_t> keys) {
  lorry::cuda::begin_programmatic();
  // A key, followed by the order's number: all differ, and their order is that of a stable sort.
  __shared__ uint4 fours[kFew / 4];
  __shared__ uint32_t results[32];
  uint32_t* const tagged = reinterpret_cast<uint32_t*>(fours);
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, padded = (count + 3) / 4 * 4;
#pragma unroll 8
  for (uint32_t i = threadIdx.x; i < padded; i += kThreads)
    tagged[i] = i < count ? keys.quiet(i) << kNumberBits | i : kLast;
  if (warp == 0) results[lane] = kSorts ? 0 : ~0u;
  __syncthreads();

  // Sorting: how many are below this one. Winners: how far above this one the next is, less 1.
  const uint32_t first = blockIdx.x * 32, i = first + lane, mine = i < count ? tagged[i] : 0;
  uint32_t result = kSorts ? 0 : ~0u;
  const auto compare = [&](uint32_t other) {
    if constexpr (kSorts) {
      result += (other - mine) >> 31;
    } else {
      result = min(result, other - mine - 1);
    }
  };
  // An order before `first` has a smaller number than this one, so it makes no difference to whether this one wins.
  for (uint32_t k = (kSorts ? 0 : first / 4) + warp; k < padded / 4; k += kWarps) {
    const uint4 others = fours[k];
    compare(others.x), compare(others.y), compare(others.z), compare(others.w);
  }
  if constexpr (kSorts) {
    atomicAdd(&results[lane], result);
  } else {
    atomicMin(&results[lane], result);
  }
  __syncthreads();
  if (warp != 0 || i >= count) return;
  const uint32_t key = keys(i);
  if constexpr (kSorts) {
    out.keys[results[lane]] = key;
    out.numbers[results[lane]] = i;
  } else {
    out.wins[i] = key != keys.nowhere && results[lane] >= kFew - 1 - i;
  }
}

template <bool kSorts>
void compare(const PutArgs& args, const PutPlan& p, const Compared& out, Stream stream) {
  const auto count = static_cast<uint32_t>(p.count);
  lorry::cuda::launch(stream, {(count + 31) / 32, kThreads}, compare_orders<kSorts>, out, count,
                      OrderKeys<uint32_t, uint32_t>(args, p, stream));
}

}  // namespace

bool few(const PutPlan& p) { return narrow(p) && p.count <= kFew && p.nowhere < kLast >> kNumberBits; }

void sort_few(const PutArgs& args, const PutPlan& p, uint32_t* keys, uint32_t* numbers, Stream stream) {
  compare<true>(args, p, {keys, numbers, nullptr}, stream);
}

void find_few_winners(const PutArgs& args, const PutPlan& p, uint8_t* wins, Stream stream) {
  compare<false>(args, p, {nullptr, nullptr, wins}, stream);
}

}  // namespace lorry::kernels::cuda
