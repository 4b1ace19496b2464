#pragma once

// Where the gradients of parameters lie while they travel: in one memory for each dtype, cut into buckets.

#include <cstdint>
#include <span>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::parallel {

/// A multiple of these elements comes before every parameter of a memory, and before every rank's part of a bucket:
/// what vector loads need, and the elements that share a scale of an 8-bit state (formula/quantize.h).
inline constexpr int64_t kBucketAlignment = 256;

/// Elements of a parameter, in the order of its memory.
struct OwnRange {
  int64_t first = 0, count = 0;
};

struct BucketPlan {
  struct Memory {
    DType dtype;
    int64_t elements = 0;
  };
  struct Place {
    size_t memory = 0;
    int64_t offset = 0;  ///< in elements
    size_t bucket = 0;
  };
  /// A run of a memory.
  struct Bucket {
    size_t memory = 0;
    int64_t begin = 0, end = 0;  ///< in elements
  };
  std::vector<Memory> memories;
  std::vector<Place> places;  ///< of each parameter
  std::vector<Bucket> buckets;
};

/// Places parameters in this order. A bucket takes parameters of one dtype until it has `bucket_bytes`. The first takes
/// an eighth of that, so that sending begins early, and so does the last, which nothing is computed beside. A parameter
/// is never split. Buckets have `parts` equal parts.
BucketPlan plan_buckets(std::span<const Tensor> parameters, std::span<const size_t> order, int64_t bucket_bytes,
                        int64_t parts);

}  // namespace lorry::parallel
