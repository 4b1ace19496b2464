#include "lorry/kernels/cpu/common/past_cache.h"

#include <hwy/cache_control.h>
#include <hwy/highway.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lorry::kernels::cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLine = 64;

}  // namespace

bool exceeds_cache(int64_t bytes) {
  static const int64_t kCache = [] {
    const long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return told > 0 ? int64_t{told} : int64_t{32} << 20;
  }();
  return bytes > kCache;
}

void copy_past_cache(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  const int64_t head = std::min<int64_t>(bytes, (kLine - reinterpret_cast<intptr_t>(out) % kLine) % kLine);
  std::memcpy(out, in, static_cast<size_t>(head));
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t kVector = hn::MaxLanes(d);
  static_assert(kLine % kVector == 0);
  int64_t i = head;
  for (; i + kLine <= bytes; i += kLine)
    for (int64_t k = 0; k < kLine; k += kVector) hn::Stream(hn::LoadU(d, in + i + k), d, out + i + k);
  std::memcpy(out + i, in + i, static_cast<size_t>(bytes - i));
}

void end_streaming() { hwy::FlushStream(); }

}  // namespace lorry::kernels::cpu
