#pragma once

// Reverse-mode differentiation over the tape.

#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/tensor/tensor.h"

namespace lorry::autograd {

/// Adds the gradients of `roots`, weighted by `gradients`, into the grad of every leaf they depend on.
/// An undefined gradient means 1, and is allowed for roots of one element only.
/// Throws GradError, ShapeError.
void backward(const std::vector<Tensor>& roots, const std::vector<Tensor>& gradients = {}, bool retain_graph = false,
              bool create_graph = false);

struct GradOptions {
  bool retain_graph = false;
  /// records the gradients' own graph, so that they can be differentiated again; keeps the graph too
  bool create_graph = false;
  /// Do not propagate past the inputs: if one input depends on another, the path through it is not counted.
  bool stop_at_inputs = false;
  bool allow_unused = false;  ///< undefined instead of GradError for an input that no root depends on
};

/// The gradients of `roots` with respect to `inputs` (leaves or not); no grad is touched.
std::vector<Tensor> grad(const std::vector<Tensor>& roots, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, const GradOptions& options = {});

}  // namespace lorry::autograd
