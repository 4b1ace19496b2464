#pragma once

// Copies: between tensors, types and layouts, and to the host. The methods are declared in tensor/tensor.h.

#include "lorry/tensor/facts.h"
#include "lorry/tensor/tensor.h"

namespace lorry {

Tensor clone(const Tensor& x);
/// Row-major: x itself when it is, else a copy.
Tensor contiguous(const Tensor& x);
/// Tells listeners that the host is about to read x (tensor/facts.h).
inline void announce_host_read(const Tensor& x) {
  if (facts_heard()) [[unlikely]]
    announce_fact({.fact = Fact::host_read, .storage = x.storage().id(), .tensor = &x});
}
/// A view of the same memory in which expanded dimensions have size 1; x itself where there are none.
Tensor without_repeats(const Tensor& x);

}  // namespace lorry
