#pragma once

// Whether tensors that are to be written lie apart.

#include <optional>
#include <span>

#include "lorry/tensor/tensor.h"

namespace lorry::optim {

/// Two tensors that have elements in common, or may have.
struct Clash {
  size_t first, second;  ///< first < second
  bool certain;
};

/// The first of a list, by address; undefined tensors are passed over. In n log n, but for tensors that lie in between
/// one another.
std::optional<Clash> find_clash(std::span<const Tensor> tensors);

}  // namespace lorry::optim
