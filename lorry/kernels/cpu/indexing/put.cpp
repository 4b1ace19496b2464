// Writing at computed positions, in parallel and in a fixed order.
//
// There are two kinds of dimensions. In a *free* dimension the target's stride is not 0, so different coordinates never
// write the same address. In a *bound* dimension the target's stride is 0: the index alone determines the address, and
// two coordinates may write the same one. Work is divided along free dimensions, and every thread runs over all bound
// coordinates in row-major order. So there are no atomics or locks, and sums do not depend on the number of threads.

#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/walk.h"
#include "lorry/kernels/indexing.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 15;

struct Assign {
  template <class T>
  T operator()(T, T come) const {
    return come;
  }
};
struct Add {
  template <class T>
  T operator()(T here, T come) const {
    if constexpr (std::is_same_v<T, bool>) {
      return here || come;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(here) + static_cast<uint64_t>(come));  // wraps around
    } else {
      return static_cast<T>(here + come);
    }
  }
};
struct Multiply {
  template <class T>
  T operator()(T here, T come) const {
    if constexpr (std::is_same_v<T, bool>) {
      return here && come;
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<uint64_t>(here) * static_cast<uint64_t>(come));
    } else {
      return static_cast<T>(here * come);
    }
  }
};
struct Maximum {
  template <class T>
  T operator()(T here, T come) const {
    return come > here || come != come ? come : here;
  }
};
struct Minimum {
  template <class T>
  T operator()(T here, T come) const {
    return come < here || come != come ? come : here;
  }
};

struct PutDims {
  Iteration free, bound;  // operands: target, source, index
  int64_t size, step;
};

/// A layout of some of the dimensions.
Layout part(const Layout& layout, const FixedVector<int, kMaxRank>& dims) {
  Layout out;
  out.rank = dims.size();
  for (int i = 0; i < dims.size(); ++i) {
    out.sizes[i] = layout.sizes[dims[i]];
    out.strides[i] = layout.strides[dims[i]];
  }
  return out;
}

PutDims split_dims(const PutArgs& args) {
  FixedVector<int, kMaxRank> free, bound;
  for (int d = 0; d < args.target.layout.rank; ++d) (args.target.stride(d) != 0 ? free : bound).push_back(d);
  const auto iterate = [&](const FixedVector<int, kMaxRank>& dims, bool reorder) {
    const Layout layouts[] = {part(args.target.layout, dims), part(args.source.layout, dims),
                              part(args.index.layout, dims)};
    return collapse(layouts, 3, reorder);
  };
  return {iterate(free, true), iterate(bound, false), args.size, args.step};
}

template <class T, class Op>
void put_run(T* to, const T* from, const int64_t* at, int64_t count, int64_t to_stride, int64_t from_stride,
             int64_t index_stride, const PutDims& p, Op op) {
  using C = Accumulate<T>;
  const auto combine = [&](T& here, T come) { here = static_cast<T>(op(static_cast<C>(here), static_cast<C>(come))); };
  const auto offset = [&](int64_t index) { return (index < 0 ? index + p.size : index) * p.step; };
  if (index_stride != 0 || count == 1) {
    for (int64_t i = 0; i < count; ++i)
      combine(to[i * to_stride + offset(at[i * index_stride])], from[i * from_stride]);
    return;
  }
  T* const row = to + offset(*at);
  if (to_stride == 1 && from_stride == 1) {
    for (int64_t i = 0; i < count; ++i) combine(row[i], from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) combine(row[i * to_stride], from[i * from_stride]);
  }
}

template <class T, class Op>
void put_all(const PutArgs& args, Op op) {
  const PutDims p = split_dims(args);
  T* const target = args.target.as<T>();
  const T* const source = args.source.as<T>();
  const int64_t* const index = args.index.as<int64_t>();
  const int64_t free = p.free.numel(), bound = p.bound.numel();
  // The inner loop runs along the kind whose elements are closer together in the index, or, if the index does not
  // change along the free ones, in the source.
  const int64_t free_step = p.free.strides[2][0] != 0 ? p.free.strides[2][0] : p.free.strides[1][0];
  const bool bound_inside =
      free == 1 || (p.bound.strides[2][0] != 0 && p.free.strides[2][0] != 0 && p.bound.strides[2][0] < free_step);
  lorry::cpu::parallel_for(free, std::max<int64_t>(1, kGrain / bound), [&](int64_t begin, int64_t end) {
    const auto run = [&](const Iteration& inner, const int64_t* outer_offset, const int64_t* offset, int64_t count) {
      put_run(target + outer_offset[0] + offset[0], source + outer_offset[1] + offset[1],
              index + outer_offset[2] + offset[2], count, inner.strides[0][0], inner.strides[1][0], inner.strides[2][0],
              p, op);
    };
    if (bound_inside) {
      walk(p.free, begin, end, [&](const int64_t* start, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at[] = {start[0] + i * p.free.strides[0][0], start[1] + i * p.free.strides[1][0],
                                start[2] + i * p.free.strides[2][0]};
          walk(p.bound, 0, bound, [&](const int64_t* offset, int64_t length) { run(p.bound, at, offset, length); });
        }
      });
    } else {
      walk(p.bound, 0, bound, [&](const int64_t* start, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at[] = {start[0] + i * p.bound.strides[0][0], start[1] + i * p.bound.strides[1][0],
                                start[2] + i * p.bound.strides[2][0]};
          walk(p.free, begin, end, [&](const int64_t* offset, int64_t length) { run(p.free, at, offset, length); });
        }
      });
    }
  });
}

}  // namespace

void put(const PutArgs& args, Stream) {
  if (args.source.numel() == 0) return;
  if (args.combine == Combine::assign) {
    visit_size(size_of(args.target.dtype), [&]<class Word>(Type<Word>) { put_all<Word>(args, Assign{}); });
    return;
  }
  visit(args.target.dtype, [&]<class T>(Type<T>) {
    switch (args.combine) {
      case Combine::multiply:
        return put_all<T>(args, Multiply{});
      case Combine::maximum:
        return put_all<T>(args, Maximum{});
      case Combine::minimum:
        return put_all<T>(args, Minimum{});
      default:
        return put_all<T>(args, Add{});
    }
  });
}

}  // namespace lorry::kernels::cpu
