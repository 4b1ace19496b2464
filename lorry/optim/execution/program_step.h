#pragma once

// How a program is made: a step is recorded (program.cpp), operations are joined into one row if that gives the same
// roundings (join_rows.cpp), and values get memory (allocate_buffers.cpp).

#include <vector>

#include "lorry/optim/execution/program.h"

namespace lorry::optim::detail {

using kernels::recording::Node;
using kernels::recording::Term;

/// An array that a step writes: the parameter, a master or a state.
struct Result {
  Location to;
  Term value;
  bool is_compressed = false;  ///< it is written by an instruction that compresses state `state`
  int state = 0;
};

/// The recorded rule, and what is added around it: parameters are widened, gradients are scaled, results are narrowed.
struct RecordedStep {
  std::vector<Node> nodes;
  std::vector<Result> results;
};

/// Joins operations into rows. Returns how often each node is read afterwards; 0: it is not needed.
std::vector<int> join_rows(RecordedStep& step);

/// Orders the operations, and chooses the memory of their values. states: how many the rule has.
Program allocate_buffers(const StepShape& shape, const RecordedStep& step, const std::vector<int>& uses, int states);

}  // namespace lorry::optim::detail
