// Adds all elements that are written to the same address, in order (put_orders.h). With many columns, a warp takes a
// head and up to 128 columns: each lane loads the key, number and offset of one order, and all of them are broadcast.
// With few columns, each lane takes a head; a key with more than a few orders is loaded by the whole warp. Bytes moved:
// the source once, the targets of heads twice, 8 or 12 per order for its key.

#include "lorry/kernels/cuda/indexing/put_lines.h"
#include "lorry/kernels/cuda/indexing/put_orders.h"

namespace lorry::kernels::cuda {
namespace {

/// The type of sums: narrow floats are added in f32 and rounded after each addition as on the CPU, or summed and
/// rounded before they are added to the element (PutArgs::rounds_once); integers wrap.
template <class T>
using Sum = std::conditional_t<
    kNarrowType<T>, float,
    std::conditional_t<std::is_same_v<T, uint8_t> || std::is_same_v<T, uint16_t> || std::is_same_v<T, bool>, uint32_t,
                       T>>;

template <class T, bool kRoundsOnce = false>
struct Adding {
  using Value = Sum<T>;

  __device__ __forceinline__ static Value read(const Stored<T>* from) {
    if constexpr (std::is_same_v<T, bool>) {
      return *from != 0;
    } else {
      return static_cast<Value>(*from);
    }
  }
  /// The sum before the first addition to an element.
  __device__ __forceinline__ static Value begin(const Stored<T>* to) {
    if constexpr (kRoundsOnce)
      return 0;
    else
      return read(to);
  }
  __device__ __forceinline__ static void end(Value sum, Stored<T>* to) {
    if constexpr (kRoundsOnce)
      *to = T(static_cast<float>(T(sum)) + static_cast<float>(*to));
    else
      *to = static_cast<Stored<T>>(sum);
  }
  __device__ __forceinline__ static void combine(Value& sum, Value come) {
    if constexpr (std::is_same_v<T, bool>) {
      sum |= come;
    } else if constexpr (kNarrowType<T> && !kRoundsOnce) {
      sum = static_cast<float>(T(sum + come));
    } else {
      sum += come;
    }
  }
};

/// A warp has 32 columns, kAcross times.
constexpr int kAcross = 4;
constexpr int kDeep = 4;

/// Operands of `columns`: target, source. blockIdx.x selects the head, blockIdx.y the columns.
template <class T, class Rule, class Key, class Index>
__global__ void __launch_bounds__(kThreads)
    add_columns(Stored<T>* target, const Stored<T>* source, Orders<Key, Index> orders, int64_t address_step,
                Index column_count, StridedIndexer<2, Index> columns) {
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kWarps + threadIdx.x / 32;
  if (!orders.head(i)) return;  // uniform over the warp
  const Key key = orders.keys[i];
  for (Index base = static_cast<Index>(blockIdx.y) * (32 * kAcross); base < column_count;
       base += static_cast<Index>(gridDim.y) * (32 * kAcross)) {
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
      sum[v] = Rule::begin(to[v]);
    }
    for (uint32_t start = i;; start += 32) {
      const bool mine = start + lane < orders.count && orders.keys[start + lane] == key;
      const Index offset = mine ? orders.source(start + lane) : 0;
      const int length = __popc(__ballot_sync(kAll, mine));  // equal keys are adjacent
      for (int k = 0; k < length; k += kDeep) {
        Sum<T> come[kDeep][kAcross];
#pragma unroll
        for (int u = 0; u < kDeep; ++u) {
          const Index row = __shfl_sync(kAll, offset, k + u);  // k + u stays below 32
#pragma unroll
          for (int v = 0; v < kAcross; ++v)
            if (k + u < length && to[v] != nullptr) come[u][v] = Rule::read(from[v] + row);
        }
#pragma unroll
        for (int u = 0; u < kDeep; ++u)
#pragma unroll
          for (int v = 0; v < kAcross; ++v)
            if (k + u < length && to[v] != nullptr) Rule::combine(sum[v], come[u][v]);
      }
      if (length < 32) break;
    }
#pragma unroll
    for (int v = 0; v < kAcross; ++v)
      if (to[v] != nullptr) Rule::end(sum[v], to[v]);
  }
}

/// With fewer columns, each lane processes its columns one by one.
constexpr int64_t kMany = 16;

/// Calls f(Type<T>) with a type with the same addition as the dtype: signed and unsigned integers of one width wrap in
/// the same way.
template <class F>
void visit_sum(DType dtype, F&& f) {
  visit(dtype, [&]<class T>(Type<T> type) {
    if constexpr (kFloatingType<T> || std::is_same_v<T, bool>)
      f(type);
    else
      f(Type<std::make_unsigned_t<T>>{});
  });
}

template <class T, class Rule, class Key, class Index>
void add_by(const PutArgs& args, const PutPlan& p, const Orders<Key, Index>& orders, int64_t count, Stream stream) {
  const int64_t width = p.columns.numel();
  if (width < kMany) return launch_elements<T>(args, p, orders, Rule{}, stream);
  const dim3 grid(static_cast<unsigned>((count + kWarps - 1) / kWarps),
                  static_cast<unsigned>(std::min<int64_t>((width + 32 * kAcross - 1) / (32 * kAcross), 65535)));
  lorry::cuda::launch(stream, {grid, kThreads}, add_columns<T, Rule, Key, Index>, args.target.as<Stored<T>>(),
                      args.source.as<const Stored<T>>(), orders, p.address_step, static_cast<Index>(width),
                      StridedIndexer<2, Index>(p.columns));
}

template <class Key, class Index>
void add(const PutArgs& args, const PutPlan& p, const Key* keys, const uint32_t* numbers, int64_t first, int64_t count,
         Stream stream) {
  const Orders<Key, Index> orders = sorted_orders<Key, Index>(p, keys, numbers, first, count);
  visit_sum(args.target.dtype, [&]<class T>(Type<T>) {
    if constexpr (kNarrowType<T>)
      if (args.rounds_once) return add_by<T, Adding<T, true>>(args, p, orders, count, stream);
    add_by<T, Adding<T>>(args, p, orders, count, stream);
  });
}

}  // namespace

void add_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream) {
  add<uint32_t, uint32_t>(args, p, keys, numbers, first, count, stream);
}
void add_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                  int64_t count, Stream stream) {
  add<uint64_t, int64_t>(args, p, keys, numbers, first, count, stream);
}
void add_lines(const PutArgs& args, const PutLines& lines, Stream stream) {
  visit_sum(args.target.dtype, [&]<class T>(Type<T>) { launch_lines<Stored<T>>(args, lines, Adding<T>{}, stream); });
}

}  // namespace lorry::kernels::cuda
