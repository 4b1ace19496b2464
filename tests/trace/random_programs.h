#pragma once

// Random functions of tensors for the tracer and the compiler: operators, views of views, writes through any of them,
// broadcasting, mixed dtypes, lists, random numbers. Which steps are taken depends on the seed and on sizes and dtypes
// alone, never on elements, so a function can be recorded over some and run over others. With `reads`, the host reads
// elements, and steps depend on them.

#include <cstdint>

#include "tests/trace/support.h"

namespace lorry::test {

struct RandomFunction {
  MakeArguments make;
  Function call;
  /// Arguments whose last dimensions are longer by `more`.
  std::function<Tensors(uint64_t seed, int64_t more)> make_longer;
};

RandomFunction random_function(uint64_t seed, int steps, bool reads = false);

}  // namespace lorry::test
