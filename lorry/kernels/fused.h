#pragma once

// Fused pointwise kernels: a list of pointwise operators over one set of elements, whose intermediate results are never
// written to memory. Each step gives the bits of the operator alone: it is computed by the same formula in the same
// type, and rounded to its own element type.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lorry/device/stream.h"
#include "lorry/formula/fold.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// A step of a fused call. Its operands are register numbers: the inputs of the call are registers 0, 1, ...; step k
/// writes register inputs + k.
struct FusedStep {
  enum Kind : uint8_t {
    formula,  ///< a row of formula/pointwise.def
    convert,  ///< in[0] as another element type
  };
  Kind kind = formula;
  Pointwise op{};
  DType compute = kF32;  ///< kF32, kF64 or kI64: operands are converted to it
  DType result = kF32;   ///< the operator's own result type
  DType dtype = kF32;    ///< of the register; the result is converted to it
  int8_t arity = 1;
  int16_t in[4] = {};
};

/// A number of the host as kernels read it: f64 or i64.
union FusedNumber {
  double real;
  int64_t whole;
};

/// An input or an output of a call, with an element at every point of the domain.
struct FusedOperand {
  Layout layout;  ///< has the domain's sizes, with stride 0 for broadcast dimensions; rank -1: a number
  DType dtype = kF32;
  FusedNumber number = {};  ///< if rank is -1
};

struct FusedOutput {
  FusedOperand to;
  int16_t from = 0;              ///< a register of the same dtype, written by a step
  bool may_be_an_input = false;  ///< whether its memory may be exactly that of an input
};

/// The sums of a register over the first dimension of a domain [rows, n]. The order of the sums depends only on the
/// call; it is not that of the operator alone, so the last bits may differ.
struct FusedSum {
  int16_t from = 0;    ///< a register of a floating dtype, written by a step; what is added is rounded to that dtype
  DType dtype = kF32;  ///< of the result [n], which is contiguous
};

struct FusedCall {
  Dims sizes;  ///< of the domain; [rows, n], both not 0, if there are sums
  std::span<const FusedOperand> inputs;
  std::span<const FusedStep> steps;
  std::span<const FusedOutput> outputs;  ///< must not overlap each other or, unless may_be_an_input, an input
  /// Only if the device has FusedKernels::column_sums. Then each operand in memory has stride 1 along n or, if it is an
  /// input, 0; with stride 1 its rows are whole runs of kSummedRun bytes, and begin at multiples of that.
  std::span<const FusedSum> sums = {};
};

/// Limits of one call; larger units must be split.
inline constexpr int kMaxFusedSteps = 64, kMaxFusedOperands = 32, kMaxFusedLayouts = 6, kMaxFusedSums = 4;
inline constexpr int64_t kSummedRun = 16;  ///< bytes

// ---- over rows ------------------------------------------------------------------------------------------------------

// Calls over rows: pointwise steps and operators over rows (kernels/reduce.h, kernels/rowwise.h), run together for a
// few rows at a time, which stay in the cache between the steps. Each step gives the bits of the operator alone: it is
// computed by the operator's own kernel.

/// The shape of a register of a call over rows. All are contiguous.
enum class Extent : uint8_t {
  wide,    ///< [rows, n]
  narrow,  ///< [rows]: one element per row
  column,  ///< [n], the same for all rows; inputs only
  single,  ///< one element or number; inputs only
};

struct RowStep {
  enum Kind : uint8_t {
    /// pointwise: all operands and the result wide, or all narrow (inputs may also be column or single)
    map,
    fold,              ///< from wide in[0] to a narrow result
    softmax,           ///< from wide in[0] to a wide result
    softmax_backward,  ///< from a wide gradient in[0] and softmax in[1] to a wide result
    /// From wide in[0], weight in[1] and bias in[2] (columns, or -1) to three results: wide, then the narrow reciprocal
    /// deviation and, for layer_norm, the narrow mean.
    norm,
  };
  struct Result {
    DType dtype = kF32;
    Extent extent = Extent::wide;
  };
  Kind kind = map;
  FusedStep pointwise;                ///< map only; its operands are registers of the call
  int16_t in[3] = {-1, -1, -1};       ///< operands of the other kinds
  formula::FoldRow reduction{};       ///< of a fold
  double parameter = 0;               ///< fold: the divisor of the total; norm: eps
  bool log = false, centred = false;  ///< log: log_softmax; centred: layer_norm, else rms_norm
  int8_t results = 1;
  Result result[3];
};

struct RowInput {
  DType dtype = kF32;
  Extent extent = Extent::wide;
  bool is_number = false;  ///< only with Extent::single
  FusedNumber number = {};
};

struct RowOutput {
  int16_t from = 0;              ///< a register written by a step
  bool may_be_an_input = false;  ///< whether its memory may be exactly that of an input of the same extent
};

/// Registers: the inputs, then the results of the steps.
struct RowCall {
  int64_t rows = 0, n = 0;  ///< n > 1
  std::span<const RowInput> inputs;
  std::span<const RowStep> steps;
  std::span<const RowOutput> outputs;
};

/// Rows with more bytes do not stay in the cache, so they are not fused.
inline constexpr int64_t kMaxRowBytes = 1 << 17;

// ---- kernels --------------------------------------------------------------------------------------------------------

/// A prepared call. It can run many times, with any addresses, on several threads at once.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  /// inputs, outputs: the address of the first element of each operand of the call; addresses of numbers are ignored.
  /// Those of sums follow those of the outputs.
  /// Returns false, without having done anything, if the addresses are not aligned as the kernel needs.
  virtual bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const = 0;
  /// False while it is being compiled, and if it could not be compiled. Then the operators must run one by one.
  virtual bool ready() const { return true; }
  /// Says that somebody will wait for it. Called for several kernels before the first wait, none of them is compiled
  /// twice.
  virtual void will_wait() const {}
  /// Waits until it has been compiled or has failed to compile.
  virtual void wait() const {}
  /// The generated source, if there is one.
  virtual std::string source() const { return {}; }
};

struct FusedKernels {
  std::unique_ptr<const FusedKernel> (*make)(const FusedCall& call, Device device) = nullptr;
  /// null: calls over rows are not supported
  std::unique_ptr<const FusedKernel> (*make_rows)(const RowCall& call, Device device) = nullptr;
  /// A number that identifies how the kernel of a step (not a map) distributes rows of n elements of a dtype among
  /// threads. All steps of a call that are not maps must have the same number. Negative: there is no kernel, and `why`
  /// says why. Null: all steps distribute rows in the same way.
  int64_t (*row_distribution)(const RowStep& step, DType dtype, int64_t n, std::string& why) = nullptr;
  /// Whether pointwise steps over values of these dtypes may run as one chain, whose values stay in vector registers;
  /// with other steps in one call they would not. Null: that makes no difference.
  bool (*may_be_chain)(std::span<const FusedStep> steps, std::span<const DType> inputs) = nullptr;
  /// Maps over at most this many elements are joined also if they share no operand, because a launch costs more than
  /// their memory.
  int64_t few_elements = 0;
  /// Prepares the run-time compiler in the background. Null: there is none.
  void (*warm_up)() = nullptr;
  /// Whether `make` takes calls with sums.
  bool column_sums = false;
};

}  // namespace lorry::kernels
