#include "lorry/replay/graph_memory.h"

#include <algorithm>

namespace lorry::replay::detail {
namespace {

constexpr int64_t kHalveAfter = 4096;  ///< calls, then all counts are halved

/// What a count must reach to be clearly more than this one.
int64_t clearly_more(int64_t use) { return 2 * use + 8; }

}  // namespace

GraphMemory::GraphMemory(Device device, int64_t budget, std::map<int64_t, Bucket>& buckets)
    : device_(device), budget_(budget), buckets_(buckets), pool_(std::make_shared<memory::Pool>(device)) {}

void GraphMemory::note_use(Bucket& bucket) {
  ++bucket.use;
  if (++uses_ % kHalveAfter != 0) return;
  for (auto& [size, other] : buckets_) other.use /= 2, other.next_try /= 2;
}

void GraphMemory::drop_all() {
  for (auto& [size, bucket] : buckets_) bucket.drop_graph();
  pool_ = std::make_shared<memory::Pool>(device_);
}

bool GraphMemory::is_exceeded() const {
  int64_t used = pool_->reserved();
  for (const auto& [size, bucket] : buckets_) used += bucket.stats().graph.bytes;
  return used > budget_;
}

std::vector<Bucket*> GraphMemory::captured_but(const Bucket& bucket) const {
  std::vector<Bucket*> others;
  for (auto& [size, other] : buckets_)
    if (other.is_captured() && &other != &bucket) others.push_back(&other);
  return others;
}

bool GraphMemory::make_room(std::vector<Bucket*> others) {
  int64_t excess = pool_->reserved() - budget_;
  for (const auto& [size, bucket] : buckets_) excess += bucket.stats().graph.bytes;
  std::ranges::stable_sort(others, {}, &Bucket::use);
  size_t count = 0;
  for (; excess > 0 && count < others.size(); ++count) excess -= others[count]->stats().graph.bytes;
  if (excess > 0) return false;
  for (size_t i = 0; i < count; ++i) others[i]->drop_graph();
  return true;
}

bool GraphMemory::fits(Bucket& bucket) {
  const bool is_first = bucket.bytes() == 0;  // it was never captured
  std::vector<Bucket*> others = captured_but(bucket);
  const bool is_largest = others.empty() || others.back()->stats().size < bucket.stats().size;
  if (others.empty()) drop_all();
  bucket.capture(pool_);
  if (!is_exceeded()) return true;
  if (others.empty()) return false;
  std::vector<Bucket*> less_used = others;
  std::erase_if(less_used, [&](const Bucket* x) { return bucket.use < clearly_more(x->use); });
  if (make_room(less_used)) return true;
  if (less_used.size() < others.size() && !(is_first && is_largest)) return false;
  drop_all();
  bucket.capture(pool_);
  return !is_exceeded();
}

void GraphMemory::capture(Bucket& bucket) {
  if (budget_ == 0) return bucket.capture(pool_);
  if (!may_capture(bucket)) return;
  if (fits(bucket)) return;
  bucket.drop_graph();
  if (captured_but(bucket).empty()) require_possible(bucket);  // it was alone
  bucket.next_try = clearly_more(bucket.use);
  if (is_exceeded()) drop_all();  // the pool has grown
}

/// Throws if the bucket, whose graph did not fit alone, is the smallest.
void GraphMemory::require_possible(const Bucket& bucket) const {
  const auto smallest = std::ranges::find_if(buckets_, [](const auto& entry) { return entry.second.wants_graph(); });
  if (&bucket != &smallest->second) return;
  raise_as<ValueError>("BucketSet",
                       "memory_budget is too small for a single graph; got {} bytes; the smallest bucket ({}) needs "
                       "{}; give more, or choose Execution::eager or compiled",
                       budget_, smallest->first, bucket.bytes());
}

}  // namespace lorry::replay::detail
