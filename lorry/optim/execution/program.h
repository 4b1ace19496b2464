#pragma once

// A rule as a list of kernel calls over lists of arrays, one call for each operation: what the executions loop and
// foreach run. A program is made from the rule's recording. It says for each operation where its operands lie and where
// its result goes.
//
// A result takes the memory of an operand that is not needed any more. So parameters and states are updated in place.
//
// Several operations become one row of formula/pointwise.def if that gives the same roundings: x +- s a, x +- s a b and
// x +- s a / b. x + s (a - x) becomes formula::Blend.
//
// All other results need buffers. The program says how large they are; they are allocated before the first call.
//
// While a program runs, nothing is decided, allocated or refused: a step is made wholly or not at all.

#include <array>
#include <functional>
#include <vector>

#include "lorry/kernels/common/recording.h"
#include "lorry/layout/dtype.h"
#include "lorry/optim/execution.h"
#include "lorry/optim/memory.h"

namespace lorry::optim {

/// Inputs that select the program of an eager step, beside the rule.
struct StepShape {
  Execution execution;  ///< loop or foreach
  DType dtype;          ///< of parameters
  DType grad_dtype;
  Memory memory;
  bool by_factor = false;  ///< gradients are multiplied by a factor; if it is NaN, the step is skipped
  /// A parameter may be stepped in parts; parts of an 8-bit state are copied to buffers.
  bool in_parts = false;

  /// For f32 and f64 parameters none.
  Masters masters() const { return is_narrow(dtype) ? memory.masters : Masters::none; }
  bool has_master() const { return masters() == Masters::f32 || masters() == Masters::split; }
  /// Whether state k has another type than the formula computes with.
  bool is_compressed(int k) const { return dtype != kF64 && memory.states[k] != StateType::f32; }
};

/// Where an operand lies.
struct Location {
  enum class Kind : uint8_t {
    param,
    grad,
    master,
    state,
    buffer,   ///< an array of the step's own
    number,   ///< one of the step's own, for all elements
    hyper,    ///< a number of the hyper block
    setting,  ///< a number among the hyper block's settings
    factor,   ///< by which gradients are multiplied
    constant,
  };
  Kind kind = Kind::constant;
  int index = 0;
  DType dtype = kF64;
  double constant = 0;

  bool operator==(const Location&) const = default;
  bool is_array() const { return kind <= Kind::buffer; }
  bool is_same_memory(const Location& other) const { return kind == other.kind && index == other.index; }
};

struct Instruction {
  enum class Kind : uint8_t {
    compute,     ///< a row of formula/pointwise.def
    decompress,  ///< in[0], a compressed state, to f32
    compress,    ///< in[0], f32, to state `state`, or with -1 to the parameter, rounded stochastically
  };
  Kind kind = Kind::compute;
  Pointwise op = {};
  bool blends = false;  ///< formula::Blend in place of a row
  DType compute = kF32;
  int arity = 1;
  int state = 0;
  Location out = {};
  std::array<Location, 4> in = {};

  bool operator==(const Instruction&) const = default;
};

struct Program {
  std::vector<Instruction> numbers;  ///< on numbers for all elements: once for all parameters that share a hyper block
  std::vector<Instruction> arrays;   ///< on arrays, in order
  std::vector<int> buffers;          ///< bytes an element of each
  int number_count = 0;
  int copies[kMaxStates + 1];  ///< of each state, and of the master after them: the buffer that holds its copy while
                               ///< it is stepped; -1: it is where it is

  /// Of all buffers, for each element that is stepped at a time.
  int64_t bytes_per_element() const;
  bool operator==(const Program&) const = default;
};

/// The program of a rule with `states` states; `record` calls its update as kernels::recording::record does.
Program make_program(const std::function<void(kernels::recording::Symbol* values)>& record, int states,
                     const StepShape& shape);

}  // namespace lorry::optim
