// Products and extremes of what meets at one address, in order (put_orders.h): the same bits as on the CPU. Bytes
// moved: the source once, the heads' targets twice, 8 or 12 an order for its key.

#include "lorry/kernels/cuda/indexing/put_orders.h"

namespace lorry::kernels::cuda {
namespace {

/// What is carried: narrow floats in f32, and small whole numbers in 32 bits, of which the low ones are right.
template <class T>
using Carried =
    std::conditional_t<kNarrowType<T>, float, std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, int32_t, T>>;

/// The operation is told when the kernel runs, so that a type needs one kernel for all three.
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
  __device__ __forceinline__ void combine(Value& here, Value come) const {
    if (operation == Combine::multiply) {
      if constexpr (kNarrowType<T>) {
        here = static_cast<float>(T(here * come));  // rounded after each product, as the CPU does
      } else if constexpr (std::is_integral_v<T>) {
        using Bits = std::make_unsigned_t<Value>;
        here = static_cast<Value>(static_cast<Bits>(here) * static_cast<Bits>(come));  // wraps around
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

}  // namespace lorry::kernels::cuda
