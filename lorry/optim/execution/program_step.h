#pragma once

// How a program is made: a step is recorded (program.cpp), several of its operations become one row where that rounds
// alike (join_rows.cpp), and its values find memory (place_values.cpp).

#include <vector>

#include "lorry/optim/execution/program.h"

namespace lorry::optim::detail {

using kernels::recording::Node;
using kernels::recording::Term;

/// An array that a step leaves behind.
struct Result {
  Location to;
  Term value;
  bool is_compressed = false;  ///< in another form than numbers: `state` says which
  int state = 0;
};

/// The formula and what stands around it: how parameters are widened, gradients scaled, and results narrowed again.
struct RecordedStep {
  std::vector<Node> nodes;
  std::vector<Result> results;
};

/// Joins operations into rows. Gives how often each node is read then; 0: it is not needed.
std::vector<int> join_rows(RecordedStep& step);

/// Puts the operations in order, and their values into memory. states: of the rule.
Program place_values(const StepShape& shape, const RecordedStep& step, const std::vector<int>& uses, int states);

}  // namespace lorry::optim::detail
