#include "lorry/generate/blocks.h"

namespace lorry::generate {

Blocks::Blocks(int64_t count) {
  for (int64_t block = count; block-- > 0;) free_.push_back(static_cast<int32_t>(block));
}

std::vector<int32_t> Blocks::first(int64_t count) const { return {free_.rbegin(), free_.rbegin() + count}; }

std::vector<int32_t> Blocks::take(int64_t count) {
  std::vector<int32_t> taken = first(count);
  free_.erase(free_.end() - count, free_.end());
  return taken;
}

}  // namespace lorry::generate
