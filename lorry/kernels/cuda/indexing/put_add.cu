// Adds all elements that are written to the same address, in order (put_orders.h). With many columns, a warp takes a
// head and up to 256 columns: each lane loads the key and number of one order, and the offsets are broadcast.
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
  static constexpr bool kReadsAtEnd = kRoundsOnce;  ///< whether `end` reads the element

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

/// A lane has kAcross<kWide> times kWide neighbouring columns, which it loads at once.
template <int kWide>
inline constexpr int kAcross = kWide == 1 ? 4 : 8 / kWide;
constexpr int kDeep = 4;

/// Operands of `columns`: target, source. blockIdx.x selects the head, blockIdx.y the columns.
// Long: sums and addresses stay in registers over all orders of a key.
template <class T, class Rule, int kWide, class Key, class Index>
__global__ void __launch_bounds__(kThreads)
    add_columns(Stored<T>* target, const Stored<T>* source, Orders<Key, Index> orders, int64_t address_step,
                Index column_count, StridedIndexer<2, Index> columns) {
  lorry::cuda::begin_programmatic();
  constexpr int kTimes = kAcross<kWide>, kStep = 32 * kTimes * kWide;
  using Columns = Run<Stored<T>, kWide>;
  const uint32_t lane = threadIdx.x % 32, i = blockIdx.x * kWarps + threadIdx.x / 32;
  if (i >= orders.count) return;  // uniform over the warp
  // The keys and numbers of this order and of the next 31, and the key before them.
  const auto key_at = [&](uint32_t at) { return at < orders.count ? orders.keys[at] : orders.nowhere; };
  const auto number_at = [&](uint32_t at) { return at < orders.count ? orders.numbers[at] : 0; };
  const Key first_key = key_at(i + lane), before = i > 0 ? orders.keys[i - 1] : orders.nowhere;
  const uint32_t first_number = number_at(i + lane);
  const Key key = __shfl_sync(kAll, first_key, 0);
  if (key == orders.nowhere || key == before) return;  // not a head
  for (Index base = static_cast<Index>(blockIdx.y) * kStep; base < column_count;
       base += static_cast<Index>(gridDim.y) * kStep) {
    Stored<T>* to[kTimes];
    const Stored<T>* from[kTimes];
    Sum<T> sum[kTimes][kWide] = {};
#pragma unroll
    for (int v = 0; v < kTimes; ++v) {
      const Index column = base + (32 * v + lane) * kWide;
      to[v] = nullptr;
      if (column >= column_count) continue;
      Index at[2];
      columns(column, at);
      to[v] = target + static_cast<int64_t>(key) * address_step + at[0];
      from[v] = source + at[1];
      const Columns old = load_run<Stored<T>, kWide>(to[v]);
#pragma unroll
      for (int w = 0; w < kWide; ++w) sum[v][w] = Rule::begin(&old.at[w]);
    }
    for (uint32_t start = i;; start += 32) {
      const bool mine = (start == i ? first_key : key_at(start + lane)) == key;
      const Index offset = mine ? orders.source(start == i ? first_number : number_at(start + lane)) : 0;
      const int length = __popc(__ballot_sync(kAll, mine));  // equal keys are adjacent
      for (int k = 0; k < length; k += kDeep) {
        Columns come[kDeep][kTimes];
#pragma unroll
        for (int u = 0; u < kDeep; ++u) {
          const Index row = __shfl_sync(kAll, offset, k + u);  // k + u stays below 32
#pragma unroll
          for (int v = 0; v < kTimes; ++v)
            if (k + u < length && to[v] != nullptr) come[u][v] = load_run<Stored<T>, kWide>(from[v] + row);
        }
#pragma unroll
        for (int u = 0; u < kDeep; ++u)
#pragma unroll
          for (int v = 0; v < kTimes; ++v)
#pragma unroll
            for (int w = 0; w < kWide; ++w)
              if (k + u < length && to[v] != nullptr) Rule::combine(sum[v][w], Rule::read(&come[u][v].at[w]));
      }
      if (length < 32) break;
    }
#pragma unroll
    for (int v = 0; v < kTimes; ++v) {
      if (to[v] == nullptr) continue;
      Columns sums;
      if constexpr (Rule::kReadsAtEnd) sums = load_run<Stored<T>, kWide>(to[v]);
#pragma unroll
      for (int w = 0; w < kWide; ++w) Rule::end(sum[v][w], &sums.at[w]);
      store_run(to[v], sums);
    }
  }
}

/// Whether a lane can access 16 bytes of columns at once: they are contiguous, and every address is a multiple.
template <class T>
bool aligned_columns(const PutArgs& args, const PutPlan& p) {
  const Iteration &columns = p.columns, &orders = p.orders;
  if (columns.rank != 1 || columns.strides[0][0] != 1 || columns.strides[1][0] != 1) return false;
  int64_t all = columns.sizes[0] | (p.key_step * p.address_step);
  for (int d = 0; d < orders.rank; ++d) all |= (orders.strides[0][d] * p.address_step) | orders.strides[1][d];
  return all % kRun<Stored<T>> == 0 && aligned16(args.target.data) && aligned16(args.source.data);
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
  const auto launch = [&]<int kWide>() {
    constexpr int64_t kStep = 32 * kAcross<kWide> * kWide;
    const dim3 grid(static_cast<unsigned>((count + kWarps - 1) / kWarps),
                    static_cast<unsigned>(std::min<int64_t>((width + kStep - 1) / kStep, 65535)));
    lorry::cuda::launch(stream, {grid, kThreads}, add_columns<T, Rule, kWide, Key, Index>, args.target.as<Stored<T>>(),
                        args.source.as<const Stored<T>>(), orders, p.address_step, static_cast<Index>(width),
                        StridedIndexer<2, Index>(p.columns));
  };
  if constexpr (kFloatingType<T> && sizeof(T) > 1 && sizeof(Key) == 4)
    if (aligned_columns<T>(args, p)) return launch.template operator()<kRun<T>>();
  launch.template operator()<1>();
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
