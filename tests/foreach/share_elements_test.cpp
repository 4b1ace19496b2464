// Whether tensors share elements, against counting every byte of every element.

#include <algorithm>
#include <random>
#include <set>

#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

std::set<int64_t> bytes_of_elements(int64_t offset, const Layout& layout, int64_t element) {
  std::set<int64_t> bytes;
  const int64_t count = layout.numel();
  for (int64_t i = 0; i < count; ++i) {
    int64_t at = offset, rest = i;
    for (int d = 0; d < layout.rank; ++d) {
      at += rest % layout.sizes[d] * layout.strides[d] * element;
      rest /= layout.sizes[d];
    }
    for (int64_t byte = 0; byte < element; ++byte) bytes.insert(at + byte);
  }
  return bytes;
}

TEST(ShareElements, is_what_counting_bytes_tells) {
  std::mt19937_64 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const char* const base = nullptr;
  int shared = 0, interleaved = 0;
  for (int round = 0; round < 20'000; ++round) {
    int64_t offsets[2], elements[2];
    Layout layouts[2];
    // Strides of one set, so that many interleave, sometimes with gaps of their own, sometimes overlapping in
    // themselves.
    const int64_t strides[] = {1, 1 + below(4), 8, 8 + below(3), 24, 24 + below(9), below(30)};
    for (int x = 0; x < 2; ++x) {
      Dims sizes, own;
      for (int d = 0; d < static_cast<int>(below(4)); ++d)
        sizes.push_back(below(20) == 0 ? 0 : 1 + below(4)), own.push_back(strides[below(7)]);
      layouts[x] = Layout::strided(sizes, own);
      elements[x] = round % 5 == 0 ? int64_t{1} << below(4) : 4;
      offsets[x] = 1024 + (round % 5 == 0 ? below(64) : 4 * below(40));
    }
    const Sharing got =
        share_elements(base + offsets[0], layouts[0], elements[0], base + offsets[1], layouts[1], elements[1]);
    const auto one = bytes_of_elements(offsets[0], layouts[0], elements[0]),
               other = bytes_of_elements(offsets[1], layouts[1], elements[1]);
    const bool expected = std::ranges::any_of(one, [&](int64_t byte) { return other.contains(byte); });
    const auto in_itself = [&](int x) { return layouts[x].has_internal_overlap(); };
    if (got == Sharing::unknown && in_itself(0) && in_itself(1)) continue;
    ASSERT_EQ(got, expected ? Sharing::yes : Sharing::no) << "round " << round;
    shared += expected;
    if (!expected &&
        spans_overlap(base + offsets[0], layouts[0], elements[0], base + offsets[1], layouts[1], elements[1]))
      ++interleaved;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(interleaved, 500);
}

TEST(ShareElements, of_large_tensors_is_decided_where_strides_tell) {
  const Tensor x = zeros({2048, 2048});
  const auto share = [&](const Tensor& a, const Tensor& b) {
    return share_elements(a.data_ptr(), a.layout(), 4, b.data_ptr(), b.layout(), 4);
  };
  EXPECT_EQ(share(x.narrow(1, 0, 1000), x.narrow(1, 1000, 1048)), Sharing::no);
  EXPECT_EQ(share(x.narrow(1, 0, 1001).narrow(0, 5, 2000), x.narrow(1, 1001, 1047).t()), Sharing::no);
  EXPECT_EQ(share(x.as_strided({1024, 1024}, {4096, 2}), x.as_strided({1024, 1024}, {4096, 2}, 1)), Sharing::no);
  EXPECT_EQ(share(x.narrow(1, 0, 1000), x.narrow(1, 999, 1000)), Sharing::unknown);
  EXPECT_EQ(share(x.narrow(1, 0, 1000), x.narrow(1, 0, 10)), Sharing::yes);
}

}  // namespace
}  // namespace lorry::foreach::test
