#pragma once

#include "lorry/ops/random.h"

namespace lorry {

/// While training, each element is 0 with probability p and x / (1 - p) otherwise; else x itself. Floating input.
/// One draw of the generator (the process's where none is given). Throws ValueError unless 0 <= p <= 1.
/// Srivastava et al. 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true, Generator* generator = nullptr);

}  // namespace lorry
