// Chooses how products of rows are computed: linear_rows_kernel.h for 16-bit floats on devices from compute capability
// 9.0 on, else linear_rows_fma.cu.

#include "lorry/kernels/cuda/matmul/linear_rows.h"

#include <algorithm>

#include "lorry/base/integers.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/common/allow_shared.h"
#include "lorry/kernels/cuda/matmul/linear_rows_fma.h"
#include "lorry/kernels/cuda/matmul/linear_rows_kernel.h"

namespace lorry::kernels::cuda {
namespace {

using namespace rows;

constexpr int kCapability = 90;
constexpr int64_t kMostRows = int64_t{kMostGroups} * kGroup * 65535;  ///< of a launch: the largest grid
constexpr int64_t kMostColumns = int64_t{1} << 30, kMostDepth = int64_t{1} << 30;

bool in_runs(const void* data, int64_t row, int64_t column, int64_t k) {
  return aligned16(data) && column == 1 && row % 8 == 0 && k % 8 == 0;
}

template <class T>
MmaRows<T> problem_of(const LinearRowsArgs& args) {
  MmaRows<T> p{.out = args.out.as<T>(),
               .x = args.x.as<T>(),
               .weight = args.weight.as<T>(),
               .bias = args.bias.as<T>(),
               .addend = nullptr,
               .norm = {},
               .cache = {},
               .m = 0,
               .n = 0,
               .k = static_cast<int>(args.x.size(1)),
               .chunks = static_cast<int>(ceil_div(args.x.size(1), kChunk)),
               .parts = 1,
               .stages = 1,
               .out_row = args.out.stride(0),
               .x_row = args.x.stride(0),
               .x_column = args.x.stride(1),
               .weight_row = args.weight.stride(0),
               .weight_column = args.weight.stride(1),
               .bias_step = args.bias.data == nullptr ? 0 : args.bias.stride(0),
               .addend_row = 0,
               .x_in_runs = in_runs(args.x.data, args.x.stride(0), args.x.stride(1), args.x.size(1)),
               .gelu = false};
  const int64_t blocks = std::max<int64_t>(1, ceil_div(p.chunks, kChunksOfBlock));
  p.parts = static_cast<int>(std::min<int64_t>(kMostParts, blocks));
  p.stages = static_cast<int>(ceil_div(blocks, p.parts));
  return p;
}

template <class Way, class T>
void launch(const MmaRows<T>& p, Stream stream) {
  constexpr size_t kMostShared = Way::shared(sizeof(T), Way::kInBlock ? Way::kParts : kMostParts);
  if (kMostShared > 48 << 10) allow_shared_once<multiply_rows<T, Way>>(stream.device.index, kMostShared);
  const int64_t row_blocks = ceil_div(p.m, Way::kRows);
  const int of_cluster = Way::kInBlock ? 1 : p.parts;
  const int64_t resident =
      int64_t{lorry::cuda::properties(stream.device.index).multiprocessors} * Way::kBlocks / (of_cluster * row_blocks);
  const int64_t across = std::clamp<int64_t>(resident, 1, ceil_div(p.n, kTile));
  lorry::cuda::launch(stream,
                      {.grid = dim3(static_cast<unsigned>(across), static_cast<unsigned>(of_cluster),
                                    static_cast<unsigned>(row_blocks)),
                       .block = Way::kThreadsOfBlock,
                       .shared_bytes = Way::shared(sizeof(T), p.parts),
                       .cluster = dim3(1, static_cast<unsigned>(of_cluster), 1)},
                      multiply_rows<T, Way>, p);
}

/// The rows of x in a block, in groups: the fewest that make no more than two blocks for each multiprocessor. Fewer
/// rows take less time to bring, and weights that other blocks read at the same time come from the second-level cache.
/// If there is more to do, as many rows as possible, so that weights are read less often. The bits are the same.
template <class T>
int groups_of_block(const MmaRows<T>& p, int multiprocessors) {
  for (int groups = 1; groups < kMostGroups; groups *= 2) {
    const int64_t blocks = ceil_div(p.n, kTile) * p.parts * ceil_div(p.m, groups * kGroup);
    if (p.m <= groups * kGroup || blocks <= 2 * multiprocessors) return groups;
  }
  return kMostGroups;
}

template <class T>
void multiply(const MmaRows<T>& p, Stream stream) {
  const bool runs = in_runs(p.weight, p.weight_row, p.weight_column, p.k);
  const int multiprocessors = lorry::cuda::properties(stream.device.index).multiprocessors;
  if (p.norm.lanes > 0) return launch<Way<1, true, true>>(p, stream);
  const auto with = [&]<int kGroups>() {
    runs ? launch<Way<kGroups, true>>(p, stream) : launch<Way<kGroups, false>>(p, stream);
  };
  // Few rows, whose tiles all run at once: one block for all parts, which needs no cluster.
  if (p.m <= kGroup && runs && p.stages == 1 && ceil_div(p.n, kTile) <= multiprocessors) {
    if (p.parts == 2) return launch<Way<1, true, false, 2>>(p, stream);
    if (p.parts == 3) return launch<Way<1, true, false, 3>>(p, stream);
    if (p.parts == 4) return launch<Way<1, true, false, 4>>(p, stream);
  }
  switch (groups_of_block(p, multiprocessors)) {
    case 1:
      return with.template operator()<1>();
    case 2:
      return with.template operator()<2>();
    case 4:
      return with.template operator()<4>();
    default:
      return with.template operator()<kMostGroups>();
  }
}

/// The parts of a product that one launch can compute.
template <class T>
void multiply_all(const MmaRows<T>& all, int64_t m, int64_t n, Stream stream) {
  for (int64_t i = 0; i < m; i += kMostRows)
    for (int64_t j = 0; j < n; j += kMostColumns) {
      MmaRows<T> p = all;
      p.m = static_cast<int>(std::min(kMostRows, m - i));
      p.n = static_cast<int>(std::min(kMostColumns, n - j));
      p.out += i * p.out_row + j;
      p.x += i * p.x_row;
      p.weight += j * p.weight_row;
      if (p.bias != nullptr) p.bias += j * p.bias_step;
      if (p.addend != nullptr) p.addend += i * p.addend_row + j;
      multiply(p, stream);
    }
}

bool uses_tensor_cores(const LinearRowsArgs& args, Stream stream) {
  return (args.out.dtype == kF16 || args.out.dtype == kBF16) && args.x.size(1) <= kMostDepth &&
         lorry::cuda::capability(stream.device.index) >= kCapability;
}

/// Sets the norm; returns false where the kernel does not do it.
template <class T>
bool set_norm(MmaRows<T>& p, const LinearRowsArgs& args, const LinearRowsNeighbours& with) {
  if (with.norm == LinearRowsNeighbours::no_norm) return true;
  const RowPlan plan = plan_norm<T>(p.k, false);
  if (args.out.size(0) > kFewRows || plan.lanes > kWarp || plan.runs > kNormRuns<T> || p.stages > 1 || !p.x_in_runs ||
      !in_runs(p.weight, p.weight_row, p.weight_column, p.k) || !aligned16(with.norm_weight.data) ||
      !aligned16(with.norm_bias.data))
    return false;
  p.norm = {.weights = {with.norm_weight.as<const T>(), with.norm_bias.as<const T>()},
            .lanes = plan.lanes,
            .centred = with.norm == LinearRowsNeighbours::layer_norm,
            .eps = with.eps,
            .one_nth = 1.0 / static_cast<double>(p.k)};
  return true;
}

/// Sets the cache; returns false where the kernel does not write it.
template <class T>
bool set_cache(MmaRows<T>& p, const LinearRowsArgs& args, const CacheColumns& with, Stream stream) {
  if (with.k_cache.data == nullptr) return true;
  if (args.out.size(0) > kFewRows || args.out.size(1) > kMostColumns) return false;
  const auto part = [](const Array& cache, int64_t first) {
    return typename CacheOfRows<T>::Part{.to = cache.as<T>(),
                                         .first = static_cast<int>(first),
                                         .block = cache.stride(0),
                                         .row = cache.stride(1),
                                         .head = cache.stride(2),
                                         .coordinate = cache.stride(3)};
  };
  p.cache = {.parts = {part(with.k_cache, with.k), part(with.v_cache, with.v)},
             .rows = rows_of(with.rows, with.k_cache, stream),
             .d = narrow_size(with.k_cache.size(3)),
             .width = narrow_size(with.k_cache.size(2) * with.k_cache.size(3))};
  return true;
}

template <class T>
bool multiply_with(const LinearRowsArgs& args, const LinearRowsNeighbours& with, Stream stream) {
  MmaRows<T> p = problem_of<T>(args);
  if (!set_norm(p, args, with) || !set_cache(p, args, with.cache, stream)) return false;
  p.gelu = with.gelu;
  if (with.addend.data != nullptr) {
    p.addend = with.addend.as<const T>();
    p.addend_row = with.addend.stride(0);
  }
  multiply_all(p, args.out.size(0), args.out.size(1), stream);
  return true;
}

}  // namespace

void linear_rows(const LinearRowsArgs& args, Stream stream) {
  if (args.out.numel() == 0) return;
  if (!uses_tensor_cores(args, stream)) return linear_rows_fma(args, stream);
  linear_rows_with(args, {}, stream);
}

LinearRowsLimits linear_rows_limits(Device device) {
  if (lorry::cuda::capability(device.index) < kCapability) return {};
  return {.few_rows = kFewRows, .longest_norm = kMostNormal, .norm_run = kRun<Float16>};
}

bool linear_rows_with(const LinearRowsArgs& args, const LinearRowsNeighbours& with, Stream stream) {
  if (!uses_tensor_cores(args, stream) || args.out.numel() == 0) return false;
  return args.out.dtype == kF16 ? multiply_with<Float16>(args, with, stream)
                                : multiply_with<BFloat16>(args, with, stream);
}

}  // namespace lorry::kernels::cuda
