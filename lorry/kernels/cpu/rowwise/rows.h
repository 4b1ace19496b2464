#pragma once

// Access to contiguous rows of any floating dtype in the compute type: in place if they have that type, else through a
// converted copy.

#include <algorithm>
#include <vector>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/common/array.h"
#include "lorry/kernels/cpu/common/load_store.h"

namespace lorry::kernels::cpu {

/// Reads rows of n elements that begin `step` elements apart, up to `most` at once if they lie without gaps. Each
/// thread has its own, because it owns the buffer.
template <class C>
class RowReader {
 public:
  RowReader(const Array& x, int64_t n) : RowReader(x, n, n) {}
  RowReader(const Array& x, int64_t n, int64_t step, int64_t most = 1)
      : x_(x), n_(n), step_(step), buffer_(x.dtype == dtype_of<C> ? 0 : n * most) {}
  const C* operator()(int64_t row, int64_t count = 1) {
    if (buffer_.empty()) return x_.as<const C>() + row * step_;
    load(buffer_.data(), x_.as<const char>() + row * step_ * size_of(x_.dtype), x_.dtype, 1, n_ * count);
    return buffer_.data();
  }

 private:
  const Array& x_;
  int64_t n_, step_;
  std::vector<C> buffer_;
};

/// Gives the memory to write a row to. Call `done` afterwards: it stores the buffer, if one is used. Loops that store
/// rows themselves use the memory as space.
template <class C>
class RowWriter {
 public:
  RowWriter(const Array& out, int64_t n) : RowWriter(out, n, n) {}
  RowWriter(const Array& out, int64_t n, int64_t step, int64_t most = 1)
      : out_(out), n_(n), step_(step), buffer_(out.dtype == dtype_of<C> ? 0 : n * most) {}
  C* operator()(int64_t row) { return buffer_.empty() ? out_.as<C>() + row * step_ : buffer_.data(); }
  void done(int64_t row, int64_t count = 1) {
    if (!buffer_.empty())
      store(out_.as<char>() + row * step_ * size_of(out_.dtype), out_.dtype, 1, buffer_.data(), n_ * count);
  }

 private:
  const Array& out_;
  int64_t n_, step_;
  std::vector<C> buffer_;
};

/// n elements in the compute type: in place if they have that type, else a converted copy. If the array is absent, all
/// elements are `otherwise`.
template <class C>
class ConvertedRow {
 public:
  ConvertedRow(const Array& x, int64_t n, C otherwise)
      : in_place_(x.dtype == dtype_of<C> ? x.as<const C>() : nullptr), buffer_(in_place_ ? 0 : n, otherwise) {
    if (x.data && !in_place_) load(buffer_.data(), x.data, x.dtype, 1, n);
  }
  const C* data() const { return in_place_ ? in_place_ : buffer_.data(); }
  C operator[](int64_t i) const { return data()[i]; }

 private:
  const C* in_place_;
  std::vector<C> buffer_;
};

/// How many rows of n elements a loop is given at once, so that its call costs little for each.
inline int64_t rows_at_once(int64_t n) { return std::max<int64_t>(1, 1024 / n); }

/// The number of rows worth waking a thread for.
inline int64_t row_grain(int64_t n) { return n >= 16384 ? 1 : 16384 / (n + 1) + 1; }

}  // namespace lorry::kernels::cpu
