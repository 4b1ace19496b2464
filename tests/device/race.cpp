// A program with a race on purpose: the ThreadSanitizer build must report it, or its silence elsewhere means nothing.
#include <cstdint>

#include "lorry/device/cpu/team.h"

int main() {
  lorry::cpu::set_threads(4);
  int64_t sum = 0;
  lorry::cpu::parallel_for(100'000, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum == 1;
}
