#include "lorry/generate/request.h"

#include <algorithm>

namespace lorry::generate {

int64_t context_start(int64_t prompt, int64_t size, int64_t context) {
  const int64_t half = std::max<int64_t>(1, context / 2);
  int64_t start = std::max<int64_t>(0, prompt - context);
  // Text `start + context` is the first that has no position. Each time, `context - half + 1` tokens were drawn before.
  while (size > start + context) start += context + 1 - half;
  return start;
}

}  // namespace lorry::generate
