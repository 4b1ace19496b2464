#pragma once

// Elements of a tensor where the test can read and write them, whatever its device: oracles look at memory, not through
// operators.

#include <cstring>
#include <string>
#include <vector>

#include "lorry/device/device.h"
#include "lorry/memory/upload.h"
#include "lorry/tensor/tensor.h"

namespace lorry::test {

namespace detail {
/// A copy of the last storages that were looked at, each kept until another is or until it is written. The tensor is
/// kept too, so that no other storage takes its place. For one thread at a time.
struct Mirror {
  Tensor of;
  uint32_t version = 0;
  std::vector<char> bytes;
};

inline constexpr int kMirrors = 4;

inline Mirror& mirror(const Tensor& x) {
  static Mirror* const kept = new Mirror[kMirrors];  // never destroyed: the device may be gone before
  static int oldest = 0;
  for (int i = 0; i < kMirrors; ++i)
    if (Mirror& m = kept[i]; m.of.defined() && &m.of.storage() == &x.storage() && m.version == x.version()) return m;
  Mirror& m = kept[oldest++ % kMirrors];
  m = {x.detach(), x.version(), std::vector<char>(static_cast<size_t>(x.storage().bytes()))};
  device::copy(m.bytes.data(), kCPU, x.storage().data(), x.device(), x.storage().bytes(), current_stream(x.device()));
  current_stream(x.device()).synchronize();
  return m;
}
}  // namespace detail

/// The first element in host memory, with x's strides around it: x's own memory on the CPU, else a copy that stays
/// until a few other tensors were looked at.
inline const void* host_data(const Tensor& x) {
  if (x.device().is_cpu()) return x.data_ptr();
  return detail::mirror(x).bytes.data() + x.storage_offset() * size_of(x.dtype());
}
template <class T>
const T* host(const Tensor& x) {
  return static_cast<const T*>(host_data(x));
}

/// Writes one element, `offset` elements from the first. Not a write that a version counts.
inline void write_element(const Tensor& x, int64_t offset, const void* value) {
  const auto size = static_cast<size_t>(size_of(x.dtype()));
  void* const to = static_cast<char*>(x.data_ptr()) + offset * size_of(x.dtype());
  if (x.device().is_cpu()) {
    std::memcpy(to, value, size);
    return;
  }
  char element[8];
  std::memcpy(element, value, size);  // the value may lie in a mirror that goes when another comes
  detail::Mirror& m = detail::mirror(x);
  std::memcpy(m.bytes.data() + (x.storage_offset() + offset) * size_of(x.dtype()), element, size);
  memory::upload(to, x.device(), element, size_of(x.dtype()), current_stream(x.device()));
}

/// Writes x.numel() elements to a contiguous x.
inline void write_all(const Tensor& x, const void* values) {
  memory::upload(x.data_ptr(), x.device(), values, x.nbytes(), current_stream(x.device()));
  if (!x.device().is_cpu()) x.storage().written_by("write_all");  // a mirror of it is stale
}

/// The bytes of a contiguous tensor.
inline std::string bytes_of(const Tensor& x) {
  return {static_cast<const char*>(host_data(x)), static_cast<size_t>(x.nbytes())};
}

/// EXPECT_THROW of an error that a GPU sees while it runs: there it is thrown by the wait at the latest.
#define EXPECT_THROW_IN_TIME(call, Error)                      \
  EXPECT_THROW(                                                \
      {                                                        \
        call;                                                  \
        ::lorry::device::synchronize(lorry::default_device()); \
      },                                                       \
      Error)

}  // namespace lorry::test
