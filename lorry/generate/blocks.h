#pragma once

#include <cstdint>
#include <vector>

namespace lorry::generate {

/// The free blocks of a cache. Blocks that were given back last are taken first.
class Blocks {
 public:
  explicit Blocks(int64_t count);
  int64_t available() const { return static_cast<int64_t>(free_.size()); }
  /// The blocks that take() takes: at most as many as are available.
  std::vector<int32_t> first(int64_t count) const;
  std::vector<int32_t> take(int64_t count);
  void give_back(const std::vector<int32_t>& blocks) { free_.insert(free_.end(), blocks.rbegin(), blocks.rend()); }

 private:
  std::vector<int32_t> free_;
};

}  // namespace lorry::generate
