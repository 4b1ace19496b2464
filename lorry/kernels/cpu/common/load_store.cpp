#include "lorry/kernels/cpu/common/load_store.h"

namespace lorry::kernels::cpu {

template <class C>
void load_nonzero(C* to, const void* from, DType dtype, int64_t stride, int64_t n) {
  // A bool is a byte, and every byte but 0 is true.
  visit(dtype == kBool ? kU8 : dtype, [&]<class T>(Type<T>) {
    const T* source = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(static_cast<Accumulate<T>>(source[i * stride]) != 0);
  });
}

template void load_nonzero(float*, const void*, DType, int64_t, int64_t);
template void load_nonzero(double*, const void*, DType, int64_t, int64_t);
template void load_nonzero(int64_t*, const void*, DType, int64_t, int64_t);

}  // namespace lorry::kernels::cpu
