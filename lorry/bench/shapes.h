#pragma once

// The parameter shapes of known models, for measuring calls over all parameters of a model. They are defined in
// bench/data/make_param_shapes.py and built into the command, so that other libraries are measured with the same
// shapes.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lorry/layout/layout.h"

namespace lorry::bench {

struct ModelShapes {
  std::string name;
  std::vector<std::pair<int64_t, Dims>> runs;  ///< numbers of consecutive parameters, and their shape

  std::vector<Dims> shapes() const;
  int64_t tensors() const;
  int64_t elements() const;
};

/// All models, in the file's order.
const std::vector<ModelShapes>& model_shapes();

/// The model with this name. Throws ValueError that lists the names.
const ModelShapes& model_shapes(std::string_view name);

}  // namespace lorry::bench
