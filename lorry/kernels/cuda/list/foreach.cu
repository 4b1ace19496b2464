// Chooses the kernel of a row for a list; copies, casts and fills lists.

#include "lorry/kernels/list.h"

#include <algorithm>

#include "lorry/formula/arithmetic.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cuda/list/foreach_kernels.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

struct ForeachTable {
  ForeachRow rows[kPointwiseCount];

  ForeachTable() { fill(std::make_integer_sequence<int, kForeachShares>()); }

 private:
  template <int... share>
  void fill(std::integer_sequence<int, share...>) {
    (fill_foreach_rows<share>(rows), ...);
  }
};

const ForeachRow& row_of(Pointwise op) {
  static const ForeachTable kRows;
  return kRows.rows[static_cast<int>(op)];
}

/// The elements of a tile of this list.
int tile_of(const List& list) {
  const std::span<const ListEntry> entries = list.entries();
  if (entries.size() > kForeachFew) return kForeachTile;
  uint64_t elements = 0;
  for (const ListEntry& entry : entries) elements += static_cast<uint64_t>(entry.count);
  return elements < kForeachFewElements ? kForeachSmallTile : kForeachTile;
}

template <int kArity, class C>
void launch(const ForeachRowKernels& row, const List& list, const ListOperand* in, const double* unless_nan,
            const Stream& stream) {
  using Call = ListPointwise<kArity, C>;
  constexpr int kArrays = 1 + kArity;
  Call call{};
  call.vectors = true;
  call.tile = tile_of(list);
  call.unless_nan = unless_nan;
  for (int k = 0; k < kArrays; ++k) {
    const ListOperand* const x = k == 0 ? nullptr : &in[k - 1];
    if (x != nullptr && x->kind != ListOperand::Kind::array) {
      Uniform<C>& uniform = call.uniforms[k - 1];
      if (x->kind == ListOperand::Kind::values)
        uniform = {C(), x->values, x->dtype, x->step};
      else
        converter(x->dtype, dtype_of<C>)(&x->real, 0, &uniform.number, 1, 1);
      continue;
    }
    if (x != nullptr) call.arrays |= static_cast<uint8_t>(1 << (k - 1));
    const DType dtype = list.dtype(k);
    call.dtypes[k] = dtype;
    call.sizes[k] = static_cast<uint8_t>(size_of(dtype));
    if (size_of(dtype) > static_cast<int64_t>(sizeof(C)) || (k == 0 && is_floating(dtype_of<C>) && is_integral(dtype)))
      call.vectors = false;
  }
  const TileKernels<kArrays, Call> kernels{
      reinterpret_cast<void (*)(Call, Ending, Arguments4K<kArrays>)>(const_cast<void*>(row.arguments_4k)),
      reinterpret_cast<void (*)(Call, Ending, Arguments32K<kArrays>)>(const_cast<void*>(row.arguments_32k)),
      reinterpret_cast<void (*)(Call, Ending, Table<kArrays>)>(const_cast<void*>(row.table))};
  over_list(list, {call.tile, kForeachRun<C>}, call, kernels, false, stream);
}

template <int kArity>
void launch_arity(const ListPointwiseCall& call, const Stream& stream) {
  const ForeachRow& row = row_of(call.op);
  const auto as = [&]<class C>(Type<C>) {
    require<DTypeError>(row.in<C>().table != nullptr, "no kernel computes it in {}", lorry::name(call.compute).data());
    launch<kArity, C>(row.in<C>(), call.list, call.in, call.unless_nan, stream);
  };
  if (call.compute == kF32) return as(Type<float>());
  return call.compute == kF64 ? as(Type<double>()) : as(Type<int64_t>());
}

void pointwise(const ListPointwiseCall& call, const Stream& stream) {
  switch (call.arity) {
    case 1:
      return launch_arity<1>(call, stream);
    case 2:
      return launch_arity<2>(call, stream);
    case 3:
      return launch_arity<3>(call, stream);
    default:
      return launch_arity<4>(call, stream);
  }
}

void blend(const ListPointwiseCall& call, const Stream& stream) {
  const auto as = [&]<class C>(Type<C>) {
    launch<3, C>(foreach_kernels_of<formula::Blend, 3, C>(), call.list, call.in, call.unless_nan, stream);
  };
  call.compute == kF64 ? as(Type<double>()) : as(Type<float>());
}

// ---- moving ---------------------------------------------------------------------------------------------------------

/// Copies without conversion: words of an element's size, 16 bytes per access. Fills have a pattern and no second
/// array.
template <class Word, int kSources>
struct MoveBody {
  static constexpr int kArrays = 1 + kSources, kTile = 16'384 / sizeof(Word), kRunLength = kRun<Word>, kBlocks = 4;
  uint4 pattern;

  void addresses(auto& visit) const { visit(); }

  __device__ __forceinline__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const {
    constexpr int kFlight = 8, kStep = 32 * kRunLength;
    Word* const to = static_cast<Word*>(entry.at[0]) + tile.first;
    const Word* const from = kSources > 0 ? static_cast<const Word*>(entry.at[kArrays - 1]) + tile.first : nullptr;
    const Word word = *reinterpret_cast<const Word*>(&pattern);
    for (int i = lane; i < tile.runs; i += 32) to[i] = kSources > 0 ? from[i] : word;
    for (int i = tile.runs + lane * kRunLength; i < tile.rest; i += kFlight * kStep) {
      uint4 runs[kFlight];
#pragma unroll
      for (int u = 0; u < kFlight; ++u) {
        runs[u] = pattern;
        if constexpr (kSources > 0)
          if (i + u * kStep < tile.rest) runs[u] = *reinterpret_cast<const uint4*>(from + i + u * kStep);
      }
#pragma unroll
      for (int u = 0; u < kFlight; ++u)
        if (i + u * kStep < tile.rest) *reinterpret_cast<uint4*>(to + i + u * kStep) = runs[u];
    }
    for (int i = tile.rest + lane; i < tile.count; i += 32) to[i] = kSources > 0 ? from[i] : word;
  }
};

template <int kSources>
void move(const List& list, uint4 pattern, const Stream& stream) {
  switch (size_of(list.dtype(0))) {
    case 1:
      return over_list(list, MoveBody<uint8_t, kSources>{pattern}, stream);
    case 2:
      return over_list(list, MoveBody<uint16_t, kSources>{pattern}, stream);
    case 4:
      return over_list(list, MoveBody<uint32_t, kSources>{pattern}, stream);
    default:
      return over_list(list, MoveBody<uint64_t, kSources>{pattern}, stream);
  }
}

struct Identity {
  template <class V>
  LORRY_INLINE V operator()(V x) const {
    return x;
  }
};

/// A cast converts through a type that can represent every value of the source, as for one tensor (copy.cu).
void copy(const List& list, const Stream& stream) {
  const DType to = list.dtype(0), from = list.dtype(1);
  if (to == from) return move<1>(list, {}, stream);
  const ListOperand in[1] = {};
  const auto by_way_of = [&]<class C>(Type<C>) {
    launch<1, C>(foreach_kernels_of<Identity, 1, C>(), list, in, nullptr, stream);
  };
  if (from != kF64 && (is_floating(from) || (size_of(from) <= 2 && is_floating(to)))) return by_way_of(Type<float>());
  return from == kF64 ? by_way_of(Type<double>()) : by_way_of(Type<int64_t>());
}

void fill(const List& list, const void* value, DType dtype, const Stream& stream) {
  alignas(16) char repeated[16];
  converter(dtype, list.dtype(0))(value, 0, repeated, 1, 16 / size_of(list.dtype(0)));
  uint4 pattern;
  std::memcpy(&pattern, repeated, sizeof(pattern));
  move<0>(list, pattern, stream);
}

}  // namespace

const ForeachKernels& foreach_kernels() {
  static constexpr ForeachKernels kKernels{.pointwise = pointwise, .blend = blend, .copy = copy, .fill = fill};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
