#include "lorry/kernels/cpu/stage.h"

#include <cstring>

namespace lorry::kernels::cpu {

template <class C>
void load(C* to, const void* from, DType dtype, int64_t stride, int64_t n) {
  visit(dtype, [&]<class T>(Type<T>) {
    const T* source = static_cast<const T*>(from);
    if (stride == 1) {
      if constexpr (std::is_same_v<T, C>)
        std::memcpy(to, source, n * sizeof(C));
      else
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(source[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(source[i * stride]);
    }
  });
}

template <class C>
void store(void* to, DType dtype, int64_t stride, const C* from, int64_t n) {
  visit(dtype, [&]<class T>(Type<T>) {
    T* target = static_cast<T*>(to);
    if (stride == 1)
      for (int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(from[i]);
    else
      for (int64_t i = 0; i < n; ++i) target[i * stride] = static_cast<T>(from[i]);
  });
}

template <class C>
void load_nonzero(C* to, const void* from, DType dtype, int64_t stride, int64_t n) {
  visit(dtype, [&]<class T>(Type<T>) {
    const T* source = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<C>(static_cast<Accumulate<T>>(source[i * stride]) != 0);
  });
}

#define LORRY_STAGE(C)                                                     \
  template void load<C>(C*, const void*, DType, int64_t, int64_t);         \
  template void store<C>(void*, DType, int64_t, const C*, int64_t);        \
  template void load_nonzero<C>(C*, const void*, DType, int64_t, int64_t);
LORRY_STAGE(float)
LORRY_STAGE(double)
LORRY_STAGE(int64_t)
#undef LORRY_STAGE

}  // namespace lorry::kernels::cpu
