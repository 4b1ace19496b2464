#pragma once

// Functions by polynomials of their own in each of 32 intervals for f32 and 16 for f64, where one instruction reads a
// table of so many numbers (AVX-512).
//
// Interval n lies around kWidth * n. Its polynomial is one in the distance from a middle, which is where the constant
// term is nearly a number of the type: so the error of the result is little more than that of one rounding. The
// polynomials interpolate at Chebyshev's points (tools/erf_tables.py). The middles were searched at random near
// kWidth * n; for f32 the coefficients too, until gelu of every 16-bit float is what erf gives.

#include "lorry/kernels/cpu/common/vec.h"

#if HWY_TARGET == HWY_AVX3

namespace lorry::kernels::cpu::LORRY_SIMD::detail {

/// Coefficients by power and interval: of erf(u / sqrt(2)) / 2, and of erf(u), less u in intervals 0 and 1.
inline constexpr double kHalfErfWidth = 3.0 / 16, kErfWidth = 49.0 / 128;

// clang-format off

alignas(64) inline constexpr float kHalfErfMiddle[32] =
    {0, 0x1.79fcfp-3f, 0x1.7bd076p-2f, 0x1.226bb8p-1f, 0x1.7c7edcp-1f, 0x1.e3e7c2p-1f, 0x1.214e1p+0f,
     0x1.51e36ep+0f, 0x1.8095e8p+0f, 0x1.b207ecp+0f, 0x1.e1890ap+0f, 0x1.079c6ap+1f, 0x1.1fd45ap+1f,
     0x1.377b1ap+1f, 0x1.50a71cp+1f, 0x1.6892ap+1f, 0x1.80cea4p+1f, 0x1.97cf2ap+1f, 0x1.af23dap+1f,
     0x1.c8b2bap+1f, 0x1.e039ap+1f, 0x1.f812f8p+1f, 0x1.08559ep+2f, 0x1.13fd6ep+2f, 0x1.1db12ep+2f,
     0x1.2e44acp+2f, 0x1.39a98p+2f, 0x1.3e56bep+2f, 0x1.4aa93p+2f, 0x1.5ae14ap+2f, 0x1.6e1d46p+2f,
     0x1.79be04p+2f};
alignas(64) inline constexpr float kHalfErf[6][32] = {
    {0, 0x1.2be326p-4f, 0x1.283d88p-3f, 0x1.b7bf52p-3f, 0x1.15d14ap-2f, 0x1.4f9168p-2f, 0x1.7bae62p-2f,
     0x1.a051c2p-2f, 0x1.bbe46cp-2f, 0x1.d1ec68p-2f, 0x1.e14b5p-2f, 0x1.ebcd32p-2f, 0x1.f37054p-2f,
     0x1.f857b2p-2f, 0x1.fba12cp-2f, 0x1.fd8496p-2f, 0x1.fea564p-2f, 0x1.ff42eep-2f, 0x1.ff9cdcp-2f,
     0x1.ffd0d8p-2f, 0x1.ffe8fcp-2f, 0x1.fff53cp-2f, 0x1.fffb4p-2f, 0x1.fffde2p-2f, 0x1.fffef2p-2f,
     0x1.ffffb2p-2f, 0x1.ffffep-2f, 0x1.ffffeap-2f, 0x1.fffff8p-2f, 0x1.fffffep-2f, 0x1p-1f, 0x1p-1f},
    {0x1.988454p-2f, 0x1.919e32p-2f, 0x1.7d5c4ep-2f, 0x1.5bcfa2p-2f, 0x1.35f1ccp-2f, 0x1.055c42p-2f,
     0x1.af6fcp-3f, 0x1.55f15ap-3f, 0x1.0857c2p-3f, 0x1.843924p-4f, 0x1.1697d4p-4f, 0x1.88025ap-5f,
     0x1.04ca9cp-5f, 0x1.526c48p-6f, 0x1.9b656ep-7f, 0x1.ee981ap-8f, 0x1.1cff52p-8f, 0x1.46c3f8p-9f,
     0x1.679eeep-10f, 0x1.67db2ap-11f, 0x1.6f45ccp-12f, 0x1.66daaep-13f, 0x1.4a9b3ep-14f, 0x1.328554p-15f,
     0x1.3b33e6p-16f, 0x1.7fad78p-18f, 0x1.45c652p-19f, 0x1.c63c68p-20f, 0x1.5642a8p-21f, 0x1.65f546p-23f,
     0x1.0238fp-25f, 0x1.7595bep-27f},
    {0, -0x1.287f42p-5f, -0x1.1ae6fap-4f, -0x1.8a936cp-4f, -0x1.ccac62p-4f, -0x1.ee0994p-4f, -0x1.e790a8p-4f,
     -0x1.c3527cp-4f, -0x1.8d1e76p-4f, -0x1.491a7ep-4f, -0x1.060442p-4f, -0x1.93aa0cp-5f, -0x1.25379p-5f,
     -0x1.9bc464p-6f, -0x1.0e80e4p-6f, -0x1.5c506cp-7f, -0x1.ac62bep-8f, -0x1.0446ep-8f, -0x1.2ed336p-9f,
     -0x1.40f786p-10f, -0x1.5892f4p-11f, -0x1.6149dep-12f, -0x1.558f64p-13f, -0x1.4a5a4p-14f, -0x1.5fc4aep-15f,
     -0x1.c508b2p-17f, -0x1.8f3412p-18f, -0x1.1a593p-18f, -0x1.b9fc68p-20f, -0x1.e50518p-22f, -0x1.823208p-24f,
     -0x1.133cfap-25f},
    {-0x1.10582ap-4f, -0x1.029faap-4f, -0x1.b6856ap-5f, -0x1.3a8b6ap-5f, -0x1.720818p-6f, -0x1.299e9p-8f,
     0x1.3ed04p-7f, 0x1.5253cap-6f, 0x1.bafe22p-6f, 0x1.e527f4p-6f, 0x1.d76a24p-6f, 0x1.a78cp-6f,
     0x1.60a21ap-6f, 0x1.159912p-6f, 0x1.95bcbep-7f, 0x1.1def42p-7f, 0x1.7dc9f2p-8f, 0x1.f1dd1ep-9f,
     0x1.360aa2p-9f, 0x1.5f2858p-10f, 0x1.914ea8p-11f, 0x1.b25a6ep-12f, 0x1.bb3156p-13f, 0x1.bf3c7p-14f,
     0x1.f15558p-15f, 0x1.546ac6p-16f, 0x1.38c064p-17f, 0x1.bf3c9p-18f, 0x1.6cd98ep-19f, 0x1.a787f8p-21f,
     -0x1.53262p-24f, 0x1.0c0286p-24f},
    {0, 0x1.247fa8p-7f, 0x1.0d5fc2p-6f, 0x1.5f97p-6f, 0x1.773e5p-6f, 0x1.5a7846p-6f, 0x1.17bc7cp-6f,
     0x1.7a67e6p-7f, 0x1.8a0d3p-8f, 0x1.c06522p-11f, -0x1.75b2e2p-9f, -0x1.4cf722p-8f, -0x1.91253ap-8f,
     -0x1.907916p-8f, -0x1.60fae4p-8f, -0x1.23dedp-8f, -0x1.b124eap-9f, -0x1.35d31ep-9f, -0x1.a5d52ap-10f,
     -0x1.0a03d8p-10f, -0x1.39ec1p-11f, -0x1.7dc68ep-12f, -0x1.8fc5c2p-13f, -0x1.bf0e26p-14f, -0x1.ef102ap-15f,
     -0x1.6b2f42p-16f, -0x1.575a7ep-17f, -0x1.e7207ep-18f, -0x1.a01836p-19f, -0x1.0c3704p-20f, -0x1.f72d34p-20f,
     -0x1.3b937ep-24f},
    {0x1.464d14p-7f, 0x1.2a38b6p-7f, 0x1.b9576cp-8f, 0x1.bec054p-9f, -0x1.2ae41cp-13f, -0x1.a44242p-9f,
     -0x1.597b8p-8f, -0x1.918cap-8f, -0x1.80224p-8f, -0x1.3950f6p-8f, -0x1.aecabep-9f, -0x1.cc8d3ep-10f,
     -0x1.e7e96cp-12f, 0x1.d628bap-12f, 0x1.fa6152p-11f, 0x1.52e4c2p-10f, 0x1.18fc06p-10f, 0x1.69575ap-10f,
     0x1.796a92p-11f, 0x1.74db28p-11f, 0x1.095be8p-13f, 0x1.3a2dd4p-13f, 0x1.3c0c7ep-15f, 0x1.c5d8f8p-14f,
     0x1.46d886p-15f, 0x1.4f8ffp-16f, 0x1.8a89e2p-18f, 0x1.34c8e4p-18f, 0x1.1561a8p-19f, 0x1.dd8f0ep-21f,
     0x1.f0f676p-16f, 0x1.384858p-23f}};


alignas(64) inline constexpr double kErfMiddle[16] =
    {0, 0x1.884f99a1d5404p-2, 0x1.87f743ebc9a21p-1, 0x1.25e5eb9471fbfp+0, 0x1.882df8b5e5ed8p+0,
     0x1.eaa7d22fc8c28p+0, 0x1.25cdaf30c08bdp+1, 0x1.57075be0f41f4p+1, 0x1.87fa719853879p+1,
     0x1.b95be79b1c39bp+1, 0x1.e9d3f4bd0e350p+1, 0x1.0d86b435ef11cp+2, 0x1.25ea1f135fdd6p+2,
     0x1.3e8dfb117f87fp+2, 0x1.59095810c6644p+2, 0x1.7150c027d4599p+2};
alignas(64) inline constexpr double kErf[14][16] = {
    {0, 0x1.da0a409606090p-6, 0x1.712c69e28d9a0p-1, 0x1.ca834edf8bb92p-1, 0x1.f0801f7321b7ep-1,
     0x1.fc8f790a105ecp-1, 0x1.ff66a61b63f28p-1, 0x1.ffec4076fa8e0p-1, 0x1.fffe0d7652656p-1,
     0x1.ffffdbbe44820p-1, 0x1.fffffde84ad18p-1, 0x1.ffffffe9c2e7cp-1, 0x1.ffffffff48fd2p-1,
     0x1.fffffffffbbf0p-1, 0x1.fffffffffff23p-1, 0x1.ffffffffffffdp-1},
    {0x1.06eba8214db69p-3, -0x1.a46d0e50a4df1p-6, 0x1.41827223f3ae0p-1, 0x1.3548a58dd351bp-2,
     0x1.ba291b2b478e3p-4, 0x1.d55f874deb471p-6, 0x1.7ce80bfd49cdcp-8, 0x1.c1bb2be31a58ap-11,
     0x1.904678bd565a7p-14, 0x1.03cf48e5d661bp-17, 0x1.087d1ba1599c9p-21, 0x1.80a78dc4d6cd9p-26,
     0x1.adc51c4164461p-31, 0x1.595c644cc3f2cp-36, 0x1.2ed324fa11671p-42, 0x1.18d3739b1b0adp-48},
    {0, -0x1.7e3e72c24dd04p-2, -0x1.ec44c67e4db8cp-2, -0x1.6311ec1472692p-2, -0x1.52af2c3305576p-3,
     -0x1.c1ce45d630e55p-5, -0x1.b527a035a981fp-7, -0x1.2d4f5aaa1a5c8p-9, -0x1.32719c6c2fba1p-12,
     -0x1.bfed5a504e205p-16, -0x1.fa11f5bf8c734p-20, -0x1.94fa7672e2f2fp-24, -0x1.ed6ba3adf58c6p-29,
     -0x1.adc04f2f48aa2p-34, -0x1.98259a6f3ea0dp-40, -0x1.95215e83c3d39p-46},
    {-0x1.812746b0379e5p-2, -0x1.d5e3f69b56ac1p-3, 0x1.273454efcab2dp-5, 0x1.5152c8455a545p-3,
     0x1.1034847af2beep-3, 0x1.f08289cf7af02p-5, 0x1.2ebb0dd6ecfa5p-6, 0x1.f4d861643b1c8p-9,
     0x1.2821f0dc6f216p-11, 0x1.ed2f2eb8db876p-15, 0x1.37bfe3dbb3cf9p-18, 0x1.143cb17aaafc8p-22,
     0x1.70b63128d617cp-27, 0x1.5d503a6a19611p-32, 0x1.686ca669af7bbp-38, 0x1.7fc985404394dp-44},
    {0, 0x1.58d732202d4cbp-3, 0x1.2bedf8b0df1f9p-3, 0x1.58aa185b4563fp-6, -0x1.7e6e5e2902bddp-5,
     -0x1.45e03faea92b2p-5, -0x1.129361c3a3899p-6, -0x1.1d5643a2d1229p-8, -0x1.925a9c05c0874p-11,
     -0x1.83cfe33273616p-14, -0x1.1529bed01ec7dp-17, -0x1.11f55bc88257bp-21, -0x1.92c292c27bfe5p-26,
     -0x1.a0c36124b4b85p-31, -0x1.d4c602a9fadadp-37, -0x1.0c6491d17f2c6p-42},
    {0x1.ce2f21a04138fp-4, 0x1.607c757be33f5p-5, -0x1.c7f16d7ecf23ap-5, -0x1.e3ecfc2a7997dp-5,
     -0x1.7133008155ac3p-7, 0x1.9384b89b3acc9p-7, 0x1.428ea29aabd60p-7, 0x1.cd7d236757161p-9,
     0x1.94043a6648d98p-11, 0x1.cce932b38bf9ap-14, 0x1.797e974fc0b84p-17, 0x1.a40ed9bd13c77p-21,
     0x1.56465cd9efb4fp-25, 0x1.84aea79756449p-30, 0x1.de6b0882596b1p-36, 0x1.275cf69896b8ep-41},
    {0, -0x1.9cd8282e413eap-5, -0x1.972629ad41c75p-6, 0x1.16777bb484d44p-6, 0x1.2a3aa98d8b3ebp-6,
     0x1.6736b5c39e6ccp-9, -0x1.9168d02fdedd4p-9, -0x1.0411f25ec0ba4p-9, -0x1.311dc63d19706p-11,
     -0x1.aa577d37b4b2bp-14, -0x1.979e929caa7d1p-17, -0x1.024ea41d115bep-20, -0x1.d64130a299803p-25,
     -0x1.26a79262ce417p-29, -0x1.8e9f7230eb6f4p-35, -0x1.0a2ce77769bb2p-40},
    {-0x1.b82ce30d585a8p-6, -0x1.35e07a88b429ep-8, 0x1.322bfee61a784p-6, 0x1.16337ff33b73dp-7,
     -0x1.5a54b88b4fa46p-8, -0x1.22816b752a1bep-8, -0x1.5f967955dd35bp-12, 0x1.6504ae1abce5ep-11,
     0x1.5588ffeb9f3f2p-12, 0x1.3647f71f44395p-14, 0x1.63cc2cfc58798p-17, 0x1.04cc940aacf30p-20,
     0x1.0bc496b55f5c2p-24, 0x1.74c31c73492e3p-29, 0x1.16875aaf2b6a1p-34, 0x1.93af0691f8b63p-40},
    {0, 0x1.70b4cd7a60876p-7, 0x1.ca5ef748f1937p-10, -0x1.8e60efcaf40ddp-8, -0x1.ebf0358fea1fbp-10,
     0x1.92d74e0cc2123p-10, 0x1.bcf12ef8caf4ep-11, -0x1.046f91bfb7ef1p-15, -0x1.056b28d07fb24p-13,
     -0x1.60398cda5b4afp-15, -0x1.fa15d74b71900p-18, -0x1.b67475eca74c9p-21, -0x1.010ac0ee6159bp-24,
     -0x1.90b68d03674d6p-29, -0x1.4cafccfbdddc8p-34, -0x1.06aa0771e04b3p-39},
    {0x1.565bc576b90dcp-8, -0x1.437881b222f43p-15, -0x1.01a0e7cedd10cp-8, -0x1.a386320cd14bdp-14,
     0x1.b4d7449e85793p-10, 0x1.b2fa563889e86p-13, -0x1.818b1e9f61ec1p-12, -0x1.ddd00ce9aebf2p-14,
     0x1.68a56ab5657bcp-16, 0x1.2a7415e675efcp-16, 0x1.2401e365640c0p-18, 0x1.34e874154cdafp-21,
     0x1.a481b67b5aac3p-25, 0x1.72be035271e19p-29, 0x1.58842f78ffeb0p-34, 0x1.29bb9d0795ef0p-39},
    {0, -0x1.05c5f76942df1p-9, 0x1.3106674366788p-12, 0x1.214c59b0b8d8ep-10, -0x1.72ec27c8f2443p-13,
     -0x1.71d8f0411d74dp-12, 0x1.2c52fcaac3d26p-16, 0x1.17457ece02b81p-14, 0x1.2de3dc3f0d357p-17,
     -0x1.42615a165aca6p-18, -0x1.0b0fced9247ebp-19, -0x1.6c745c057697dp-22, -0x1.26bf536cd59fep-25,
     -0x1.299e23cbce19bp-29, -0x1.385b45964d5b1p-34, -0x1.28cbbebed079cp-39},
    {-0x1.c022e55748c61p-11, 0x1.30e5774582af7p-13, 0x1.3bff41795b5a6p-11, -0x1.c0b281778b211p-13,
     -0x1.d48bb19dc7661p-13, 0x1.75238ff880728p-14, 0x1.b9f9d1a003521p-15, -0x1.cf018c1f8d882p-17,
     -0x1.1e1c579d78011p-17, 0x1.b090226442c0bp-24, 0x1.68f1003d02e5bp-21, 0x1.63f77467e5158p-23,
     0x1.62c20764238d6p-26, 0x1.a17954a1c97c0p-30, 0x1.ed85b2a9baba7p-35, 0x1.0257257880595p-39},
    {0, 0x1.2eb7c9bc3d9d7p-12, -0x1.eeee5703d6618p-14, -0x1.06a516e9d04a6p-13, 0x1.586c4dcc4bf7ap-14,
     0x1.a83e548a1af9dp-16, -0x1.79b550c9108fap-16, -0x1.0e889530317bbp-18, 0x1.8bdd4f768cb9fp-19,
     0x1.6e1b8998f65aep-21, -0x1.09cc66dd0d391p-23, -0x1.183d1c81cb188p-24, -0x1.737103dc26728p-27,
     -0x1.088dfd9357e82p-30, -0x1.650cf4c005c74p-35, -0x1.a7f446134a632p-40},
    {0x1.f23e436715dd0p-14, -0x1.34d8d8db2c06ap-15, -0x1.254613a6e4f1ap-14, 0x1.b06122874521bp-15,
     0x1.9407eac772caap-17, -0x1.4b5f714d23f44p-16, 0x1.3b0e96d02d44dp-21, 0x1.dc444c6be1e1dp-19,
     -0x1.92306b8d17e94p-23, -0x1.905640e158d1dp-22, -0x1.658d90cff6e81p-26, 0x1.3f5b2d7d34255p-26,
     0x1.3c55f384ebfdap-28, 0x1.1ac9700909217p-31, 0x1.285612c5e6de1p-35, 0x1.8d1398b65adc6p-40}};

// clang-format on

/// table[n] of every lane; of n only the lowest bits count.
LORRY_INLINE Vec<float> entry(const float (&table)[32], __m512i n) {
  return Vec<float>(Vec<float>::Raw{_mm512_permutex2var_ps(_mm512_load_ps(table), n, _mm512_load_ps(table + 16))});
}
LORRY_INLINE Vec<double> entry(const double (&table)[16], __m512i n) {
  return Vec<double>(Vec<double>::Raw{_mm512_permutex2var_pd(_mm512_load_pd(table), n, _mm512_load_pd(table + 8))});
}

/// The nearest whole number to u / width, in the low bits of a number: kShift + n.
template <class T>
inline constexpr double kShift = std::same_as<T, float> ? 0x1.8p23 : 0x1.8p52;
template <class T>
LORRY_INLINE Vec<T> shifted_interval(Vec<T> u, double width) {
  return Vec<T>(hn::MulAdd(u.raw, Vec<T>(1 / width).raw, Vec<T>(kShift<T>).raw));
}

/// The polynomial of interval n.
template <class T, size_t kPowers, size_t kIntervals>
LORRY_INLINE Vec<T> polynomial(const T (&table)[kPowers][kIntervals], __m512i n, Vec<T> x) {
  Vec<T> sum = entry(table[kPowers - 1], n);
  for (size_t power = kPowers - 1; power-- > 0;) sum = fma(sum, x, entry(table[power], n));
  return sum;
}

/// Within 1 ulp.
LORRY_INLINE Vec<double> erf_from_table(Vec<double> x) {
  using V = Vec<double>;
  const V u = at_most(abs(x), 5.93);  // beyond it erf is 1
  const V shifted = shifted_interval(u, kErfWidth);
  const __m512i n = _mm512_castpd_si512(shifted.raw.raw);
  const V rest = polynomial(kErf, n, u - entry(kErfMiddle, n));
  return copysign(select(shifted <= V(kShift<double> + 1), u + rest, rest), x);
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD::detail

namespace lorry::kernels::cpu::LORRY_SIMD {

/// The normal distribution function, 1/2 + erf(x / sqrt(2)) / 2; the second term is within 0.75 * 2^-25.
LORRY_INLINE Vec<float> normal_cdf(Vec<float> x) {
  using V = Vec<float>;
  const V u = detail::at_most(abs(x), 31 * detail::kHalfErfWidth);  // beyond it erf is 1
  const __m512i n = _mm512_castps_si512(detail::shifted_interval(u, detail::kHalfErfWidth).raw.raw);
  const V half_erf = detail::polynomial(detail::kHalfErf, n, u - detail::entry(detail::kHalfErfMiddle, n));
  return V(0.5) + copysign(half_erf, x);
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD

#endif
