#include "lorry/kernels/cuda/sort/radix.h"

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "lorry/device/cuda/launch.h"

namespace lorry::kernels::cuda {
namespace {

/// Runs a sort of CUB. Up to about 5,000 elements take one launch. run(memory, bytes): the call, which with null memory
/// only tells how many bytes it needs. addresses: of its operands.
template <size_t kOperands, class Run>
void run_cub(const void* const (&addresses)[kOperands], const Run& run, Stream stream) {
  const lorry::cuda::DeviceGuard guard(stream.device.index);
  const auto checked = [&](void* memory, size_t& bytes) {
    lorry::cuda::check(run(memory, bytes), "cub::DeviceRadixSort");
  };
  size_t bytes = 0;
  checked(nullptr, bytes);
  const Scratch memory(static_cast<int64_t>(bytes), stream);
  const void* all[kOperands + 1] = {memory.data()};
  std::copy_n(addresses, kOperands, all + 1);
  lorry::cuda::library(stream, "cub::DeviceRadixSort", all, [&] {
    checked(memory.data(), bytes);
    return true;
  });
}

template <class Key>
void sort(Pairs<Key>& pairs, int bits, Stream stream) {
  if (pairs.count() < 2 || bits == 0) return;
  cub::DoubleBuffer<Key> keys(pairs.keys(), pairs.spare_keys());
  cub::DoubleBuffer<uint32_t> values(pairs.values(), pairs.spare_values());
  run_cub(
      {pairs.keys(), pairs.spare_keys(), pairs.values(), pairs.spare_values()},
      [&](void* memory, size_t& bytes) {
        return cub::DeviceRadixSort::SortPairs(memory, bytes, keys, values, static_cast<uint32_t>(pairs.count()), 0,
                                               bits, lorry::cuda::handle(stream));
      },
      stream);
  if (keys.Current() != pairs.keys()) pairs.swap_keys();
  if (values.Current() != pairs.values()) pairs.swap_values();
}

template <class Key>
Key* sort(Key* first, Key* spare, int64_t count, int bits, Stream stream) {
  if (count < 2 || bits == 0) return first;
  cub::DoubleBuffer<Key> keys(first, spare);
  run_cub(
      {first, spare},
      [&](void* memory, size_t& bytes) {
        return cub::DeviceRadixSort::SortKeys(memory, bytes, keys, static_cast<uint32_t>(count), 0, bits,
                                              lorry::cuda::handle(stream));
      },
      stream);
  return keys.Current();
}

}  // namespace

void radix_sort(Pairs<uint32_t>& pairs, int bits, Stream stream) { sort(pairs, bits, stream); }
void radix_sort(Pairs<uint64_t>& pairs, int bits, Stream stream) { sort(pairs, bits, stream); }
uint32_t* radix_sort(uint32_t* keys, uint32_t* spare, int64_t count, int bits, Stream stream) {
  return sort(keys, spare, count, bits, stream);
}
uint64_t* radix_sort(uint64_t* keys, uint64_t* spare, int64_t count, int bits, Stream stream) {
  return sort(keys, spare, count, bits, stream);
}

}  // namespace lorry::kernels::cuda
