#pragma once

// The shapes of the parameters of known models, for measuring what runs over all parameters of a model. They are
// defined in bench/data/make_param_shapes.py and built into the command, so that the peers measure the same.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lorry/layout/layout.h"

namespace lorry::bench {

struct ModelShapes {
  std::string name;
  std::vector<std::pair<int64_t, Dims>> runs;  ///< so many parameters of that shape, one after another

  std::vector<Dims> shapes() const;
  int64_t tensors() const;
  int64_t elements() const;
};

/// All models, in the order of the file.
const std::vector<ModelShapes>& model_shapes();

/// The model of that name. Throws ValueError that lists the names.
const ModelShapes& model_shapes(std::string_view name);

}  // namespace lorry::bench
