#pragma once

// The memory of a BucketSet's graphs. All graphs share one pool: what one computes in, the others compute in too, so
// the pool is about as large as the largest graph needs. Each graph takes memory of its own beside it.
//
// With a budget, not all buckets may have a graph. Use decides: calls are counted, old ones less, and a bucket takes
// the place of others only if it is used more than twice as much. A capture that did not fit is tried again when the
// bucket has been used twice as much. So buckets do not take turns at being captured.
//
// Memory returns from a pool only when it ends. So where a graph does not fit because of what the pool has grown to,
// all graphs are dropped and it is captured alone in a new one; the others follow in their next calls.

#include <map>
#include <memory>
#include <vector>

#include "lorry/replay/bucket.h"

namespace lorry::replay::detail {

class GraphMemory {
 public:
  /// budget: in bytes; 0: no limit. The buckets outlive the result.
  GraphMemory(Device device, int64_t budget, std::map<int64_t, Bucket>& buckets);

  /// Whether capture() would try.
  bool may_capture(const Bucket& bucket) const { return budget_ == 0 || bucket.use >= bucket.next_try; }
  /// Captures a graph for the bucket, in the place of others where there is no room. It has none afterwards if that
  /// does not help. Throws ValueError if the budget is too small for the smallest graph alone, and what Graph throws.
  void capture(Bucket& bucket);
  /// Notes a call of the bucket.
  void note_use(Bucket& bucket);
  /// Drops all graphs and their pool.
  void drop_all();

 private:
  bool is_exceeded() const;
  bool fits(Bucket& bucket);
  /// Drops graphs of `others` until the budget is kept. Drops none if that is not enough.
  bool make_room(std::vector<Bucket*> others);
  std::vector<Bucket*> captured_but(const Bucket& bucket) const;
  void require_possible(const Bucket& bucket) const;

  const Device device_;
  const int64_t budget_;
  std::map<int64_t, Bucket>& buckets_;
  std::shared_ptr<memory::Pool> pool_;
  int64_t uses_ = 0;
};

}  // namespace lorry::replay::detail
