// Compiled once for each instruction set: LORRY_SIMD.

#include "lorry/kernels/cpu/sort/radix_runs.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

void count(const uint64_t* items, int64_t n, Digit digit, int64_t* counts) {
  for (int64_t i = 0; i < n; ++i) ++counts[digit(items[i])];
}

void count_above(const uint64_t* items, int64_t n, Above above, int64_t* counts) {
  for (int64_t i = 0; i < n; ++i) ++counts[above(items[i])];
}

void move(const uint64_t* items, int64_t n, Digit digit, int64_t* next, uint64_t* to) {
  for (int64_t i = 0; i < n; ++i) to[next[digit(items[i])]++] = items[i];
}

void keep(const uint64_t* items, uint64_t* to, int64_t count, int low, uint64_t last) {
  for (int64_t i = 0, at = 0; at < count; ++i) {
    to[at] = items[i];
    at += items[i] >> low <= last;  // without a branch, which would be mispredicted often
  }
}

}  // namespace

void fill_radix_runs(RadixRuns& runs) {
  runs = {.count = count, .count_above = count_above, .move = move, .keep = keep};
}

}  // namespace lorry::kernels::cpu::LORRY_SIMD
