// Overlap of tensors that are written, against counting the addresses of all elements.

#include "lorry/foreach/overlap.h"

#include <algorithm>
#include <set>

#include "tests/foreach/support.h"

namespace lorry::foreach::test {
namespace {

std::set<const float*> elements_of(const Tensor& x) {
  std::set<const float*> elements;
  if (!x.defined()) return elements;
  const Layout& layout = x.layout();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float* at = static_cast<const float*>(x.data_ptr());
    int64_t rest = i;
    for (int d = 0; d < layout.rank; ++d) {
      at += rest % layout.sizes[d] * layout.strides[d];
      rest /= layout.sizes[d];
    }
    elements.insert(at);
  }
  return elements;
}

bool share(const Tensor& a, const Tensor& b) {
  const auto one = elements_of(a), other = elements_of(b);
  return std::ranges::any_of(one, [&](const float* element) { return other.contains(element); });
}

/// Slices, columns, blocks and copies of parts of `x`, a matrix; sometimes nothing.
Tensor part_of(const Tensor& x, std::mt19937& random) {
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const int64_t row = below(x.size(0)), column = below(x.size(1));
  switch (random() % 7) {
    case 0:
      return Tensor();
    case 1:
      return x.narrow(0, row, 0);
    case 2:
      return x.select(1, column);
    case 3:
      return x.select(0, row).clone();
    case 4:
      return x.select(0, row);
    default:
      return x.narrow(0, row, 1 + below(x.size(0) - row)).narrow(1, column, 1 + below(x.size(1) - column));
  }
}

TEST(WrittenMemory, finds_overlaps_within_a_list_and_with_others) {
  const Tensor x = zeros({24, 40}).to(kCPU);
  std::mt19937 random(3);
  int found_within = 0, found_with = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Tensor> written;
    for (size_t e = 0; e < 2 + random() % 5; ++e) written.push_back(part_of(x, random));
    const WrittenMemory memory(written);

    bool expected = false;
    for (size_t a = 0; a < written.size(); ++a)
      for (size_t b = 0; b < a; ++b) expected |= share(written[a], written[b]);
    const auto within = memory.within();
    ASSERT_EQ(within.has_value(), expected) << round;
    if (within) {
      EXPECT_TRUE(within->certain);
      EXPECT_LT(within->first, within->second);
      EXPECT_TRUE(share(written[within->first], written[within->second])) << round;
    }
    found_within += expected;

    const Tensor read = part_of(x, random);
    const auto entry = static_cast<uint32_t>(random() % written.size());
    bool with_others = false, with_any = false;
    for (uint32_t e = 0; e < written.size(); ++e) {
      const bool shared = share(written[e], read);
      with_any |= shared;
      with_others |= shared && e != entry;
    }
    ASSERT_EQ(memory.with(read, entry).has_value(), with_others) << round;
    ASSERT_EQ(memory.with(read).has_value(), with_any) << round;
    found_with += with_others;
  }
  EXPECT_GT(found_within, 50);
  EXPECT_LT(found_within, 350);
  EXPECT_GT(found_with, 50);
}

TEST(WrittenMemory, tells_apart_what_is_certain_and_what_is_not) {
  const Tensor x = zeros({2'048, 2'048}).to(kCPU);
  const std::vector<Tensor> unsure = {x.narrow(1, 0, 1'000), x.narrow(1, 999, 1'000)};
  const auto found = WrittenMemory(unsure).within();
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->certain);
  EXPECT_NO_THROW(require_no_overlap(unsure));
  const std::vector<Tensor> sure = {x.narrow(1, 0, 1'000), x.narrow(1, 999, 1'000), x.select(0, 3), x.select(0, 3)};
  EXPECT_TRUE(WrittenMemory(sure).within()->certain) << "though an uncertain pair comes first";
  EXPECT_THROW(require_no_overlap(sure), ShapeError);
}

TEST(WrittenMemory, compares_any_two_and_not_neighbours_alone) {
  const Tensor x = zeros({4, 6}).to(kCPU);
  const std::vector<Tensor> apart{x.select(1, 5), Tensor(), x.select(1, 0), zeros({0}), x.narrow(1, 1, 4), zeros({9})};
  EXPECT_FALSE(WrittenMemory(apart).within());
  std::vector<Tensor> all = apart;
  all.push_back(x.narrow(0, 3, 1).narrow(1, 5, 1));
  const auto found = WrittenMemory(all).within();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 0u);
  EXPECT_EQ(found->second, 6u);
  EXPECT_TRUE(found->certain);
}

}  // namespace
}  // namespace lorry::foreach::test
