#pragma once

// The step of parameters that share a hyper block, by the executions loop and foreach. It is made once for a layout of
// parameters and gradients, and used by every step until that changes. Everything that may fail is done by its
// constructor and prepare(), before any step writes: what is left to run() are kernel calls over lists that there are,
// in memory that there is.

#include <optional>
#include <vector>

#include "lorry/device/stream.h"
#include "lorry/kernels/list.h"
#include "lorry/optim/execution/compression.h"
#include "lorry/optim/execution/program.h"
#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// How many elements can be stepped at a time within a budget of bytes, a multiple of 256; 0 bytes are no bound.
int64_t elements_within(int64_t budget, int64_t bytes_per_element);
/// The smallest budget that lets 256 elements be stepped.
int64_t least_budget(int64_t bytes_per_element);

/// What parameters that share a hyper block have in common.
struct EagerWork {
  Program program;
  bool is_foreach;  ///< foreach; else loop, one parameter at a time
  const char* where;
  Device device;
  DType dtype, grad_dtype;
  int states;                           ///< of the rule
  DType state_dtypes[kMaxStates + 1];   ///< of arrays; after the states the master
  const char* hyper;                    ///< the hyper block's numbers, on the device
  std::vector<const double*> settings;  ///< the numbers among its settings, likewise
  bool zero_grads;
  Compression compression;
};

/// What steps on one device compute in, one after the other.
struct EagerMemory {
  Tensor numbers, buffers;  ///< bytes
};
/// Of the numbers: 8 each.
inline constexpr int64_t kNumberBytes = 512;

struct SteppedParameter {
  const kernels::ListEntry* entry;  ///< parameter, gradient, states, and the master
  const Tensor* states;             ///< the same arrays without parameter and gradient, for those that are copied
  uint32_t number;                  ///< in stochastic rounding
};

class EagerStep {
 public:
  /// Takes at most `budget` bytes for its buffers; 0: as many as it takes to step all elements at a time. Throws
  /// ValueError for a budget that holds less than 256 elements.
  EagerStep(const EagerWork& work, std::vector<SteppedParameter> parameters, int64_t budget);
  const Program& program() const { return work_.program; }
  /// Of the buffers that run() needs, beside kNumberBytes.
  int64_t bytes() const { return capacity_ * buffer_bytes_; }
  /// Before each run: takes over the memory, and the addresses of the gradients in their entries. May run out of host
  /// memory.
  void prepare(const EagerMemory& memory);
  /// grad_factor: null: 1. NaN: nothing is written but zeros.
  void run(const double* grad_factor, const Stream& stream);

 private:
  struct Part {
    const SteppedParameter* parameter;
    int64_t first, count;  ///< elements, in the order of memory
    int64_t offset;        ///< elements of buffers before it
  };
  bool next_parts();
  void fill_lists();
  void run_parts() const;
  kernels::ListEntry entry_of(const Instruction& x, const Part& part) const;
  void compute(const Instruction& x, const kernels::List& list, bool always) const;
  void copy_states(bool to_device) const;
  template <class F>
  void for_ranges(int k, const Part& part, const F& copy) const;
  DType array_dtype(int state) const;
  char* buffer(int b, const Part& part) const;
  void* array_at(const Location& place, const Part& part) const;
  kernels::ListOperand operand(const Location& place, DType compute) const;

  EagerWork work_;
  std::vector<SteppedParameter> parameters_;
  int64_t capacity_ = 0;            ///< elements that buffers hold
  std::vector<int64_t> buffer_at_;  ///< bytes an element of the buffers before each
  int64_t buffer_bytes_ = 0;
  std::vector<kernels::List> number_lists_, lists_;  ///< of each instruction
  std::optional<kernels::List> zeros_;
  std::vector<Part> parts_;  ///< that are stepped now
  size_t next_ = 0;
  int64_t first_ = 0;
  bool is_whole_ = false;  ///< all elements are stepped at a time: lists are filled once
  char *numbers_ = nullptr, *buffers_ = nullptr;
  const double* grad_factor_ = nullptr;
  Stream stream_ = {};
};

}  // namespace lorry::optim
