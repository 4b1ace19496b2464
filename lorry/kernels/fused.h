#pragma once

// Fused pointwise kernels: a list of pointwise operators over one set of elements, whose intermediate results never
// reach memory. Each step gives what the operator alone gives, to the bit: it is computed in the same type by the same
// formula, and rounded to its own element type.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lorry/device/stream.h"
#include "lorry/formula/fold.h"
#include "lorry/formula/pointwise.h"
#include "lorry/kernels/common/array.h"

namespace lorry::kernels {

/// What a step reads: register numbers. The inputs of a call are registers 0, 1, ...; step k makes register inputs + k.
struct FusedStep {
  enum Kind : uint8_t {
    formula,  ///< a row of formula/pointwise.def
    convert,  ///< in[0] as another element type
  };
  Kind kind = formula;
  Pointwise op{};
  DType compute = kF32;  ///< kF32, kF64 or kI64: operands are converted to it
  DType result = kF32;   ///< the operator's own result type
  DType dtype = kF32;    ///< of the register: the result is converted to it
  int8_t arity = 1;
  int16_t in[4] = {};
};

/// A number as kernels read it: f64 or i64.
union FusedNumber {
  double real;
  int64_t whole;
};

/// An input that is read or an output that is written at every element of the domain.
struct FusedOperand {
  Layout layout;  ///< of the domain's sizes, with stride 0 where it is broadcast; rank -1: a number
  DType dtype = kF32;
  FusedNumber number = {};  ///< where it is one
};

struct FusedOutput {
  FusedOperand to;
  int16_t from = 0;              ///< a register of the same dtype that a step makes
  bool may_be_an_input = false;  ///< its memory may be exactly an input's
};

struct FusedCall {
  Dims sizes;  ///< of the domain
  std::span<const FusedOperand> inputs;
  std::span<const FusedStep> steps;
  std::span<const FusedOutput> outputs;  ///< which otherwise overlap neither each other nor an input
};

/// What a call may hold; more is to be split.
inline constexpr int kMaxFusedSteps = 64, kMaxFusedOperands = 32, kMaxFusedLayouts = 6;

// ---- over rows ------------------------------------------------------------------------------------------------------

// Calls over rows: pointwise steps and the operators that make something of each row (kernels/reduce.h,
// kernels/rowwise.h), in one pass over a few rows at a time, which stay in the cache between the steps. Each step gives
// what the operator alone gives, to the bit: it is computed by the operator's own kernel.

/// What a register of a call over rows holds, each contiguous.
enum class Extent : uint8_t {
  wide,    ///< [rows, n]
  narrow,  ///< [rows]: an element a row
  column,  ///< [n], the same for each row; only an input
  single,  ///< one element or number; only an input
};

struct RowStep {
  enum Kind : uint8_t {
    map,               ///< pointwise, over wide registers to a wide one, or over narrow ones to a narrow one
    fold,              ///< wide in[0] to a narrow result
    softmax,           ///< wide in[0] to a wide result
    softmax_backward,  ///< wide gradient in[0] and softmax in[1] to a wide result
    /// Wide in[0], weight in[1] and bias in[2] (columns, or -1) to a wide result and the narrow reciprocal deviation
    /// and, where it centres, mean.
    norm,
  };
  struct Result {
    DType dtype = kF32;
    Extent extent = Extent::wide;
  };
  Kind kind = map;
  FusedStep pointwise;                ///< of a map; its operands are registers of the call
  int16_t in[3] = {-1, -1, -1};       ///< of other kinds
  formula::FoldRow reduction{};       ///< of a fold
  double parameter = 0;               ///< of a fold: what the total is divided by; of a norm: eps
  bool log = false, centred = false;  ///< log_softmax; layer_norm and not rms_norm
  int8_t results = 1;
  Result result[3];
};

struct RowInput {
  DType dtype = kF32;
  Extent extent = Extent::wide;
  bool is_number = false;  ///< of a single
  FusedNumber number = {};
};

struct RowOutput {
  int16_t from = 0;              ///< a register that a step makes
  bool may_be_an_input = false;  ///< its memory may be exactly that of an input of the same extent
};

/// Registers: the inputs, then the results of the steps.
struct RowCall {
  int64_t rows = 0, n = 0;  ///< n > 1
  std::span<const RowInput> inputs;
  std::span<const RowStep> steps;
  std::span<const RowOutput> outputs;
};

/// Longer rows are not kept in the cache.
inline constexpr int64_t kMaxRowBytes = 1 << 17;

// ---- kernels --------------------------------------------------------------------------------------------------------

/// A call made ready: runs again and again, at any addresses, on any number of threads at once.
class FusedKernel {
 public:
  virtual ~FusedKernel() = default;
  /// inputs, outputs: the address of the first element of each operand of the call; that of a number is not read.
  /// False: it has done nothing, since the addresses are not aligned as it needs them.
  virtual bool run(std::span<void* const> inputs, std::span<void* const> outputs, Stream stream) const = 0;
  /// False while it is compiled for its device, and where it cannot be: the operators run one by one then.
  virtual bool ready() const { return true; }
  /// Returns when it is compiled, or refused.
  virtual void wait() const {}
  /// What was generated for it, where something was.
  virtual std::string source() const { return {}; }
};

struct FusedKernels {
  std::unique_ptr<const FusedKernel> (*make)(const FusedCall& call, Device device) = nullptr;
  std::unique_ptr<const FusedKernel> (*make_rows)(const RowCall& call, Device device) = nullptr;  ///< null: none
  /// How a step that is no map deals rows of n elements of a dtype to threads: the row steps of one kernel deal in one
  /// way. Negative: no kernel takes it, for the reason `why`. Null: all deal in one way.
  int64_t (*deal_rows)(const RowStep& step, DType dtype, int64_t n, std::string& why) = nullptr;
  /// Prepares the compiler of kernels in the background. Null: there is none.
  void (*warm_up)() = nullptr;
};

}  // namespace lorry::kernels
