#include <cmath>

#include "lorry/kernels/cpu/common/fold_loops.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/reduce/reduce_driver.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
namespace {

template <class C>
struct FoldPolicy {
  using Value = C;
  using Cell = Total<C>;

  explicit FoldPolicy(const FoldArgs& args)
      : args_(args), loops_(fold_loops<C>(args.fold)), from_(fold_from(args.fold, args.map, args.x.dtype)) {}

  static constexpr bool ordered() { return false; }
  bool direct() const { return args_.map == Map::none && args_.x.dtype == dtype_of<C>; }
  Cell identity() const { return fold_identity<Cell>(args_.fold); }

  void load(C* to, const char* from, int64_t stride, int64_t n) const {
    if (args_.map == Map::nonzero) return load_nonzero(to, from, args_.x.dtype, stride, n);
    if (args_.x.dtype == dtype_of<C> && stride > 1 && stride <= kMostStride)
      loops_.take(to, reinterpret_cast<const C*>(from), stride, n);
    else
      cpu::load(to, from, args_.x.dtype, stride, n);
    if (args_.map != Map::power) return map_all(to, n, std::make_integer_sequence<int, static_cast<int>(Map::count)>());
    if constexpr (!std::is_integral_v<C>)
      for (int64_t i = 0; i < n; ++i) to[i] = std::pow(std::abs(to[i]), static_cast<C>(args_.parameter));
  }

  void row(Cell& cell, const C* block, int64_t n, int64_t) const { cell = one(cell, loops_.row(block, n)); }

  bool reads_rows() const { return from_.row != nullptr; }
  void row_of(Cell& cell, const char* x, int64_t n) const { cell = one(cell, static_cast<Cell>(from_.row(x, n))); }

  bool reads_columns() const { return std::is_same_v<Cell, double> && from_.columns != nullptr; }
  void columns_of(Cell* cells, const char* x, int64_t stride, int64_t rows, int64_t n) const {
    if constexpr (std::is_same_v<Cell, double>) from_.columns(cells, x, stride, rows, n);
  }

  void column(Cell* cells, const C* block, int64_t stride, int64_t rows, int64_t n, int64_t) const {
    if constexpr (std::is_same_v<C, Cell>) {
      loops_.column(cells, block, stride, rows, n);
    } else {
      C acc[1024];  // the driver's tile
      std::fill(acc, acc + n, fold_identity<C>(args_.fold));
      loops_.column(acc, block, stride, rows, n);
      for (int64_t i = 0; i < n; ++i) cells[i] = one(cells[i], acc[i]);
    }
  }

  void combine(Cell& into, Cell from) const { into = one(into, from); }

  void finish(int64_t offset, int64_t stride, Cell* cells, int64_t n) const {
    if constexpr (!std::is_integral_v<Cell>) {
      if (args_.finish != Finish::none)
        for (int64_t i = 0; i < n; ++i) cells[i] = formula::finished(args_.finish, cells[i], args_.parameter);
    }
    store(args_.out.as<char>() + offset * size_of(args_.out.dtype), args_.out.dtype, stride, cells, n);
  }

 private:
  Cell one(Cell a, Cell b) const { return fold_one(args_.fold, a, b); }

  /// One loop per map, so that no loop tests which map it is.
  template <int... kMap>
  void map_all(C* x, int64_t n, std::integer_sequence<int, kMap...>) const {
    const auto map_if = [&]<Map kOne>(std::integral_constant<Map, kOne>) {
      if (args_.map != kOne || kOne == Map::none) return;
      for (int64_t i = 0; i < n; ++i) x[i] = formula::mapped(kOne, x[i]);
    };
    (map_if(std::integral_constant<Map, static_cast<Map>(kMap)>()), ...);
  }

  const FoldArgs& args_;
  const FoldLoops<C>& loops_;
  const FoldFrom from_;
};

/// Means and sums of squared deviations by Chan, Golub and LeVeque 1983, always in f64.
struct MomentPolicy {
  using Value = double;
  struct Cell {
    double mean, squares, count;
  };

  explicit MomentPolicy(const MomentArgs& args) : args_(args) {}

  static constexpr bool ordered() { return false; }
  bool direct() const { return args_.x.dtype == kF64; }
  Cell identity() const { return {0, 0, 0}; }
  void load(double* to, const char* from, int64_t stride, int64_t n) const {
    cpu::load(to, from, args_.x.dtype, stride, n);
  }

  void row(Cell& cell, const double* block, int64_t n, int64_t) const {
    constexpr int64_t kPart = 1024;  // the second pass over a part finds it in the first-level cache
    for (int64_t begin = 0; begin < n; begin += kPart) {
      const int64_t length = std::min(kPart, n - begin);
      const double mean = fold_loops<double>(Fold::sum).row(block + begin, length) / static_cast<double>(length);
      double squares[8] = {};
      int64_t i = 0;
      for (; i + 8 <= length; i += 8)
        for (int l = 0; l < 8; ++l) squares[l] += (block[begin + i + l] - mean) * (block[begin + i + l] - mean);
      for (; i < length; ++i) squares[0] += (block[begin + i] - mean) * (block[begin + i] - mean);
      const double total = ((squares[0] + squares[1]) + (squares[2] + squares[3])) +
                           ((squares[4] + squares[5]) + (squares[6] + squares[7]));
      combine(cell, {mean, total, static_cast<double>(length)});
    }
  }

  void column(Cell* cells, const double* block, int64_t stride, int64_t rows, int64_t n, int64_t) const {
    for (int64_t r = 0; r < rows; ++r) {
      const double* x = block + r * stride;
      const double count = cells[0].count + 1, share = 1 / count;  // all cells of a tile have the same number of rows
      for (int64_t i = 0; i < n; ++i) {
        const double difference = x[i] - cells[i].mean;
        cells[i].mean += difference * share;
        cells[i].squares += difference * (x[i] - cells[i].mean);
        cells[i].count = count;
      }
    }
  }

  void combine(Cell& into, const Cell& from) const {
    if (from.count == 0) return;
    const double count = into.count + from.count, difference = from.mean - into.mean;
    into.mean += difference * (from.count / count);
    into.squares += from.squares + difference * difference * (into.count * from.count / count);
    into.count = count;
  }

  void finish(int64_t offset, int64_t stride, const Cell* cells, int64_t n) const {
    const auto write = [&](const Array& out, auto&& value) {
      if (!out.data) return;
      char* to = out.as<char>() + offset * size_of(out.dtype);
      for (int64_t i = 0; i < n; ++i) {
        const double v = value(cells[i]);
        store(to + i * stride * size_of(out.dtype), out.dtype, 1, &v, 1);
      }
    };
    write(args_.mean, [](const Cell& c) { return c.count > 0 ? c.mean : NAN; });
    write(args_.variance, [&](const Cell& c) {
      // Without elements the quotient is 0 / 0 or x / 0, as intended.
      const double variance = c.count > 0 ? c.squares / std::max(0.0, c.count - args_.correction) : NAN;
      return args_.root ? std::sqrt(variance) : variance;
    });
  }

 private:
  const MomentArgs& args_;
};

/// The smallest and the largest element in one pass over x.
template <class C>
struct RangePolicy {
  using Value = C;
  struct Cell {
    C smallest, largest;
  };

  explicit RangePolicy(const RangeArgs& args)
      : args_(args), smallest_(fold_loops<C>(Fold::min)), largest_(fold_loops<C>(Fold::max)) {}

  static constexpr bool ordered() { return false; }
  bool direct() const { return args_.x.dtype == dtype_of<C>; }
  Cell identity() const { return {fold_identity<C>(Fold::min), fold_identity<C>(Fold::max)}; }
  void load(C* to, const char* from, int64_t stride, int64_t n) const { cpu::load(to, from, args_.x.dtype, stride, n); }

  void row(Cell& cell, const C* block, int64_t n, int64_t) const {
    constexpr int64_t kPart = 4096;  // still in the first-level cache for the second fold
    for (int64_t begin = 0; begin < n; begin += kPart) {
      const int64_t length = std::min(kPart, n - begin);
      combine(cell, {static_cast<C>(smallest_.row(block + begin, length)),
                     static_cast<C>(largest_.row(block + begin, length))});
    }
  }

  void column(Cell* cells, const C* block, int64_t stride, int64_t rows, int64_t n, int64_t) const {
    C low[1024], high[1024];  // the driver's tile
    std::fill(low, low + n, identity().smallest);
    std::fill(high, high + n, identity().largest);
    smallest_.column(low, block, stride, rows, n);
    largest_.column(high, block, stride, rows, n);
    for (int64_t i = 0; i < n; ++i) combine(cells[i], {low[i], high[i]});
  }

  void combine(Cell& into, const Cell& from) const {
    into = {fold_one<Fold::min>(into.smallest, from.smallest), fold_one<Fold::max>(into.largest, from.largest)};
  }

  void finish(int64_t offset, int64_t stride, const Cell* cells, int64_t n) const {
    const DType dtype = args_.x.dtype;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = (offset + i * stride) * size_of(dtype);
      store(args_.smallest.as<char>() + at, dtype, 1, &cells[i].smallest, 1);
      store(args_.largest.as<char>() + at, dtype, 1, &cells[i].largest, 1);
    }
  }

 private:
  const RangeArgs& args_;
  const FoldLoops<C>&smallest_, &largest_;
};

template <class C>
struct ExtremumPolicy {
  using Value = C;
  struct Cell {
    C value;
    int64_t index;  // negative: no element yet
  };

  explicit ExtremumPolicy(const ExtremumArgs& args)
      : args_(args), loops_(fold_loops<C>(args.largest ? Fold::max : Fold::min)) {}

  static constexpr bool ordered() { return true; }
  bool direct() const { return args_.x.dtype == dtype_of<C>; }
  Cell identity() const { return {C(0), -1}; }
  void load(C* to, const char* from, int64_t stride, int64_t n) const { cpu::load(to, from, args_.x.dtype, stride, n); }

  void row(Cell& cell, const C* block, int64_t n, int64_t position) const {
    constexpr int64_t kPart = 4096;  // still in the first-level cache for the second pass
    for (int64_t begin = 0; begin < n; begin += kPart) {
      const int64_t end = std::min(n, begin + kPart);
      const C best = static_cast<C>(loops_.row(block + begin, end - begin));
      if (!beats(best, cell)) continue;
      const int64_t i = begin + loops_.find(block + begin, end - begin, best);
      cell = {block[i], position + i};
    }
  }

  void column(Cell* cells, const C* block, int64_t stride, int64_t rows, int64_t n, int64_t position) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < n; ++i)
        if (const C v = block[r * stride + i]; beats(v, cells[i])) cells[i] = {v, position + r};
  }

  void combine(Cell& into, const Cell& from) const {
    if (from.index >= 0 && beats(from.value, into)) into = from;
  }

  void finish(int64_t offset, int64_t stride, const Cell* cells, int64_t n) const {
    const int64_t size = size_of(args_.x.dtype);
    for (int64_t i = 0; i < n; ++i) {
      args_.indices.as<int64_t>()[offset + i * stride] = cells[i].index;
      if (args_.values.data)
        store(args_.values.as<char>() + (offset + i * stride) * size, args_.x.dtype, 1, &cells[i].value, 1);
    }
  }

 private:
  bool beats(C v, const Cell& cell) const {
    if (cell.index < 0) return true;
    if (cell.value != cell.value) return false;
    return v != v || (args_.largest ? v > cell.value : v < cell.value);
  }

  const ExtremumArgs& args_;
  const FoldLoops<C>& loops_;
};

void fold(const FoldArgs& args, const Stream&) {
  // Truth values are counted and compared as integers, except if a norm needs a floating count.
  const DType compute = args.map == Map::nonzero && !is_floating(args.out.dtype) ? kI64 : args.x.dtype;
  visit_compute(compute, [&]<class C>(Type<C>) { reduce(FoldPolicy<C>(args), args.x, args.out.layout); });
}

void moments(const MomentArgs& args, const Stream&) {
  reduce(MomentPolicy(args), args.x, args.variance.data ? args.variance.layout : args.mean.layout);
}

void range(const RangeArgs& args, const Stream&) {
  visit_compute(args.x.dtype, [&]<class C>(Type<C>) { reduce(RangePolicy<C>(args), args.x, args.smallest.layout); });
}

void extremum(const ExtremumArgs& args, const Stream&) {
  visit_compute(args.x.dtype, [&]<class C>(Type<C>) { reduce(ExtremumPolicy<C>(args), args.x, args.indices.layout); });
}

}  // namespace

const ReduceKernels& reduce_kernels() {
  static constexpr ReduceKernels kKernels{fold, moments, range, extremum, scan};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
