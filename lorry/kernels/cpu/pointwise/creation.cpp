#include "lorry/kernels/cpu/table.h"

#include <algorithm>
#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/walk.h"

namespace lorry::kernels::cpu {
namespace {
using lorry::cpu::parallel_for;

constexpr int64_t kGrain = int64_t{1} << 15;

template <class T, class V>
T store(V value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != V(0);
  } else if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_floating_point_v<V>) return static_cast<T>(to_whole(value));
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<Accumulate<T>, T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

/// out[i] = value(i), converted to the dtype of `out`.
template <class F>
void generate(const Array& out, const F& value) {
  visit(out.dtype, [&]<class T>(Type<T>) {
    T* const to = out.as<T>();
    parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = store<T>(value(i));
    });
  });
}

void arange_integral(const Array& out, int64_t start, int64_t step, Stream) {
  visit(out.dtype, [&]<class T>(Type<T>) {
    T* const to = out.as<T>();
    parallel_for(out.numel(), kGrain, [&](int64_t begin, int64_t end) {
      // Unsigned, because products and sums that are not used may exceed 2^63. A sum, because old processors have no
      // product for vectors of 64-bit numbers.
      const uint64_t by = static_cast<uint64_t>(step);
      uint64_t value = static_cast<uint64_t>(start) + static_cast<uint64_t>(begin) * by;
      for (int64_t i = begin; i < end; ++i, value += by) to[i] = store<T>(static_cast<int64_t>(value));
    });
  });
}

void arange_floating(const Array& out, double start, double step, Stream) {
  visit(out.dtype, [&]<class T>(Type<T>) {
    T* const to = out.as<T>();
    lorry::cpu::for_each_chunk(out.numel(), kGrain, [&](int64_t, int64_t begin, int64_t end) {
      // Old processors convert vectors of 32-bit numbers only. The sum is exact.
      const double first = static_cast<double>(begin);
      const int32_t count = static_cast<int32_t>(end - begin);
      for (int32_t i = 0; i < count; ++i) to[begin + i] = store<T>(start + (first + static_cast<double>(i)) * step);
    });
  });
}

void linspace(const Array& out, double start, double end, Stream) {
  const int64_t n = out.numel();
  if (n == 1) return generate(out, [=](int64_t) { return start; });
  const double step = (end - start) / static_cast<double>(n - 1);
  generate(out, [=](int64_t i) {
    return i < n / 2 ? start + static_cast<double>(i) * step : end - static_cast<double>(n - 1 - i) * step;
  });
}

template <class Word>
void copy_strided(Word* to, const Word* from, int64_t count, int64_t stride) {
  if (stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Word));
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * stride];
  }
}

void triangle(const Array& out, const Array& x, int64_t diagonal, bool upper, Stream) {
  const int rank = out.layout.rank;
  const int64_t rows = out.size(rank - 2), columns = out.size(rank - 1);
  if (out.numel() == 0) return;
  visit_size(size_of(out.dtype), [&]<class Word>(Type<Word>) {
    parallel_for(out.numel() / columns, std::max<int64_t>(1, kGrain / columns), [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        int64_t rest = line, offset = 0;
        for (int d = rank - 2; d >= 0; --d) {
          offset += rest % out.size(d) * x.stride(d);
          rest /= out.size(d);
        }
        const int64_t edge = std::clamp<int64_t>(line % rows + diagonal + (upper ? 0 : 1), 0,
                                                 columns);  // the first column beyond the split
        Word* const to = out.as<Word>() + line * columns;
        const Word* const from = x.as<Word>() + offset;
        const int64_t first = upper ? edge : 0, last = upper ? columns : edge;
        std::fill(to, to + first, Word(0));
        copy_strided(to + first, from + first * x.stride(rank - 1), last - first, x.stride(rank - 1));
        std::fill(to + last, to + columns, Word(0));
      }
    });
  });
}

}  // namespace

const CreationKernels& creation_kernels() {
  static constexpr CreationKernels kKernels{arange_integral, arange_floating, linspace, triangle};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
