#include "lorry/kernels/cuda/sort/radix.h"

#include <cub/device/device_radix_sort.cuh>

#include "lorry/device/cuda/launch.h"

namespace lorry::kernels::cuda {
namespace {

/// Up to about 5,000 pairs take one launch.
template <class Key>
void sort(Pairs<Key>& pairs, int bits, Stream stream) {
  if (pairs.count() < 2 || bits == 0) return;
  const lorry::cuda::DeviceGuard guard(stream.device.index);
  cub::DoubleBuffer<Key> keys(pairs.keys(), pairs.spare_keys());
  cub::DoubleBuffer<uint32_t> values(pairs.values(), pairs.spare_values());
  const auto count = static_cast<uint32_t>(pairs.count());
  const auto run = [&](void* memory, size_t& bytes) {
    lorry::cuda::check(
        cub::DeviceRadixSort::SortPairs(memory, bytes, keys, values, count, 0, bits, lorry::cuda::handle(stream)),
        "cub::DeviceRadixSort");
  };
  size_t bytes = 0;
  run(nullptr, bytes);
  const Scratch memory(static_cast<int64_t>(bytes), stream);
  const void* const addresses[] = {pairs.keys(), pairs.spare_keys(), pairs.values(), pairs.spare_values(),
                                   memory.data()};
  lorry::cuda::library(stream, "cub::DeviceRadixSort", addresses, [&] {
    run(memory.data(), bytes);
    return true;
  });
  if (keys.Current() != pairs.keys()) pairs.swap_keys();
  if (values.Current() != pairs.values()) pairs.swap_values();
}

}  // namespace

void radix_sort(Pairs<uint32_t>& pairs, int bits, Stream stream) { sort(pairs, bits, stream); }
void radix_sort(Pairs<uint64_t>& pairs, int bits, Stream stream) { sort(pairs, bits, stream); }

}  // namespace lorry::kernels::cuda
