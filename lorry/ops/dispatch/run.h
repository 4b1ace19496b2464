#pragma once

// Makes calls again from their announcements: for an interpreter of recorded calls, and for checks.
//
//   void after(const door::CallView& call, void*) { again = door::run(call); }
//
// The new call goes through the door like any other: listeners hear it, and gradients are recorded if they are on.

#include <vector>

#include "lorry/ops/dispatch/listener.h"

namespace lorry::door {

/// Calls `call.op` with the inputs and attributes of the call: in place if `in_place`, into its outputs if `out`.
/// Returns all outputs that are announced, also those that the operator's function does not return, such as a mask or a
/// logsumexp. In place they are the written tensors. The same inputs give the same bits.
///
/// It runs every row: operators by themselves, calls over lists by `call.run`, which an announced call has. One that
/// was put together by hand needs it too; or call foreach::run or optim::run directly.
///
/// Throws ValueError if inputs or attributes are not those of the operator (row(op).arguments), if it has no such form,
/// or if a call over lists has no `run`; and what the operator throws.
std::vector<Tensor> run(const CallView& call);

}  // namespace lorry::door
