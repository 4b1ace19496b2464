// How entries of lists are cut into tiles: arithmetic that needs no device.

#include "lorry/kernels/cuda/list/tile.h"

#include <gtest/gtest.h>

#include <map>

namespace lorry::kernels::cuda {
namespace {

constexpr int kTile = 64, kRunLength = 4, kRow = 16;

const void* address(uintptr_t value) { return reinterpret_cast<const void*>(value); }

TEST(Tile, tiles_cover_every_element_once_and_runs_start_at_the_head) {
  for (const int head : {0, 1, 2, 3, int{kNoHead}})
    for (int64_t count = 1; count < 4 * kTile + 9; ++count) {
      const auto h = static_cast<uint8_t>(head);
      int64_t next = 0;
      for (int64_t t = 0; t < tiles_of(count, h, kTile); ++t) {
        const Tile tile = tile_at(t, kTile, kRunLength, kRow, count, h);
        SCOPED_TRACE(testing::Message() << "head " << head << " count " << count << " tile " << t);
        ASSERT_EQ(tile.first, next);
        ASSERT_GT(tile.count, 0);
        ASSERT_LE(0, tile.runs);
        ASSERT_LE(tile.runs, tile.rest);
        ASSERT_LE(tile.rest, tile.count);
        ASSERT_EQ((tile.rest - tile.runs) % kRunLength, 0);
        ASSERT_LT(tile.count - tile.rest, kRunLength);
        if (tile.runs < tile.rest) {
          ASSERT_EQ((tile.first + tile.runs - head) % kRunLength, 0);
        }
        next += tile.count;
      }
      ASSERT_EQ(next, count);
    }
}

TEST(Tile, warps_that_share_rows_cover_their_tiles_once) {
  constexpr int kWarps = 8;
  for (const int head : {0, 3}) {
    const auto h = static_cast<uint8_t>(head);
    std::map<int64_t, int> visits;
    for (int warp = 0; warp < kWarps; ++warp) {
      const Tile tile = interleaved_at(5, kTile, kRow, warp, kWarps, h);
      EXPECT_EQ(tile.runs, 0);
      EXPECT_EQ(tile.rest, tile.count);
      for (int row = tile.runs; row < tile.rest; row += tile.apart)
        for (int i = 0; i < kRow; ++i) ++visits[tile.first + row + i];
    }
    EXPECT_EQ(visits.size(), size_t{kWarps * kTile});
    EXPECT_EQ(visits.begin()->first, head + 5 * kTile);
    EXPECT_EQ(visits.rbegin()->first, head + (5 + kWarps) * kTile - 1);
  }
  EXPECT_TRUE(can_interleave(1, kTile, kWarps, 3 + 9 * kTile, 3));
  EXPECT_FALSE(can_interleave(1, kTile, kWarps, 2 + 9 * kTile, 3)) << "the last tile is not whole";
  EXPECT_FALSE(can_interleave(0, kTile, kWarps, 3 + 9 * kTile, 3)) << "the first tile has the head";
  EXPECT_FALSE(can_interleave(1, kTile, kWarps, 99 * kTile, kNoHead));
}

TEST(Tile, a_tensor_beyond_32_bits_keeps_its_last_element) {
  const int64_t count = (int64_t{5} << 32) + 3, tiles = tiles_of(count, 1, kTile);
  const Tile last = tile_at(tiles - 1, kTile, kRunLength, kRow, count, 1);
  EXPECT_EQ(last.first + last.count, count);
  EXPECT_GT(last.count, 0);
}

TEST(Tile, the_head_brings_all_arrays_to_a_boundary) {
  const auto f32 = [](int head, uintptr_t a) { return join_head(head, address(a), 4, 16); };
  EXPECT_EQ(f32(kAnyHead, 64), 0);
  EXPECT_EQ(f32(kAnyHead, 68), 3);
  EXPECT_EQ(f32(f32(kAnyHead, 68), 132), 3);
  EXPECT_EQ(f32(f32(kAnyHead, 68), 64), kNoHead);
  EXPECT_EQ(f32(f32(f32(kAnyHead, 68), 64), 64), kNoHead) << "what cannot be joined stays so";
  EXPECT_EQ(join_head(f32(kAnyHead, 68), address(2 * 17), 2, 8), 3) << "16-bit parameters with f32 states";
  EXPECT_EQ(join_head(kAnyHead, address(66), 4, 16), kNoHead) << "an element across two";
}

}  // namespace
}  // namespace lorry::kernels::cuda
