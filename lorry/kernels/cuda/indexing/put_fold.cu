// Products and extremes of all elements that are written to the same address, in order (put_orders.h), with the bits of
// the CPU. Bytes moved: the source once, the targets of heads twice, 8 or 12 per order for its key.

#include "lorry/kernels/cuda/indexing/put_lines.h"
#include "lorry/kernels/cuda/indexing/put_orders.h"

namespace lorry::kernels::cuda {
namespace {

/// The type of intermediate results: f32 for narrow floats, 32 bits for small integers, whose low bits are correct.
template <class T>
using Carried =
    std::conditional_t<kNarrowType<T>, float, std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, int32_t, T>>;

/// The operation is a run-time argument, so that a type needs one kernel for all three.
template <class T>
struct Folding {
  using Value = Carried<T>;
  Combine operation;

  __device__ __forceinline__ static Value read(const Stored<T>* from) {
    if constexpr (std::is_same_v<T, bool>) {
      return *from != 0;
    } else {
      return static_cast<Value>(*from);
    }
  }
  __device__ __forceinline__ static Value begin(const Stored<T>* to) { return read(to); }
  __device__ __forceinline__ static void end(Value value, Stored<T>* to) { *to = static_cast<Stored<T>>(value); }
  __device__ __forceinline__ void combine(Value& here, Value come) const {
    if (operation == Combine::multiply) {
      if constexpr (kNarrowType<T>) {
        here = static_cast<float>(T(here * come));  // rounded after each product, like the CPU
      } else if constexpr (std::is_integral_v<T>) {
        using Bits = std::make_unsigned_t<Value>;
        here = static_cast<Value>(static_cast<Bits>(here) * static_cast<Bits>(come));  // wraps
      } else {
        here = here * come;
      }
    } else if (operation == Combine::maximum) {
      here = come > here || come != come ? come : here;
    } else {
      here = come < here || come != come ? come : here;
    }
  }
};

template <class Key, class Index>
void fold(const PutArgs& args, const PutPlan& p, const Key* keys, const uint32_t* numbers, int64_t first, int64_t count,
          Stream stream) {
  const Orders<Key, Index> orders = sorted_orders<Key, Index>(p, keys, numbers, first, count);
  visit(args.target.dtype,
        [&]<class T>(Type<T>) { launch_elements<T>(args, p, orders, Folding<T>{args.combine}, stream); });
}

}  // namespace

void fold_in_order(const PutArgs& args, const PutPlan& p, const uint32_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream) {
  fold<uint32_t, uint32_t>(args, p, keys, numbers, first, count, stream);
}
void fold_in_order(const PutArgs& args, const PutPlan& p, const uint64_t* keys, const uint32_t* numbers, int64_t first,
                   int64_t count, Stream stream) {
  fold<uint64_t, int64_t>(args, p, keys, numbers, first, count, stream);
}
void fold_lines(const PutArgs& args, const PutLines& lines, Stream stream) {
  visit(args.target.dtype,
        [&]<class T>(Type<T>) { launch_lines<Stored<T>>(args, lines, Folding<T>{args.combine}, stream); });
}

}  // namespace lorry::kernels::cuda
