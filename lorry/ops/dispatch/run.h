#pragma once

// Calls that are made again from what was announced of them: an interpreter of recorded calls, a second run of one
// operator, a check of both.
//
//   void after(const door::CallView& call, void*) { again = door::run(call); }
//
// A call goes through the door like any other: with nobody listening nothing is recorded, and with gradients on they
// are.

#include <vector>

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

/// Makes the call of `call.op` with its inputs and attributes; what else it says is not read but for `in_place`, which
/// writes the first input, and `out`, which writes the outputs. Returns all outputs that are announced: also those that
/// the operator's function does not return, such as a mask or a logsumexp. In place they are the written tensors.
///
/// The same inputs give the same bits. Throws ValueError where inputs or attributes are not those of the operator
/// (row(op).arguments) or it has no such form, and what the operator throws. Calls over lists are run by foreach::run
/// and optim::run.
std::vector<Tensor> run(const CallView& call);

}  // namespace lorry::door
