#include "lorry/layout/layout.h"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <utility>

namespace lorry {

std::ostream& operator<<(std::ostream& out, const Dims& d) { return out << to_string(d); }

int64_t checked_numel(const Dims& sizes) {
  int64_t n = 1;
  bool overflow = false, empty = false;
  for (const int64_t s : sizes) {
    require<ShapeError>(s >= 0, "negative size; got {}; expected every size >= 0", sizes);
    empty |= s == 0;
    overflow |= __builtin_mul_overflow(n, std::max<int64_t>(s, 1), &n);  // empty tensors have strides too
  }
  // The size in bytes must fit 64 bits too; an element has at most 8 bytes.
  require<ShapeError>(!overflow && n <= INT64_MAX / 8, "too many elements; got {}; expected fewer than 2^60", sizes);
  return empty ? 0 : n;
}

Layout Layout::contiguous(const Dims& sizes) {
  checked_numel(sizes);
  Layout l;
  l.rank = sizes.size();
  int64_t stride = 1;
  for (int i = l.rank - 1; i >= 0; --i) {
    l.sizes[i] = sizes[i];
    l.strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return l;
}

Layout Layout::strided(const Dims& sizes, const Dims& strides) {
  require<ShapeError>(sizes.size() == strides.size(),
                      "as many strides as sizes are needed; got sizes {} and strides {}", sizes, strides);
  checked_numel(sizes);
  Layout l;
  l.rank = sizes.size();
  std::copy(sizes.begin(), sizes.end(), l.sizes);
  std::copy(strides.begin(), strides.end(), l.strides);
  int64_t last = 0, reach = 0;
  for (int i = 0; i < l.rank; ++i) {
    const bool overflow = __builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &reach) ||
                          __builtin_add_overflow(last, reach, &last);
    require<ShapeError>(strides[i] >= 0 && !overflow && last < INT64_MAX / 8,
                        "strides are negative or reach beyond 64 bits; got sizes {} and strides {}", sizes, strides);
  }
  return l;
}

bool Layout::is_contiguous() const {
  int64_t expected = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] == 1) continue;
    if (strides[i] != expected) {
      for (int j = 0; j < i; ++j)
        if (sizes[j] == 0) return true;
      return false;
    }
    expected *= sizes[i];
  }
  return true;
}

namespace {
/// Dimensions longer than 1, from the smallest stride to the largest; for equal strides, the inner dimension first.
FixedVector<int, kMaxRank> by_stride(const Layout& l) {
  FixedVector<int, kMaxRank> order;
  for (int i = l.rank - 1; i >= 0; --i) {
    if (l.sizes[i] == 1) continue;
    order.push_back(i);
    for (size_t k = order.size() - 1; k > 0 && l.strides[order[k - 1]] > l.strides[i]; --k)
      std::swap(order[k - 1], order[k]);
  }
  return order;
}
}  // namespace

bool Layout::is_dense() const {
  if (is_contiguous()) return true;
  int64_t expected = 1;
  for (const int d : by_stride(*this)) {
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

bool Layout::has_internal_overlap() const {
  if (numel() <= 1) return false;
  int64_t reach = 0;  // the largest offset addressed by the dimensions seen so far
  for (const int d : by_stride(*this)) {
    if (strides[d] <= reach) return true;
    reach += strides[d] * (sizes[d] - 1);
  }
  return false;
}

int64_t Layout::extent() const {
  int64_t last = 0;
  for (int i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

Dims Layout::size_list() const {
  Dims d;
  for (int i = 0; i < rank; ++i) d.push_back(sizes[i]);
  return d;
}

Dims Layout::stride_list() const {
  Dims d;
  for (int i = 0; i < rank; ++i) d.push_back(strides[i]);
  return d;
}

bool operator==(const Layout& a, const Layout& b) {
  if (a.rank != b.rank) return false;
  for (int d = 0; d < a.rank; ++d)  // not std::equal: a call of memcmp takes longer than these few
    if (a.sizes[d] != b.sizes[d] || a.strides[d] != b.strides[d]) return false;
  return true;
}

int wrap_dim(int64_t dim, int rank) {
  const int64_t n = std::max(rank, 1);
  require<IndexError>(dim >= -n && dim < n,
                      "dimension out of range; got dim {} of a tensor of rank {}; expected {} to {}", dim, rank, -n,
                      n - 1);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

int wrap_new_dim(int64_t dim, int rank) {
  require<IndexError>(
      dim >= -rank - 1 && dim <= rank,
      "dimension out of range; got dim {} for one more dimension of a tensor of rank {}; expected {} to {}", dim, rank,
      -rank - 1, rank);
  return static_cast<int>(dim < 0 ? dim + rank + 1 : dim);
}

Dims wrap_dims(const Dims& dims, int rank) {
  Dims wrapped;
  if (dims.empty()) {
    for (int i = 0; i < rank; ++i) wrapped.push_back(i);
    return wrapped;
  }
  for (const int64_t d : dims) {
    const int64_t w = wrap_dim(d, rank);
    require<ShapeError>(!wrapped.contains(w), "dimension named twice; got dims {}; expected distinct dimensions", dims);
    wrapped.push_back(w);
  }
  return wrapped;
}

Dims broadcast(const Dims& a, const Dims& b) {
  if (a == b) return a;
  Dims out = Dims::filled(std::max(a.size(), b.size()), 1);
  for (int i = 1; i <= out.size(); ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1, y = i <= b.size() ? b[b.size() - i] : 1;
    require<ShapeError>(
        x == y || x == 1 || y == 1,
        "shapes do not broadcast; got {} and {}; expected sizes equal or 1, aligned at the last dimension", a, b);
    out[out.size() - i] = x == 1 ? y : x;
  }
  return out;
}

Layout expand(const Layout& layout, const Dims& sizes) {
  Layout out;
  out.rank = sizes.size();
  const int shift = out.rank - layout.rank;
  require<ShapeError>(shift >= 0, "cannot expand to fewer dimensions; got {} to {}", layout.size_list(), sizes);
  for (int i = 0; i < out.rank; ++i) {
    const int from = i - shift;
    out.sizes[i] = sizes[i];
    if (from < 0) {
      out.strides[i] = 0;
      continue;
    }
    require<ShapeError>(layout.sizes[from] == sizes[i] || layout.sizes[from] == 1,
                        "sizes do not expand; got {} to {}; expected sizes equal or 1, aligned at the last dimension",
                        layout.size_list(), sizes);
    out.strides[i] = layout.sizes[from] == sizes[i] ? layout.strides[from] : 0;
  }
  return out;
}

Dims infer_sizes(const Dims& sizes, int64_t numel) {
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1) {
      require<ShapeError>(unknown < 0, "only one size can be inferred; got {}; expected at most one -1", sizes);
      unknown = i;
      continue;
    }
    require<ShapeError>(sizes[i] >= 0, "negative size; got {}; expected sizes >= 0, or one -1", sizes);
    require<ShapeError>(!__builtin_mul_overflow(known, sizes[i], &known), "too many elements; got {}", sizes);
  }
  Dims out = sizes;
  if (unknown >= 0) {
    require<ShapeError>(known > 0 && numel % known == 0,
                        "sizes do not fit; got {} for {} elements; expected sizes whose product divides it", sizes,
                        numel);
    out[unknown] = numel / known;
  } else {
    require<ShapeError>(known == numel, "sizes do not fit; got {} for {} elements; expected sizes with that product",
                        sizes, numel);
  }
  return out;
}

bool view_as(const Layout& from, const Dims& sizes, Layout& to) {
  if (from.numel() == 0 || from.is_contiguous()) {
    to = Layout::contiguous(sizes);
    return true;
  }
  to.rank = sizes.size();
  // From the last dimension to the first: match groups of dimensions of `from` that are contiguous with each other to
  // groups of `sizes` with the same product.
  int view = to.rank - 1;
  int64_t base_stride = from.rank == 0 ? 1 : from.strides[from.rank - 1];
  int64_t run = 1, taken = 1;
  for (int d = from.rank - 1; d >= 0; --d) {
    run *= from.sizes[d];
    if (d > 0 && (from.sizes[d - 1] == 1 || from.strides[d - 1] == run * base_stride)) continue;
    while (view >= 0 && (taken < run || sizes[view] == 1)) {
      to.sizes[view] = sizes[view];
      to.strides[view] = taken * base_stride;
      taken *= sizes[view--];
    }
    if (taken != run) return false;
    if (d > 0) {
      base_stride = from.strides[d - 1];
      run = taken = 1;
    }
  }
  return view == -1;
}

bool spans_overlap(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                   int64_t element_b) {
  const auto first_a = reinterpret_cast<uintptr_t>(a), first_b = reinterpret_cast<uintptr_t>(b);
  return first_a < first_b + static_cast<uintptr_t>(lb.extent() * element_b) &&
         first_b < first_a + static_cast<uintptr_t>(la.extent() * element_a);
}

namespace {

/// A tensor's elements as intervals of bytes.
struct Intervals {
  struct Dim {
    int64_t size, stride;
  };
  uintptr_t first;
  int64_t bytes;
  FixedVector<Dim, kMaxRank> dims = {};  ///< longer than 1, from the largest stride to the smallest
  bool ordered = true;                   ///< later elements have higher addresses, without overlap
  int64_t count = 1;

  Intervals(const void* at, const Layout& l, int64_t element)
      : first(reinterpret_cast<uintptr_t>(at)), bytes(element), count(l.numel()) {
    const auto order = by_stride(l);
    int64_t reach = element;
    for (const int d : order) {
      ordered = ordered && l.strides[d] * element >= reach;
      reach += l.strides[d] * element * (l.sizes[d] - 1);
    }
    for (int k = order.size() - 1; k >= 0; --k) dims.push_back({l.sizes[order[k]], l.strides[order[k]] * element});
  }
  /// Whether an element has a byte in [from, from + length). The layout is ordered.
  bool meets(uintptr_t from, int64_t length) const {
    // Find the last element that begins at or before the last byte of the interval.
    int64_t left = static_cast<int64_t>(from - first) + length - 1;
    if (left < 0) return false;
    for (const Dim& d : dims) left -= std::min(left / d.stride, d.size - 1) * d.stride;
    return left < bytes + length - 1;
  }
  /// The bytes that the dimensions with strides below `period` span.
  int64_t span_below(int64_t period) const {
    int64_t span = bytes;
    for (const Dim& d : dims)
      if (d.stride < period) span += d.stride * (d.size - 1);
    return span;
  }
};

/// Whether the elements of a and b do not overlap even modulo the period: the greatest common divisor of all strides
/// >= `least`. If so, they do not overlap at all.
bool apart_modulo(const Intervals& a, const Intervals& b, int64_t least) {
  int64_t period = 0;
  for (const Intervals* x : {&a, &b})
    for (const auto& d : x->dims)
      if (d.stride >= least) period = std::gcd(period, d.stride);
  if (period == 0) return false;
  const int64_t distance = (static_cast<int64_t>(b.first - a.first) % period + period) % period;
  return distance >= a.span_below(least) && period - distance >= b.span_below(least);
}

}  // namespace

Sharing share_elements(const void* a, const Layout& la, int64_t element_a, const void* b, const Layout& lb,
                       int64_t element_b) {
  if (la.numel() == 0 || lb.numel() == 0 || !spans_overlap(a, la, element_a, b, lb, element_b)) return Sharing::no;
  if (a == b || (la.is_dense() && lb.is_dense())) return Sharing::yes;
  const Intervals x(a, la, element_a), y(b, lb, element_b);
  for (const Intervals* of : {&x, &y})
    for (const auto& d : of->dims)
      if (apart_modulo(x, y, d.stride)) return Sharing::no;
  const Intervals& few = y.ordered && (x.count <= y.count || !x.ordered) ? x : y;
  const Intervals& many = &few == &x ? y : x;
  constexpr int64_t kMost = 1 << 16;
  if (!many.ordered || few.count > kMost) return Sharing::unknown;
  FixedVector<int64_t, kMaxRank> index;
  for (int d = 0; d < few.dims.size(); ++d) index.push_back(0);
  for (uintptr_t at = few.first;;) {
    if (many.meets(at, few.bytes)) return Sharing::yes;
    int d = few.dims.size() - 1;
    for (; d >= 0; --d) {
      at += static_cast<uintptr_t>(few.dims[d].stride);
      if (++index[d] < few.dims[d].size) break;
      at -= static_cast<uintptr_t>(few.dims[d].stride * few.dims[d].size);
      index[d] = 0;
    }
    if (d < 0) return Sharing::no;
  }
}

std::string to_string(const Dims& dims) {
  std::string s = "[";
  for (int i = 0; i < dims.size(); ++i) s += fmt::format("{}{}", i ? ", " : "", dims[i]);
  return s + "]";
}

Iteration collapse(const Layout* layouts, int count, bool reorder) {
  Iteration it;
  it.operands = count;
  FixedVector<int, kMaxRank> order;  // innermost first
  for (int i = layouts[0].rank - 1; i >= 0; --i)
    if (layouts[0].sizes[i] != 1) order.push_back(i);
  if (reorder) {
    // Insertion sort by PyTorch's rule: the first operand whose two strides are non-zero and differ decides the order.
    const auto inside = [&](int a, int b) {
      for (int k = 0; k < count; ++k) {
        const int64_t x = layouts[k].strides[a], y = layouts[k].strides[b];
        if (x == 0 || y == 0) continue;
        if (x != y) return x < y;
        if (layouts[k].sizes[a] != layouts[k].sizes[b]) return layouts[k].sizes[a] < layouts[k].sizes[b];
      }
      return false;
    };
    for (int i = 1; i < order.size(); ++i)
      for (int j = i; j > 0 && inside(order[j], order[j - 1]); --j) std::swap(order[j], order[j - 1]);
  }
  for (const int d : order) {
    const int last = it.rank - 1;
    bool merges = it.rank > 0;
    for (int k = 0; merges && k < count; ++k) merges = layouts[k].strides[d] == it.strides[k][last] * it.sizes[last];
    if (merges) {
      it.sizes[last] *= layouts[0].sizes[d];
      continue;
    }
    it.sizes[it.rank] = layouts[0].sizes[d];
    for (int k = 0; k < count; ++k) it.strides[k][it.rank] = layouts[k].strides[d];
    ++it.rank;
  }
  if (it.rank == 0) {
    it.rank = 1;
    it.sizes[0] = 1;
    for (int k = 0; k < count; ++k) it.strides[k][0] = 1;
  }
  return it;
}

}  // namespace lorry
