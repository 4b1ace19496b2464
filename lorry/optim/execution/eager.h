#pragma once

// What the executions loop and foreach share: a step of the parameters of one hyper block by a program (program.h),
// over whole parameters at a time or over as many of their elements as the buffers hold. LoopStep (loop.h) and
// ForeachStep (foreach.h) say which elements are stepped together.
//
// An EagerStep is made once for a layout of parameters and gradients, and used by every step until that changes.
// Everything that may fail is done by its constructor and prepare(), before any step writes. run() only calls kernels
// over lists that exist, in memory that exists.

#include <optional>
#include <span>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/kernels/list.h"
#include "lorry/optim/execution/compression.h"
#include "lorry/optim/execution/program.h"
#include "lorry/optim/family.h"
#include "lorry/optim/rules/rule.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// How many elements can be stepped at a time within a budget of bytes; 0: no bound. A multiple of 256.
int64_t elements_within(int64_t budget, int64_t bytes_per_element);
/// The smallest budget that lets 256 elements be stepped.
int64_t least_budget(int64_t bytes_per_element);

/// The elements that buffers need for a part of `count` elements. Parts begin on boundaries for vector instructions.
int64_t room_for(int64_t count);

/// What the parameters of a hyper block share.
struct EagerWork {
  Program program;
  const char* where;
  Device device;
  DType dtype, grad_dtype;
  int states;                           ///< of the rule
  DType state_dtypes[kMaxStates + 1];   ///< of the states, then of the master
  detail::HyperNumbers hyper;           ///< of the hyper block
  std::vector<const double*> settings;  ///< the numbers among the hyper block's settings, on the device
  bool zero_grads;
  Compression compression;
};

/// Bytes of StepBuffers::numbers: 8 for each number.
inline constexpr int64_t kNumberBytes = 512;

struct SteppedParameter {
  const kernels::ListEntry* entry;  ///< parameter, gradient, states, and the master
  const Tensor* states;             ///< the states and the master as tensors, for those that are copied
  uint32_t number;                  ///< in stochastic rounding
};

class EagerStep {
 public:
  virtual ~EagerStep() = default;
  EagerStep(const EagerStep&) = delete;
  EagerStep& operator=(const EagerStep&) = delete;

  const Program& program() const { return work_.program; }
  /// How many bytes of StepBuffers::arrays run() needs.
  int64_t buffer_bytes() const { return capacity_ * element_bytes_; }
  /// Before each run: takes over the buffers, and the addresses of the gradients in their entries. May run out of host
  /// memory.
  void prepare(const StepBuffers& buffers);
  /// Multiplies gradients by *grad_factor (null: 1). If that is NaN, writes nothing but the zeros of zero_grads.
  void run(const double* grad_factor, const Stream& stream);

 protected:
  /// A range of elements of one parameter. All parts are stepped together.
  struct Part {
    const SteppedParameter* parameter;
    int64_t first, count;  ///< elements, in memory order; `first` is a multiple of 256
    int64_t offset;        ///< where the part begins in each buffer, in elements
  };
  /// Buffers hold `wanted` elements, or as many as fit into `budget` bytes (0: no bound). most_parts: how many parts
  /// are stepped together. Throws ValueError if 256 elements do not fit.
  EagerStep(const EagerWork& work, std::vector<SteppedParameter> parameters, int64_t budget, int64_t wanted,
            size_t most_parts);

  /// Makes or patches lists that are kept from run to run. buffers_moved: the buffers are not those of the last run.
  virtual void prepare_lists(bool /*buffers_moved*/) {}
  /// Steps all elements.
  virtual void run_elements() = 0;

  std::span<const SteppedParameter> parameters() const { return parameters_; }
  /// How many elements the buffers hold.
  int64_t capacity() const { return capacity_; }
  std::vector<Part>& parts() { return parts_; }
  /// Fills the lists of all instructions with the parts.
  void fill_lists();
  /// Updates addresses in these lists: of gradients, and if buffers_moved, of buffers.
  void patch_lists(bool buffers_moved);
  /// Steps the parts by these lists.
  void run_parts() const;

 private:
  kernels::List empty_list(const Instruction& x, size_t entries) const;
  kernels::List empty_list(std::span<const DType> dtypes, size_t entries) const;
  kernels::ListEntry entry_of(const Instruction& x, const Part& part) const;
  void compute(const Instruction& x, const kernels::List& list, bool always) const;
  void copy_states(bool to_device) const;
  template <class F>
  void for_ranges(int k, const Part& part, const F& copy) const;
  DType array_dtype(int state) const;
  char* buffer(int b, const Part& part) const;
  void* address_of(const Location& location, const Part& part) const;
  kernels::ListOperand operand(const Location& location, DType compute) const;

  EagerWork work_;
  std::vector<SteppedParameter> parameters_;
  Strategy strategy_;  ///< of all lists
  int64_t capacity_ = 0;
  std::vector<int64_t> buffer_starts_;               ///< of each buffer: bytes per element of the buffers before it
  int64_t element_bytes_ = 0;                        ///< of all buffers
  std::vector<kernels::List> number_lists_, lists_;  ///< of each instruction
  std::optional<kernels::List> zeros_;
  std::vector<Part> parts_;  ///< stepped together
  char *numbers_ = nullptr, *buffers_ = nullptr;
  const double* grad_factor_ = nullptr;
  Stream stream_ = {};
};

}  // namespace lorry::optim
