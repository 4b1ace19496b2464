// What CUDA keeps of a list, as far as it needs no device: entries among the arguments, and what a moved array changes.

#include "lorry/kernels/cuda/list/list.h"

#include <gtest/gtest.h>

#include <random>

#include "lorry/device/device.h"
#include "lorry/memory/allocate.h"
#include "tests/support/on_cuda.h"

namespace lorry::kernels::cuda {
namespace {

constexpr Device kGPU{DeviceType::cuda, 0};
constexpr Geometry kGeometry{64, 4};

void* address(uintptr_t value) { return reinterpret_cast<void*>(value); }

List list_of(const std::vector<int64_t>& counts, Strategy strategy = Strategy::kernel_args_4k) {
  const DType dtypes[] = {kF32, kBF16};
  List list(kGPU, dtypes, strategy);
  for (size_t e = 0; e < counts.size(); ++e)
    list.add({{address(0x10000 * (e + 1)), address(0x1000000 + 0x10000 * e)}, counts[e], static_cast<uint32_t>(e)});
  return list;
}

const CudaList& known(const List& list) { return CudaList::of(list, kGeometry, {kGPU}); }

TEST(CudaList, entries_with_elements_follow_each_other_tile_by_tile) {
  const List list = list_of({5, 0, 64, 65, 0, 1, 1'000});
  const CudaList& kept = known(list);
  ASSERT_EQ(kept.count(), 5);
  const Entry<2>* const entries = kept.entries<2>();
  const int64_t counts[] = {5, 64, 65, 1, 1'000};
  const uint32_t first[] = {0, 1, 2, 4, 5}, words[] = {0, 2, 3, 5, 6};
  for (int e = 0; e < 5; ++e) {
    EXPECT_EQ(entries[e].count, counts[e]);
    EXPECT_EQ(entries[e].first_tile, first[e]);
    EXPECT_EQ(entries[e].word, words[e]);
    EXPECT_EQ(entries[e].head, 0);
    EXPECT_EQ(entries[e].at[1], address(0x1000000 + 0x10000 * words[e]));
  }
  EXPECT_EQ(kept.tiles(), 5u + 16u);
}

TEST(CudaList, a_list_without_elements_has_no_tiles) {
  EXPECT_EQ(known(list_of({})).tiles(), 0u);
  EXPECT_EQ(known(list_of({0, 0})).count(), 0);
}

TEST(CudaList, the_head_joins_what_all_arrays_ask_for) {
  const DType dtypes[] = {kF32, kBF16};
  List list(kGPU, dtypes, Strategy::kernel_args_4k);
  list.add({{address(4), address(2)}, 100});  // both one element past a run
  list.add({{address(4), address(4)}, 100});  // one and two
  list.add({{address(4), nullptr}, 100});     // an array that is missing asks for nothing
  const Entry<2>* const entries = known(list).entries<2>();
  EXPECT_EQ(entries[0].head, 3);
  EXPECT_EQ(entries[1].head, kNoHead);
  EXPECT_EQ(entries[2].head, 3);
}

TEST(CudaList, a_moved_array_changes_its_entry_alone) {
  List list = list_of({100, 100, 100});
  const CudaList* const before = &known(list);
  list.move(1, 0, address(0x777770));
  const CudaList& after = known(list);
  EXPECT_EQ(&after, before);
  EXPECT_EQ(after.entries<2>()[1].at[0], address(0x777770));
  EXPECT_EQ(after.entries<2>()[0].at[0], address(0x10000));
  EXPECT_TRUE(list.moved().empty());
}

TEST(CudaList, a_move_that_changes_the_number_of_tiles_lays_the_list_out_again) {
  List list = list_of({65, 100, 100});
  EXPECT_EQ(known(list).entries<2>()[1].first_tile, 2u);
  list.move(0, 0, address(4 * 3)), list.move(0, 1, address(2 * 3));  // a head of one element: 64 behind it are a tile
  EXPECT_EQ(known(list).entries<2>()[1].first_tile, 1u);
  EXPECT_EQ(known(list).entries<2>()[0].head, 1);
}

TEST(CudaList, another_geometry_lays_the_list_out_again) {
  const List list = list_of({100, 100});
  EXPECT_EQ(known(list).tiles(), 4u);
  EXPECT_EQ(CudaList::of(list, {128, 4}, {kGPU}).tiles(), 2u);
}

TEST(CudaList, automatic_takes_arguments_while_one_launch_holds_them) {
  constexpr int kBytes = sizeof(Entry<2>);
  EXPECT_EQ(choose_strategy(Arguments4K<2>::kCapacity, kBytes), Strategy::kernel_args_4k);
  EXPECT_EQ(choose_strategy(Arguments4K<2>::kCapacity + 1, kBytes), Strategy::kernel_args_32k);
  EXPECT_EQ(choose_strategy(Arguments32K<2>::kCapacity, kBytes), Strategy::kernel_args_32k);
  EXPECT_EQ(choose_strategy(Arguments32K<2>::kCapacity + 1, kBytes), Strategy::device_table);
  EXPECT_EQ(choose_strategy(Arguments4K<2>::kCapacity + 1, kBytes, false), Strategy::device_table);
  EXPECT_LE(sizeof(Arguments4K<6>) + kBodyBytes, 4'096u);
  EXPECT_LE(sizeof(Arguments32K<1>) + kBodyBytes, 32'764u);
}

TEST(CudaList, a_body_without_large_arguments_takes_small_ones) {
  const List few = list_of({100, 100}, Strategy::kernel_args_32k), same = list_of({100, 100}, Strategy::automatic);
  EXPECT_EQ(CudaList::of(few, {64, 1, false}, {kGPU}).strategy(), Strategy::kernel_args_4k);
  EXPECT_EQ(CudaList::of(few, {64, 1, true}, {kGPU}).strategy(), Strategy::kernel_args_32k);
  EXPECT_EQ(CudaList::of(same, {64, 1, false}, {kGPU}).strategy(), Strategy::kernel_args_4k);
}

TEST(CudaList, a_body_without_large_arguments_takes_the_table_for_more) {
  LORRY_SKIP_WITHOUT_CUDA();
  const List many = list_of(std::vector<int64_t>(Arguments4K<2>::kCapacity + 1, 100), Strategy::automatic);
  EXPECT_EQ(CudaList::of(many, {64, 1, false}, {kGPU}).strategy(), Strategy::device_table);
}

TEST(CudaList, a_warp_finds_the_entry_of_its_tile) {
  std::mt19937 random(1);
  std::vector<int64_t> counts;
  for (int e = 0; e < 60; ++e) counts.push_back(static_cast<int64_t>(random() % 400));
  const List list = list_of(counts);
  const CudaList& kept = known(list);
  const Entry<2>* const entries = kept.entries<2>();
  int64_t elements = 0;
  for (int e = 0; e < kept.count(); ++e) {
    const uint32_t end = e + 1 < kept.count() ? entries[e + 1].first_tile : kept.tiles();
    for (uint32_t t = entries[e].first_tile; t < end; ++t)
      elements += tile_at(t - entries[e].first_tile, 64, 4, 128, static_cast<int64_t>(entries[e].count),
                          static_cast<uint8_t>(entries[e].head))
                      .count;
  }
  EXPECT_EQ(elements, list.elements());
}

/// A graph of what `enqueue` enqueues; the number of its nodes.
template <class F>
size_t nodes_of_capture(Stream stream, F&& enqueue) {
  EXPECT_EQ(cudaStreamBeginCapture(lorry::cuda::handle(stream), cudaStreamCaptureModeThreadLocal), cudaSuccess);
  enqueue();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(lorry::cuda::handle(stream), &graph), cudaSuccess);
  size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  cudaGraphDestroy(graph);
  return nodes;
}

TEST(CudaList, counters_do_not_take_a_captured_fill_for_one_that_ran) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  const StreamScope scope(stream);
  void* const memory = memory::allocate(kGPU, 16);
  lorry::cuda::fill_bytes(stream, memory, 0xff, 16);
  Counters counters(static_cast<uint32_t*>(memory), 16);
  const auto use = [&] {
    counters.begin(stream);
    counters.end();
  };
  EXPECT_EQ(nodes_of_capture(stream, use), 1u);
  use();
  uint32_t values[4];
  device::copy(values, kCPU, memory, kGPU, 16, stream);
  stream.synchronize();
  for (const uint32_t value : values) EXPECT_EQ(value, 0u);
  EXPECT_EQ(nodes_of_capture(stream, use), 1u) << "a graph zeroes them by itself, whatever is known of the stream's";
  memory::release(kGPU, memory, 16);
}

TEST(CudaList, a_table_is_not_written_by_a_capture) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  List list = list_of({100, 100}, Strategy::device_table);
  nodes_of_capture(stream, [&] { EXPECT_THROW(CudaList::of(list, kGeometry, stream), CaptureError); });
  const void* const table = CudaList::of(list, kGeometry, stream).table()->entries();
  ASSERT_NE(table, nullptr);
  void* const moved_to = address(0x777770);
  list.move(1, 0, moved_to);
  nodes_of_capture(stream, [&] { EXPECT_THROW(CudaList::of(list, kGeometry, stream), CaptureError); });
  ASSERT_EQ(CudaList::of(list, kGeometry, stream).table()->entries(), table);
  Entry<2> entries[2];
  device::copy(entries, kCPU, const_cast<void*>(table), kGPU, sizeof entries, stream);
  stream.synchronize();
  EXPECT_EQ(entries[1].at[0], moved_to) << "the refused patch is made up for";
}

TEST(CudaList, only_table_strategies_have_a_table) {
  for (int k = 0; k < kStrategies; ++k) {
    const auto strategy = static_cast<Strategy>(k);
    const bool has_table =
        strategy == Strategy::device_table || strategy == Strategy::mapped_table || strategy == Strategy::managed_table;
    EXPECT_EQ(known(list_of({}, strategy)).table() != nullptr, has_table) << name(strategy);
  }
}

TEST(CudaList, a_table_holds_the_entry_of_every_tile) {
  const List list = list_of({5, 0, 64, 65, 0, 1, 200});
  const CudaList& laid_out = known(list);
  const TableContent content{reinterpret_cast<const std::byte*>(laid_out.entries<2>()), laid_out.count(),
                             sizeof(Entry<2>), laid_out.tiles()};
  std::vector<uint32_t> owners(laid_out.tiles());
  content.write_owners(owners.data());
  EXPECT_EQ(owners, (std::vector<uint32_t>{0, 1, 2, 2, 3, 4, 4, 4, 4}));
  EXPECT_EQ(content.first_tile(content.count), laid_out.tiles());
}

TEST(CudaList, a_mapped_table_that_changes_leaves_the_one_that_kernels_may_still_read) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  List list = list_of({100, 100}, Strategy::mapped_table);
  const ListTable& table = *CudaList::of(list, kGeometry, stream).table();
  const auto* const before = static_cast<const Entry<2>*>(table.entries());
  const uint32_t* const owners = table.owners();
  list.move(1, 0, address(0x777770));
  ASSERT_EQ(CudaList::of(list, kGeometry, stream).table(), &table);
  const auto* const after = static_cast<const Entry<2>*>(table.entries());
  ASSERT_NE(after, before);
  EXPECT_EQ(table.owners(), owners);
  EXPECT_EQ(after[1].at[0], address(0x777770));
  EXPECT_EQ(before[1].at[0], address(0x20000)) << "its block is released, but nobody has it yet";
}

TEST(CudaList, a_mapped_table_can_be_made_inside_a_capture_and_stays_for_the_graph) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  List list = list_of({100, 100}, Strategy::mapped_table);
  const void* captured = nullptr;
  EXPECT_EQ(nodes_of_capture(stream, [&] { captured = CudaList::of(list, kGeometry, stream).table()->entries(); }), 0u);
  for (uintptr_t i = 1; i < 10; ++i) {  // other lists and changes do not get the block
    list.move(1, 0, address(0x777770 * i));
    const List other = list_of({100, 100}, Strategy::mapped_table);
    EXPECT_NE(CudaList::of(list, kGeometry, stream).table()->entries(), captured);
    EXPECT_NE(CudaList::of(other, kGeometry, stream).table()->entries(), captured);
  }
  EXPECT_EQ(static_cast<const Entry<2>*>(captured)[1].at[0], address(0x20000));
}

TEST(CudaList, a_managed_table_is_written_in_place_and_never_by_a_capture) {
  LORRY_SKIP_WITHOUT_CUDA();
  const OwnedStream stream(kGPU);
  List list = list_of({100, 100}, Strategy::managed_table);
  nodes_of_capture(stream, [&] { EXPECT_THROW(CudaList::of(list, kGeometry, stream), CaptureError); });
  const auto* const table = static_cast<const Entry<2>*>(CudaList::of(list, kGeometry, stream).table()->entries());
  list.move(1, 0, address(0x777770));
  nodes_of_capture(stream, [&] { EXPECT_THROW(CudaList::of(list, kGeometry, stream), CaptureError); });
  ASSERT_EQ(CudaList::of(list, kGeometry, stream).table()->entries(), table);
  EXPECT_EQ(table[1].at[0], address(0x777770));
  EXPECT_EQ(table[0].at[0], address(0x10000));
}

}  // namespace
}  // namespace lorry::kernels::cuda
