// Adding what meets at one address, in order. The keys come sorted; a position whose key differs from the one before it is a
// head, and adds up all of its key. With many columns a warp takes a head and up to 128 columns: each lane fetches the key, the
// number and the offset of one order, and all of them are broadcast. With few, each lane takes a head, and what is longer than a
// few orders the whole warp fetches for it. Bytes moved: the source once, the heads' targets twice, 8 or 12 an order for its key.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/put.h"

namespace lorry::kernels::cuda {
namespace {

constexpr unsigned kAll = ~0u;
constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;

/// What is added up: 16-bit floats in f32, rounded after each addition as the CPU does; whole numbers wrap around.
template <class T>
using Sum =
    std::conditional_t<kHalf<T>, float, std::conditional_t<std::is_same_v<T, uint8_t> || std::is_same_v<T, uint16_t> || std::is_same_v<T, bool>, uint32_t, T>>;

template <class T>
__device__ __forceinline__ Sum<T> read(const Stored<T>* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return *from != 0;
  } else {
    return static_cast<Sum<T>>(*from);
  }
}
template <class T>
__device__ __forceinline__ void add(Sum<T>& sum, Sum<T> come) {
  if constexpr (std::is_same_v<T, bool>) {
    sum |= come;
  } else if constexpr (kHalf<T>) {
    sum = static_cast<float>(T(sum + come));
  } else {
    sum += come;
  }
}

/// The sorted orders: operand 0 of `offsets` is the source.
template <class Key, class Index>
struct Orders {
  const Key* keys;
  const uint32_t* numbers;
  uint32_t count;
  Key nowhere;
  int64_t first;
  Offsets<1, Index> offsets;

  __device__ bool head(uint32_t i) const { return i < count && keys[i] != nowhere && (i == 0 || keys[i - 1] != keys[i]); }
  __device__ Index source(uint32_t i) const {
    Index at[1];
    offsets(static_cast<Index>(first + numbers[i]), at);
    return at[0];
  }
};

/// The lanes of a warp: 32 columns, four times over.
constexpr int kAcross = 4;
constexpr int kDeep = 4;

/// Operands of `columns`: target, source. blockIdx.x tells the head, blockIdx.y the columns.
template <class T, class Key, class Index>
__global__ void __launch_bounds__(kThreads)
    add_columns(Stored<T>* target, const Stored<T>* source, Orders<Key, Index> orders, int64_t address_step, Index column_count, Offsets<2, Index> columns) {
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kWarps + threadIdx.x / 32;
  if (!orders.head(i)) return;  // the same for the whole warp
  const Key key = orders.keys[i];
  for (Index base = static_cast<Index>(blockIdx.y) * (32 * kAcross); base < column_count; base += static_cast<Index>(gridDim.y) * (32 * kAcross)) {
    Stored<T>* to[kAcross];
    const Stored<T>* from[kAcross];
    Sum<T> sum[kAcross] = {};
#pragma unroll
    for (int v = 0; v < kAcross; ++v) {
      const Index column = base + 32 * v + lane;
      to[v] = nullptr;
      if (column >= column_count) continue;
      Index at[2];
      columns(column, at);
      to[v] = target + static_cast<int64_t>(key) * address_step + at[0];
      from[v] = source + at[1];
      sum[v] = read<T>(to[v]);
    }
    for (uint32_t start = i;; start += 32) {
      const bool mine = start + lane < orders.count && orders.keys[start + lane] == key;
      const Index offset = mine ? orders.source(start + lane) : 0;
      const int length = __popc(__ballot_sync(kAll, mine));  // equal keys are neighbours
      for (int k = 0; k < length; k += kDeep) {
        Sum<T> come[kDeep][kAcross];
#pragma unroll
        for (int u = 0; u < kDeep; ++u) {
          const Index row = __shfl_sync(kAll, offset, k + u);  // k + u stays below 32
#pragma unroll
          for (int v = 0; v < kAcross; ++v)
            if (k + u < length && to[v] != nullptr) come[u][v] = read<T>(from[v] + row);
        }
#pragma unroll
        for (int u = 0; u < kDeep; ++u)
#pragma unroll
          for (int v = 0; v < kAcross; ++v)
            if (k + u < length && to[v] != nullptr) add<T>(sum[v], come[u][v]);
      }
      if (length < 32) break;
    }
#pragma unroll
    for (int v = 0; v < kAcross; ++v)
      if (to[v] != nullptr) *to[v] = static_cast<Stored<T>>(sum[v]);
  }
}

/// Orders that a lane adds up by itself, and that a warp fetches at once for one of its lanes, in groups of 32.
constexpr uint32_t kAlone = 8;
constexpr int kGroups = 4;

/// Operands of `columns` as above; blockIdx.y tells the column.
template <class T, class Key, class Index>
__global__ void __launch_bounds__(kThreads)
    add_elements(Stored<T>* target, const Stored<T>* source, Orders<Key, Index> orders, int64_t address_step, Offsets<2, Index> columns) {
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kThreads + threadIdx.x;
  Index column[2];
  columns(static_cast<Index>(blockIdx.y), column);
  source += column[1];
  const bool head = orders.head(i);
  const Key key = head ? orders.keys[i] : orders.nowhere;
  Stored<T>* const to = head ? target + static_cast<int64_t>(key) * address_step + column[0] : nullptr;
  Sum<T> sum{};
  uint32_t next = i;
  bool more = head;
  if (head) {
    sum = read<T>(to);
    do {
      add<T>(sum, read<T>(source + orders.source(next)));
      ++next;
      more = next < orders.count && orders.keys[next] == key;
    } while (more && next - i < kAlone);
  }
  for (unsigned waiting = __ballot_sync(kAll, more); waiting != 0; waiting &= waiting - 1) {
    const int leader = __ffs(static_cast<int>(waiting)) - 1;
    const Key wanted = __shfl_sync(kAll, key, leader);
    Sum<T> total = __shfl_sync(kAll, sum, leader);
    int length = 32;
    for (uint32_t start = __shfl_sync(kAll, next, leader); length == 32; start += 32 * kGroups) {
      Sum<T> come[kGroups];
      bool mine[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const uint32_t at = start + 32 * g + lane;
        mine[g] = at < orders.count && orders.keys[at] == wanted;
        come[g] = mine[g] ? read<T>(source + orders.source(at)) : Sum<T>{};
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        if (length < 32) break;
        length = __popc(__ballot_sync(kAll, mine[g]));
        if (length == 32) {
#pragma unroll
          for (int k = 0; k < 32; ++k) add<T>(total, __shfl_sync(kAll, come[g], k));
        } else {
          for (int k = 0; k < length; ++k) add<T>(total, __shfl_sync(kAll, come[g], k));
        }
      }
    }
    if (static_cast<int>(lane) == leader) sum = total;
  }
  if (head) *to = static_cast<Stored<T>>(sum);
}

/// Fewer columns are taken one by one.
constexpr int64_t kMany = 16;

/// Calls f(Type<T>) with a type that adds as the dtype does: whole numbers of one width wrap alike, signed or not.
template <class F>
void visit_sum(DType dtype, F&& f) {
  switch (dtype) {
    case kBool:
      return f(Type<bool>{});
    case kU8:
    case kI8:
      return f(Type<uint8_t>{});
    case kI16:
      return f(Type<uint16_t>{});
    case kI32:
      return f(Type<uint32_t>{});
    case kI64:
      return f(Type<uint64_t>{});
    case kF16:
      return f(Type<Float16>{});
    case kBF16:
      return f(Type<BFloat16>{});
    case kF32:
      return f(Type<float>{});
    case kF64:
      break;
  }
  f(Type<double>{});
}

template <class Key, class Index>
void add(const PutArgs& args, const PutPlan& p, const Key* keys, const uint32_t* numbers, int64_t first, int64_t count, Stream stream) {
  Iteration sources = p.orders;
  std::copy_n(p.orders.strides[1], p.orders.rank, sources.strides[0]);
  const Orders<Key, Index> orders{keys, numbers, static_cast<uint32_t>(count), static_cast<Key>(p.nowhere), first, Offsets<1, Index>(sources)};
  const Offsets<2, Index> columns(p.columns);
  const int64_t width = p.columns.numel();
  visit_sum(args.target.dtype, [&]<class T>(Type<T>) {
    auto* const target = args.target.as<Stored<T>>();
    const auto* const source = args.source.as<const Stored<T>>();
    if (width < kMany) {
      const dim3 grid(static_cast<unsigned>((count + kThreads - 1) / kThreads), static_cast<unsigned>(width));
      lorry::cuda::launch(stream, {grid, kThreads}, add_elements<T, Key, Index>, target, source, orders, p.address_step, columns);
    } else {
      const dim3 grid(static_cast<unsigned>((count + kWarps - 1) / kWarps),
                      static_cast<unsigned>(std::min<int64_t>((width + 32 * kAcross - 1) / (32 * kAcross), 65535)));
      lorry::cuda::launch(stream, {grid, kThreads}, add_columns<T, Key, Index>, target, source, orders, p.address_step, static_cast<Index>(width), columns);
    }
  });
}

}  // namespace

void add_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first, int64_t count, Stream stream) {
  add<uint32_t, uint32_t>(args, p, keys, numbers, first, count, stream);
}
void add_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first, int64_t count, Stream stream) {
  add<uint64_t, int64_t>(args, p, keys, numbers, first, count, stream);
}

}  // namespace lorry::kernels::cuda
