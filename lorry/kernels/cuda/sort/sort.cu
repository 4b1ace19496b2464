// Sorting rows on the device. A row that fits a block is sorted by one block (sort_rows.cu). Long rows use the radix
// sort of the whole device: one at a time if a row fills the device, else many at once, first by value and then,
// stably, by row. For the first few elements of a long row, blocks choose the first k of each chunk (select.cu), in
// rounds, until a block can sort what is left.

#include <algorithm>
#include <bit>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/sort/keys.h"
#include "lorry/kernels/cuda/sort/radix.h"
#include "lorry/kernels/cuda/sort/select.h"
#include "lorry/kernels/cuda/sort/sort_rows.h"
#include "lorry/kernels/cuda/sort/unique.h"
#include "lorry/kernels/cuda/table.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256;
/// Rows of at least this length are sorted one at a time.
constexpr int64_t kAlone = int64_t{1} << 18;
/// The number of elements of shorter rows that are sorted together.
constexpr int64_t kTogether = int64_t{1} << 25;

unsigned blocks(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

/// keys[i], positions[i] = element start + i and i.
template <class Key>
__global__ void __launch_bounds__(kThreads)
    read_keys(Key* to, uint32_t* positions, Keys<Key> keys, int64_t start, int64_t n) {
  lorry::cuda::begin_programmatic();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  to[i] = keys(start + i);
  positions[i] = static_cast<uint32_t>(i);
}

/// The row of each position, as a key to sort by.
__global__ void __launch_bounds__(kThreads)
    read_rows(uint32_t* rows, uint32_t* positions, const uint32_t* from, uint32_t n, uint32_t length) {
  lorry::cuda::begin_programmatic();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  positions[i] = from[i];
  rows[i] = from[i] / length;
}

/// Writes the first k of every sorted row. `start` is the first element of the first row, `row` its number.
__global__ void __launch_bounds__(kThreads)
    write_rows(void* values, int64_t* indices, const void* x, DType dtype, const uint32_t* positions, int64_t start,
               int64_t row, int64_t rows, int64_t length, int64_t k) {
  lorry::cuda::begin_programmatic();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * k) return;
  const int64_t r = rows == 1 ? 0 : i / k, from = positions[r * length + i - r * k];
  indices[row * k + i] = from - r * length;
  copy_element(values, row * k + i, x, start + from, dtype);
}

/// The first k of each row of x in sorted order.
struct Job {
  Array x;
  void* values;
  int64_t* indices;
  bool descending;
  int64_t rows, length, k;
};

void write(const Job& job, const uint32_t* positions, int64_t row, int64_t rows, Stream stream) {
  lorry::cuda::launch(stream, {blocks(rows * job.k), kThreads}, write_rows, job.values, job.indices, job.x.data,
                      job.x.dtype, positions, row * job.length, row, rows, job.length, job.k);
}

/// Sorts rows [row, row + rows) with the radix sort of the device.
template <class Key>
void sort_long(const Job& job, int64_t row, int64_t rows, Stream stream) {
  const int64_t n = rows * job.length;
  Pairs<Key> pairs(n, stream);
  lorry::cuda::launch(stream, {blocks(n), kThreads}, read_keys<Key>, pairs.keys(), pairs.values(),
                      Keys<Key>(job.x, job.descending), row * job.length, n);
  radix_sort(pairs, key_bits(job.x.dtype), stream);
  if (rows == 1) return write(job, pairs.values(), row, rows, stream);
  Pairs<uint32_t> by_row(n, stream);
  lorry::cuda::launch(stream, {blocks(n), kThreads}, read_rows, by_row.keys(), by_row.values(), pairs.values(),
                      static_cast<uint32_t>(n), static_cast<uint32_t>(job.length));
  radix_sort(by_row, std::bit_width(static_cast<uint64_t>(rows - 1)), stream);
  write(job, by_row.values(), row, rows, stream);
}

/// Chooses in rounds until a block can sort what is left of a row. Ties keep their order in the row, because what is
/// chosen does.
void sort_in_rounds(const Job& job, Chunks round, Stream stream) {
  if (round.items <= kBlockItems) return sort_rows(round, job.values, job.indices, stream);
  round.chunk = selection_chunk(round, lorry::cuda::properties(stream.device.index).multiprocessors);
  const Scratch chosen(round.rows * round.results_per_row() * 4, stream);
  select_chunks(round, chosen.as<uint32_t>(), stream);
  round.subset = chosen.as<uint32_t>();
  round.items = round.results_per_row();
  sort_in_rounds(job, round, stream);
}

void run(const Job& job, Stream stream) {
  if (job.rows * job.k == 0) return;
  if (std::min(job.length, job.k) <= kBlockItems)
    return sort_in_rounds(job, {job.x, job.descending, job.rows, job.length, nullptr, job.length, 0, job.k}, stream);
  const int64_t together = job.length >= kAlone ? 1 : kTogether / job.length;
  visit_key(job.x.dtype, [&]<class Key>(Type<Key>) {
    for (int64_t row = 0; row < job.rows; row += together)
      sort_long<Key>(job, row, std::min(together, job.rows - row), stream);
  });
}

Job job(const Array& values, const Array& indices, const Array& x, bool descending) {
  const auto last = [](const Array& a) { return a.layout.rank == 0 ? 1 : a.size(a.layout.rank - 1); };
  const int64_t length = last(x);
  return {x,      values.data, indices.as<int64_t>(), descending, length == 0 ? 0 : x.numel() / length,
          length, last(values)};
}

void sort(const Array& values, const Array& indices, const Array& x, bool descending, const Stream& stream) {
  run(job(values, indices, x, descending), stream);
}

void topk(const Array& values, const Array& indices, const Array& x, bool largest, const Stream& stream) {
  run(job(values, indices, x, largest), stream);
}

}  // namespace

const SortKernels& sort_kernels() {
  static constexpr SortKernels kKernels{.sort = sort, .topk = topk, .unique = unique};
  return kKernels;
}

}  // namespace lorry::kernels::cuda
