// Chooses between the two kernels of a row (pointwise.h). The path from `run` to the launch of a contiguous kernel is
// the most frequent of all: a table look-up, a few comparisons per operand, and the arguments.

#include "lorry/kernels/pointwise.h"

#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cuda/pointwise/strided.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

struct PointwiseTable {
  PointwiseRowKernels kernels[kPointwiseCount];

  PointwiseTable() { fill(std::make_integer_sequence<int, kPointwiseShares>()); }

 private:
  template <int... share>
  void fill(std::integer_sequence<int, share...>) {
    (fill_pointwise_rows<share>(kernels), ...);
  }
};

const PointwiseRowKernels& kernels_of(Pointwise op) {
  static const PointwiseTable kRows;
  return kRows.kernels[static_cast<int>(op)];
}

/// Converts a number of the host to the compute type, by the rules of kernels/common/convert.h.
template <class C>
C number(const PointwiseOperand& x) {
  // The two types of Scalar are converted without a call.
  if (x.dtype == kF64) {
    const double value = *static_cast<const double*>(x.data);
    if constexpr (std::is_same_v<C, int64_t>)
      return to_whole(value);
    else
      return static_cast<C>(value);
  }
  if (x.dtype == kI64) return static_cast<C>(*static_cast<const int64_t*>(x.data));
  C value;
  converter(x.dtype, dtype_of<C>)(x.data, 0, &value, 1, 1);
  return value;
}

constexpr int size_shift(DType t) { return size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3; }

template <int kArity, class C>
[[gnu::noinline]] void run_strided(const PointwiseCall& call, const PointwiseRowKernels& row, Stream stream) {
  const void* const kernel = row.template strided<C>();
  require<DTypeError>(kernel != nullptr, "no kernel computes it in {}", lorry::name(call.compute).data());
  const Dims sizes = call.out.layout->size_list();
  Layout layouts[1 + kArity];
  StridedOperand in[kArity];
  C numbers[kArity] = {};
  layouts[0] = *call.out.layout;
  for (int k = 0; k < kArity; ++k) {
    const PointwiseOperand& x = call.in[k];
    layouts[1 + k] = expand(x.layout != nullptr ? *x.layout : Layout::contiguous({}), sizes);
    if (x.layout == nullptr)
      numbers[k] = number<C>(x);
    else
      in[k] = StridedOperand(x.data, x.dtype);
  }
  launch_strided<kArity, C>(reinterpret_cast<void (*)(StridedCall<kArity, C>)>(const_cast<void*>(kernel)),
                            collapse(layouts, 1 + kArity), StridedOperand(call.out.data, call.out.dtype), in, numbers,
                            stream);
}

/// Launches the contiguous kernel if there is one for the operands' type and all operands are contiguous with the same
/// distance from a multiple of 16 bytes; else the strided kernel.
template <int kArity, class C>
void run_as(const PointwiseCall& call, Stream stream) {
  const PointwiseRowKernels& row = kernels_of(call.op);
  const int64_t n = call.out.layout->numel();
  if (n == 0) return;
  if (!call.out.contiguous) return run_strided<kArity, C>(call, row, stream);
  DType type = call.out.dtype;
  if (lorry::row(call.op).result == Result::truth) {
    if (type != kBool) return run_strided<kArity, C>(call, row, stream);
    type = call.in[kArity > 1 && call.in[0].layout == nullptr ? 1 : 0].dtype;
  }
  const void* const kernel = row.contiguous[static_cast<int>(type)];
  const bool computes = type == kF64        ? call.compute == kF64
                        : is_floating(type) ? call.compute == kF32
                                            : call.compute == kI64;
  if (kernel == nullptr || !computes) return run_strided<kArity, C>(call, row, stream);

  const int shift = size_shift(type), run_shift = 4 - shift;
  const uintptr_t run_mask = (uintptr_t{1} << run_shift) - 1;
  const int out_shift = size_shift(call.out.dtype);
  const uintptr_t beyond =
      // the first element's distance from a multiple of 16 bytes, in elements
      (reinterpret_cast<uintptr_t>(call.out.data) >> out_shift) & run_mask;
  const int64_t head = std::min(n, static_cast<int64_t>((0 - beyond) & run_mask));

  ContiguousCall<kArity, C> arguments;
  for (int k = 0; k < kArity; ++k) {
    const PointwiseOperand& x = call.in[k];
    if (x.layout == nullptr) {
      arguments.in[k] = nullptr;
      arguments.numbers[k] = number<C>(x);
      continue;
    }
    const bool condition = kArity == 3 && k == 0 && call.op == Pointwise::where;
    const int x_shift = condition ? 0 : shift;
    if (x.dtype != (condition ? kBool : type) || !x.contiguous ||
        (x.layout != call.out.layout && x.layout->numel() != n) ||
        ((reinterpret_cast<uintptr_t>(x.data) >> x_shift) & run_mask) != beyond)
      return run_strided<kArity, C>(call, row, stream);
    arguments.in[k] = static_cast<const char*>(x.data) + (head << x_shift);
    arguments.numbers[k] = C();
  }
  arguments.out = static_cast<char*>(call.out.data) + (head << out_shift);
  arguments.runs = (n - head) >> run_shift;
  arguments.head = static_cast<int32_t>(head);
  arguments.tail = static_cast<int32_t>((n - head) & static_cast<int64_t>(run_mask));
  const int block_shift = row.contiguous_shift[static_cast<int>(type)];
  const int64_t blocks = (arguments.runs + (int64_t{1} << block_shift) - 1) >> block_shift;
  lorry::cuda::launch_with(stream,
                           {.grid = static_cast<unsigned>(std::max<int64_t>(blocks, 1)), .block = kPointwiseBlock},
                           reinterpret_cast<void (*)(ContiguousCall<kArity, C>)>(const_cast<void*>(kernel)), arguments);
}

void run(const PointwiseCall& call, Stream stream) {
  static_assert(kMaxArity == 4);
  const auto with_arity = [&]<int kArity>(std::integral_constant<int, kArity>) {
    if (call.compute == kF32) return run_as<kArity, float>(call, stream);
    return call.compute == kF64 ? run_as<kArity, double>(call, stream) : run_as<kArity, int64_t>(call, stream);
  };
  switch (call.arity) {
    case 1:
      return with_arity(std::integral_constant<int, 1>());
    case 2:
      return with_arity(std::integral_constant<int, 2>());
    case 3:
      return with_arity(std::integral_constant<int, 3>());
    default:
      return with_arity(std::integral_constant<int, 4>());
  }
}

/// Returns false without looking, because looking would wait; formulas give 0 for an integer divided by zero.
bool has_zero(const Array&, Stream) { return false; }

}  // namespace

const PointwiseKernels& pointwise_kernels() {
  static constexpr PointwiseKernels kKernels{.run = run, .has_zero = has_zero};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
