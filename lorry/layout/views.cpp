#include "lorry/layout/views.h"

#include <algorithm>

namespace lorry::views {
namespace {

void push(Layout& layout, int64_t size, int64_t stride) {
  layout.sizes[layout.rank] = size;
  layout.strides[layout.rank++] = stride;
}

void require_room(const Layout& from) {
  require<ShapeError>(from.rank < kMaxRank,
                      "too many dimensions; got a tensor of rank {}; expected at most {} afterwards", from.rank,
                      kMaxRank);
}

}  // namespace

View permute(const Layout& from, const Dims& dims) {
  require<ShapeError>(dims.size() == from.rank, "one entry a dimension is needed; got {} for sizes {}", dims,
                      from.size_list());
  View view;
  uint32_t seen = 0;
  for (const int64_t dim : dims) {
    const int d = wrap_dim(dim, from.rank);
    require<ShapeError>(!(seen >> d & 1), "dimension named twice; got dims {}; expected a permutation", dims);
    seen |= 1u << d;
    push(view.layout, from.sizes[d], from.strides[d]);
  }
  return view;
}

View transpose(const Layout& from, int64_t dim0, int64_t dim1) {
  const int a = wrap_dim(dim0, from.rank), b = wrap_dim(dim1, from.rank);
  View view{from, 0};
  if (from.rank == 0) return view;
  std::swap(view.layout.sizes[a], view.layout.sizes[b]);
  std::swap(view.layout.strides[a], view.layout.strides[b]);
  return view;
}

View select(const Layout& from, int64_t dim, int64_t index) {
  require<IndexError>(from.rank > 0, "a tensor of rank 0 has no dimension to index; use item()");
  const int d = wrap_dim(dim, from.rank);
  const int64_t size = from.sizes[d];
  require<IndexError>(index >= -size && index < size,
                      "index out of range; got {} for dimension {} of sizes {}; expected {}", index, d,
                      from.size_list(), IndexRange{-size, size});
  View view;
  for (int i = 0; i < from.rank; ++i)
    if (i != d) push(view.layout, from.sizes[i], from.strides[i]);
  view.offset = (index < 0 ? index + size : index) * from.strides[d];
  return view;
}

Range resolve(std::optional<int64_t> start, std::optional<int64_t> end, int64_t step, int64_t size) {
  require<ValueError>(step > 0, "step must be positive; got {}; reverse with flip", step);
  const auto bound = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t first = start ? bound(*start) : 0;
  const int64_t last = std::max(first, end ? bound(*end) : size);
  // Written so that a step near 2^63 does not overflow.
  return {first, (last - first) / step + ((last - first) % step != 0 ? 1 : 0), step};
}

View slice(const Layout& from, int dim, const Range& range) {
  View view{from, range.start * from.strides[dim]};
  view.layout.sizes[dim] = range.length;
  // With a step too large to multiply, there is at most one element.
  if (int64_t stride = 0; !__builtin_mul_overflow(from.strides[dim], range.step, &stride))
    view.layout.strides[dim] = stride;
  return view;
}

View diagonal(const Layout& from, int64_t offset, int64_t dim1, int64_t dim2) {
  const int a = wrap_dim(dim1, from.rank), b = wrap_dim(dim2, from.rank);
  require<ShapeError>(from.rank >= 2 && a != b, "two different dimensions are needed; got {} and {} of sizes {}", dim1,
                      dim2, from.size_list());
  View view;
  for (int i = 0; i < from.rank; ++i)
    if (i != a && i != b) push(view.layout, from.sizes[i], from.strides[i]);
  const int64_t rows =
      std::max<int64_t>(0, offset < 0 ? (offset <= -from.sizes[a] ? 0 : from.sizes[a] + offset) : from.sizes[a]);
  const int64_t columns =
      std::max<int64_t>(0, offset > 0 ? (offset >= from.sizes[b] ? 0 : from.sizes[b] - offset) : from.sizes[b]);
  const int64_t length = std::min(rows, columns);
  push(view.layout, length, from.strides[a] + from.strides[b]);
  if (length > 0) view.offset = offset < 0 ? -offset * from.strides[a] : offset * from.strides[b];
  return view;
}

View unfold(const Layout& from, int64_t dim, int64_t size, int64_t step) {
  const int d = wrap_dim(dim, from.rank);
  require_room(from);
  require<ValueError>(step > 0, "step must be positive; got {}", step);
  const int64_t extent = from.rank == 0 ? 1 : from.sizes[d];
  require<ShapeError>(size >= 0 && size <= extent, "window does not fit; got size {} for dimension {} of sizes {}",
                      size, d, from.size_list());
  View view{from, 0};
  const int64_t stride = from.rank == 0 ? 1 : from.strides[d];
  if (from.rank > 0) {
    const int64_t windows = (extent - size) / step + 1;
    view.layout.sizes[d] = windows;
    if (windows > 1) view.layout.strides[d] = stride * step;
  }
  push(view.layout, size, stride);
  return view;
}

Layout squeeze(const Layout& from, const Dims& dims) {
  uint32_t chosen = 0;
  for (const int64_t dim : dims) {
    const uint32_t bit = 1u << wrap_dim(dim, from.rank);
    require<ShapeError>(!(chosen & bit), "dimension named twice; got dims {} for sizes {}; expected each once", dims,
                        from.size_list());
    chosen |= bit;
  }
  Layout to;
  for (int i = 0; i < from.rank; ++i)
    if (from.sizes[i] != 1 || !(chosen >> i & 1)) push(to, from.sizes[i], from.strides[i]);
  return to;
}

Layout unsqueeze(const Layout& from, int64_t dim) {
  require_room(from);
  const int d = wrap_new_dim(dim, from.rank);
  Layout to;
  for (int i = 0; i <= from.rank; ++i) {
    // The stride that keeps a contiguous tensor looking contiguous, as PyTorch chooses it.
    if (i == d) push(to, 1, d < from.rank ? from.sizes[d] * from.strides[d] : 1);
    if (i < from.rank) push(to, from.sizes[i], from.strides[i]);
  }
  return to;
}

Dims inverse(const Dims& permutation) {
  Dims out = permutation;
  for (int i = 0; i < permutation.size(); ++i) out[static_cast<int>(permutation[i])] = i;
  return out;
}

Dims moved(int rank, const Dims& source, const Dims& destination) {
  require<ShapeError>(source.size() == destination.size(), "as many destinations as sources are needed; got {} and {}",
                      source, destination);
  if (rank == 0) {
    for (const int64_t dim : source) wrap_dim(dim, 0);
    for (const int64_t dim : destination) wrap_dim(dim, 0);
    return {};
  }
  Dims order = Dims::filled(rank, -1);
  uint32_t placed = 0;
  for (int i = 0; i < source.size(); ++i) {
    const int from = wrap_dim(source[i], rank), to = wrap_dim(destination[i], rank);
    require<ShapeError>(!(placed >> from & 1) && order[to] < 0, "dimension named twice; got {} to {}", source,
                        destination);
    placed |= 1u << from;
    order[to] = from;
  }
  int next = 0;
  for (int64_t& from : order) {
    if (from >= 0) continue;
    while (placed >> next & 1) ++next;
    from = next++;
  }
  return order;
}

bool same_elements(const Layout& a, const Layout& b) {
  if (!same_sizes(a, b)) return false;
  for (int d = 0; d < a.rank; ++d)
    if (a.sizes[d] > 1 && a.strides[d] != b.strides[d]) return false;
  return true;
}

}  // namespace lorry::views
