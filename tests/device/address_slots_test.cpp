// Addresses that move: all at once, found by binary search.

#include "lorry/device/address_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lorry::device {
namespace {

/// Made-up memory: addresses are only compared.
const void* at(int64_t address) { return reinterpret_cast<const void*>(address); }

/// Places with addresses; place i belongs to node i / 2.
struct Places {
  explicit Places(const std::vector<int64_t>& addresses) {
    for (const int64_t x : addresses) words.push_back(at(x));
    for (size_t i = 0; i < words.size(); ++i) slots.add(&words[i], static_cast<int32_t>(i / 2));
    slots.sort();
  }
  int64_t move(const std::vector<Move>& moves) {
    nodes.clear();
    return slots.move(moves, nodes);
  }
  std::vector<int64_t> addresses() const {
    std::vector<int64_t> all;
    for (const void* x : words) all.push_back(reinterpret_cast<int64_t>(x));
    return all;
  }

  std::vector<const void*> words;
  AddressSlots slots;
  std::vector<int32_t> nodes;
};

using Addresses = std::vector<int64_t>;

TEST(AddressSlots, a_move_takes_what_lies_in_its_range_along) {
  Places places({100, 107, 108, 99, 400, 100});
  EXPECT_EQ(places.move({{at(100), 8, at(1000)}}), 3);
  EXPECT_EQ(places.addresses(), (Addresses{1000, 1007, 108, 99, 400, 1000}));
  EXPECT_EQ(places.nodes, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(places.move({{at(100), 8, at(1000)}}), 0);
  EXPECT_EQ(places.nodes, std::vector<int32_t>{});
  EXPECT_EQ(places.move({{at(1000), 8, at(100)}}), 3);
  EXPECT_EQ(places.addresses(), (Addresses{100, 107, 108, 99, 400, 100}));
}

TEST(AddressSlots, two_pieces_of_memory_change_places) {
  Places places({100, 204, 200, 104, 300});
  EXPECT_EQ(places.move({{at(100), 8, at(200)}, {at(200), 8, at(100)}}), 4);
  EXPECT_EQ(places.addresses(), (Addresses{200, 104, 100, 204, 300}));
  EXPECT_EQ(places.nodes, (std::vector<int32_t>{0, 1}));
}

TEST(AddressSlots, memory_may_move_into_memory_that_moves) {
  Places ring({100, 200, 300});
  EXPECT_EQ(ring.move({{at(100), 8, at(200)}, {at(200), 8, at(300)}, {at(300), 8, at(100)}}), 3);
  EXPECT_EQ(ring.addresses(), (Addresses{200, 300, 100}));
  Places overlap({100, 104, 108, 112});
  EXPECT_EQ(overlap.move({{at(100), 16, at(108)}}), 4);
  EXPECT_EQ(overlap.addresses(), (Addresses{108, 112, 116, 120}));
}

TEST(AddressSlots, the_first_of_several_moves_counts) {
  Places places({100, 104, 110});
  EXPECT_EQ(places.move({{at(104), 2, at(500)}, {at(100), 20, at(1000)}, {at(100), 20, at(2000)}}), 3);
  EXPECT_EQ(places.addresses(), (Addresses{1000, 500, 1010}));
}

TEST(AddressSlots, null_is_no_address_and_an_empty_range_holds_none) {
  Places places({0, 0, 8});
  EXPECT_EQ(places.slots.size(), 1u);
  EXPECT_EQ(places.move({{at(8), 0, at(100)}, {at(0), 8, at(100)}}), 0);
  EXPECT_EQ(places.move({}), 0);
  EXPECT_EQ(places.addresses(), (Addresses{0, 0, 8}));
}

TEST(AddressSlots, random_moves_are_those_of_a_walk_over_all_places) {
  for (unsigned seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 generator(seed);
    const auto number = [&](int64_t below) {
      return 1 + static_cast<int64_t>(generator() % static_cast<unsigned>(below));
    };
    Addresses want;
    for (int64_t n = number(60); n > 0; --n) want.push_back(number(80));
    Places places(want);
    for (int round = 0; round < 5; ++round) {
      std::vector<Move> moves;
      for (int64_t n = number(6); n > 0; --n) moves.push_back({at(number(80)), number(20), at(number(80))});
      int64_t count = 0;
      std::vector<int32_t> nodes;
      for (size_t i = 0; i < want.size(); ++i) {
        const auto move = std::ranges::find_if(moves, [&](const Move& m) { return m(at(want[i])) != nullptr; });
        if (move == moves.end()) continue;
        want[i] += reinterpret_cast<int64_t>(move->to) - reinterpret_cast<int64_t>(move->from);
        ++count;
        if (nodes.empty() || nodes.back() != static_cast<int32_t>(i / 2)) nodes.push_back(static_cast<int32_t>(i / 2));
      }
      EXPECT_EQ(places.move(moves), count);
      EXPECT_EQ(places.addresses(), want);
      EXPECT_EQ(places.nodes, nodes);
    }
  }
}

}  // namespace
}  // namespace lorry::device
