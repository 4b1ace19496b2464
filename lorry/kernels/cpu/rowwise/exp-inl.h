// Exponentials of numbers that are not positive: those of elements less their row's maximum.

#if defined(LORRY_KERNELS_CPU_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LORRY_KERNELS_CPU_EXP_INL_H
#undef LORRY_KERNELS_CPU_EXP_INL_H
#else
#define LORRY_KERNELS_CPU_EXP_INL_H
#endif

#include <hwy/highway.h>

#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lorry::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// hn::Exp(d, x) for x <= 0, with its bits; of a NaN anything. AVX-512 scales by a power of two in one instruction,
/// which rounds once, as Highway's two factors do. Without positive numbers the rounding to a whole power needs no case
/// for an overflow.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_not_positive(D d, hn::Vec<D> x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<D, hn::ScalableTag<float>>) {
    const auto set = [=](float value) HWY_ATTR { return hn::Set(d, value); };
    const auto power = hn::Trunc(hn::MulAdd(x, set(1.442695040888963407359924681f), set(-0.5f)));
    const auto rest =  // x - power * log(2)
        hn::MulAdd(power, set(-1.428606765330187045e-6f), hn::MulAdd(power, set(-0.693145751953125f), x));
    const auto y = hn::Add(hn::impl::ExpImpl<float>().ExpPoly(d, rest), set(1));
    return hn::IfThenElseZero(hn::Ge(x, set(-104)), hn::Vec<D>{_mm512_scalef_ps(y.raw, power.raw)});
  }
#endif
  return hn::Exp(d, x);
}

}  // namespace lorry::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
