#pragma once

// Lists of tensors in kernels: a warp takes a tile, so many consecutive elements of one entry, whatever the sizes: a
// bias shares a block with its neighbours, and a large matrix spreads over all multiprocessors. Which tile is whose is
// told by one of two sources:
//
//   Arguments   entries by value among the kernel's arguments: nothing is uploaded, nothing is waited for, and a
//               captured graph keeps its own copy. A warp finds its entry by a binary search over first tiles.
//   Table       entries and the owner of every tile in memory, that of the device, of the host or managed by the
//               driver (list_table.h): one launch whatever the number, and two dependent reads a warp. For one entry it
//               carries the entry itself.
//
// A kernel is a body: a trivially copyable struct that works on one tile.
//
//   struct Body {
//     static constexpr int kArrays, kTile, kRunLength, kBlocks;
//     __device__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const;
//     void addresses(auto& visit) const;  // its members that are addresses (device/cuda/parameters.h)
//   };
//
// kTile is a multiple of 32 * kRunLength, and kBlocks is how many blocks of 256 threads share a multiprocessor at
// least. A body may have besides:
//
//   int elements;                         in place of kTile, for one that depends on the list
//   bool kBackwards = true;               tiles are taken from the last on, for a pass that follows one over the same
//                                         memory and finds the end of it in the cache
//   bool kLargeArguments = false;         has no kernel for 32 KB of arguments, which saves a third of compiling a long
//                                         body: its lists take the table where 4 KB do not hold them
//   int kRow = 32 * kRunLength;           the warps of a block share out the rows of their tiles where these are whole
//                                         ones of an entry (interleaved_at)
//   void open(int thread) const;          by all threads of a block, before all else
//   void close(uint32_t first, uint32_t end) const;
//                                         by all threads of a block, when each warp has done its tile: the block had
//                                         the list's tiles [first, end)
//   void finish(int thread) const;        by all threads of one block, when every tile of every launch has been worked
//                                         on
//
// Tiles are aligned (tile.h): an odd length costs its last few elements the vector path and no others, and so does an
// odd start the first few where all arrays of the entry are off alike; where they are not, it costs the whole entry
// that path.

// Kernels that are compiled at run time include this too, and get the device's part of it alone.

#ifndef __CUDACC_RTC__
#include <cstring>
#include <functional>
#include <utility>

#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/common/list.h"
#include "lorry/kernels/cuda/list/list_table.h"
#endif

#include "lorry/kernels/cuda/list/tile.h"

namespace lorry::kernels::cuda {

inline constexpr int kListThreads = 256, kListWarps = kListThreads / 32;

template <int kArrays>
struct Entry {
  void* at[kArrays];
  uint64_t count : 40, number : 24;
  uint32_t first_tile;
  uint32_t word : 24, head : 8;

  void addresses(auto& visit) const { visit(at); }
};

#ifndef __CUDACC_RTC__

/// What a body asks of its list.
struct Geometry {
  int tile = 0;                 ///< elements
  int run_length = 1;           ///< elements of a vector access; 1 asks for no alignment
  bool large_arguments = true;  ///< there is a kernel for 32 KB of arguments
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// Counters in device memory by which blocks of several launches know that they are the last: zero before the first
/// launch, and set back to zero by the last block. A use that throws between its launches leaves them at some number,
/// so the next use zeroes them first.
class Counters {
 public:
  Counters() = default;
  /// In memory of any content.
  Counters(uint32_t* at, int64_t bytes) : at_(at), bytes_(bytes) {}
  uint32_t* data() const { return at_; }
  /// Before the first launch of a use.
  void begin(const Stream& stream) {
    captured_ = lorry::cuda::capturing(stream);
    if (counting_ || captured_) lorry::cuda::fill_bytes(stream, at_, 0, bytes_);
    counting_ = true;
  }
  /// After the last one. A captured use has not run: it leaves the memory as it was, and each replay zeroes it for
  /// itself.
  void end() { counting_ = captured_; }

 private:
  uint32_t* at_ = nullptr;
  int64_t bytes_ = 0;
  bool counting_ = true;   ///< not known to be zero
  bool captured_ = false;  ///< the use is recorded into a graph
};

/// What CUDA keeps of a list: entries as kernels read them (of 8 * arrays + 16 bytes each), and their table.
class CudaList : public ListOnDevice {
 public:
  /// That of `list`, up to date for work on `stream` with one of the strategies, and never `automatic`.
  static CudaList& of(const List& list, const Geometry& geometry, const Stream& stream);

  Strategy strategy() const { return strategy_; }
  uint32_t tiles() const { return tiles_; }
  int count() const { return count_; }  ///< entries with elements
  template <int kArrays>
  const Entry<kArrays>* entries() const {
    return reinterpret_cast<const Entry<kArrays>*>(entries_.data());
  }
  /// Where kernels read entries and owners; null for strategies without a table, and for a list without elements.
  const ListTable* table() const { return table_.get(); }
  /// A counter for kernels that must know when all of their blocks are done.
  Counters& ticket(const Stream& stream);
  /// Device memory that stays with the list: what it held when it was last asked for under this key for this stream,
  /// else new. It begins with `counters` bytes that are work_counters(). Of new memory the `head` bytes behind them are
  /// what `write` leaves in host memory, and the rest is arbitrary.
  char* workspace(uint64_t key, int64_t bytes, int64_t counters, int64_t head, const Stream& stream,
                  const std::function<void(char*)>& write);
  Counters& work_counters() { return work_counters_; }

  ~CudaList() override;

 private:
  CudaList(const List& list, const Geometry& geometry);
  /// Takes over the addresses of an entry that moved. False when the list must be laid out again.
  bool update_addresses(const List& list, uint32_t at);
  /// An entry from its last array on: what does not depend on the number of arrays.
  Entry<1>& last_part(int position);
  uint32_t first_tile(int position);
  uint8_t head_of(const ListEntry& entry) const;

  const Geometry geometry_;
  Device device_;
  int arrays_, entry_bytes_;
  int64_t element_bytes_[kMaxArrays] = {};
  Strategy strategy_;
  std::vector<std::byte> entries_;
  std::vector<int32_t> positions_;  ///< of the list's entries among those with elements; -1 for none
  std::vector<uint32_t> stale_;     ///< entries that the table has wrong
  int count_ = 0;
  uint32_t tiles_ = 0;
  std::unique_ptr<ListTable> table_;
  Stream ticket_stream_{};
  char* ticket_memory_ = nullptr;
  Counters ticket_;
  uint64_t work_key_ = 0;
  Stream work_stream_{};
  char* work_ = nullptr;
  bool work_ready_ = false;  ///< the head is on its way
  int64_t work_bytes_ = 0;
  Counters work_counters_;
};

/// What automatic is for a list of `count` entries of `entry_bytes`.
Strategy choose_strategy(int count, int entry_bytes, bool large_arguments = true);

#endif  // __CUDACC_RTC__

// ---- sources --------------------------------------------------------------------------------------------------------

/// Bytes of arguments that a body may have.
inline constexpr int kBodyBytes = 192;

template <int kArrays, int kBytes>
struct Arguments {
  static constexpr int kCapacity = (kBytes - kBodyBytes - 16) / static_cast<int>(sizeof(Entry<kArrays>));
  uint32_t tiles;       ///< of this launch
  uint32_t first_tile;  ///< of this launch among all
  int count;
  Entry<kArrays> entries[kCapacity];

  void addresses(auto& visit) const {
    for (int i = 0; i < count; ++i) visit(entries[i]);
  }

  __device__ __forceinline__ const Entry<kArrays>& find(uint32_t tile) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (entries[middle].first_tile <= tile ? low : high) = middle;
    }
    return entries[low];
  }
};
template <int kArrays>
using Arguments4K = Arguments<kArrays, 4'096>;
template <int kArrays>
using Arguments32K = Arguments<kArrays, 32'764>;

template <int kArrays>
struct Table {
  uint32_t tiles;
  uint32_t first_tile;
  const uint32_t* owners;  ///< null: all tiles are those of `one`
  const Entry<kArrays>* entries;
  Entry<kArrays> one;

  void addresses(auto& visit) const { owners ? visit(owners, entries) : visit(one); }

  __device__ __forceinline__ const Entry<kArrays>& find(uint32_t tile) const {
    return owners ? entries[owners[tile]] : one;
  }
};

// ---- kernels --------------------------------------------------------------------------------------------------------

#ifdef __CUDACC__

/// Those of a body's tiles.
template <class Body>
LORRY_HOST_DEVICE constexpr int tile_elements([[maybe_unused]] const Body& body) {
  if constexpr (requires { Body::kTile; })
    return Body::kTile;
  else
    return body.elements;
}

template <class Body>
constexpr bool large_arguments() {
  if constexpr (requires { Body::kLargeArguments; })
    return Body::kLargeArguments;
  else
    return true;
}

/// How a kernel notices that it is done: every block of every launch takes a ticket, and the last one sets it back.
struct Ending {
  uint32_t* ticket = nullptr;
  uint32_t blocks = 0;  ///< of all launches

  void addresses(auto& visit) const { visit(ticket); }
};

/// A block's part of a kernel over a list.
template <class Body, class Source>
__device__ __forceinline__ void over_tile(const Body& body, [[maybe_unused]] const Ending& ending,
                                          const Source& source) {
  const uint32_t tile = blockIdx.x * kListWarps + threadIdx.x / 32;
  if constexpr (requires { body.open(0); }) {
    body.open(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  if (tile < source.tiles) {
    constexpr bool kBackwards = requires { Body::kBackwards; };
    const uint32_t at = source.first_tile + (kBackwards ? source.tiles - 1 - tile : tile);
    const Entry<Body::kArrays>& entry = source.find(at);
    const int elements = tile_elements(body);
    const auto count = static_cast<int64_t>(entry.count);
    const auto head = static_cast<uint8_t>(entry.head);
    if constexpr (requires { Body::kRow; }) {
      const int warp = static_cast<int>(threadIdx.x / 32);
      const int64_t first = static_cast<int64_t>(at) - entry.first_tile - (kBackwards ? kListWarps - 1 - warp : warp);
      const bool whole =
          (blockIdx.x + 1) * kListWarps <= source.tiles && can_interleave(first, elements, kListWarps, count, head);
      body(entry,
           whole ? interleaved_at(first, elements, Body::kRow, warp, kListWarps, head)
                 : tile_at(at - entry.first_tile, elements, Body::kRunLength, Body::kRow, count, head),
           static_cast<int>(threadIdx.x % 32));
    } else {
      body(entry, tile_at(at - entry.first_tile, elements, Body::kRunLength, 32 * Body::kRunLength, count, head),
           static_cast<int>(threadIdx.x % 32));
    }
  }
  if constexpr (requires { body.close(tile, tile); }) {
    const uint32_t first = blockIdx.x * kListWarps, left = source.tiles - first;
    body.close(source.first_tile + first, source.first_tile + first + (left < kListWarps ? left : kListWarps));
  }
  if constexpr (requires { body.finish(0); }) {
    __threadfence();
    const bool mine = threadIdx.x == 0;
    __syncthreads();
    if (!__syncthreads_or(mine && atomicInc(ending.ticket, ending.blocks - 1) == ending.blocks - 1)) return;
    __threadfence();
    body.finish(static_cast<int>(threadIdx.x));
  }
}

/// The source comes last: instructions cannot name what lies more than 32 KB into the bank of constants that arguments
/// are in, which would cost registers.
template <class Body, class Source>
__global__ void __launch_bounds__(kListThreads, Body::kBlocks)
    over_tiles(const __grid_constant__ Body body, const Ending ending, const __grid_constant__ Source source) {
  over_tile(body, ending, source);
}

#ifndef __CUDACC_RTC__

template <class Body>
Geometry geometry_of(const Body& body) {
  return {tile_elements(body), Body::kRunLength, large_arguments<Body>()};
}

/// The kernels of a body, one a source; null for 32 KB of arguments where the body has none.
template <int kArrayCount, class Body>
struct TileKernels {
  static constexpr int kArrays = kArrayCount;
  void (*arguments_4k)(Body, Ending, Arguments4K<kArrays>);
  void (*arguments_32k)(Body, Ending, Arguments32K<kArrays>);
  void (*table)(Body, Ending, Table<kArrays>);
};

/// The same, compiled at run time: those that the list's strategy needs.
template <int kArrayCount, class Body>
struct CompiledTileKernels {
  static constexpr int kArrays = kArrayCount;
  template <class Source>
  using Kernel = lorry::cuda::CompiledKernel<Body, Ending, Source>;
  Kernel<Arguments4K<kArrays>> arguments_4k;
  Kernel<Arguments32K<kArrays>> arguments_32k;
  Kernel<Table<kArrays>> table;
};

/// Runs kernels over every tile of the list: TileKernels, or CompiledTileKernels. `finishes`: they take tickets.
// Long: the ways to pass a list to a kernel, one beside the other.
template <class Body, class Kernels>
void over_list(const List& list, const Geometry& geometry, const Body& body, const Kernels& kernels, bool finishes,
               const Stream& stream) {
  constexpr int kArrays = Kernels::kArrays;
  static_assert(sizeof(Body) <= kBodyBytes - sizeof(Ending) && sizeof(Entry<kArrays>) == 8 * kArrays + 16);
  CudaList& known = CudaList::of(list, geometry, stream);
  const auto blocks_of = [](uint32_t tiles) { return (tiles + kListWarps - 1) / kListWarps; };
  const Entry<kArrays>* const entries = known.entries<kArrays>();
  const auto tiles_until = [&](int entry) {
    return entry == known.count() ? known.tiles() : entries[entry].first_tile;
  };
  const int count = known.count(),
            trip = known.strategy() == Strategy::per_tensor        ? 1
                   : known.strategy() == Strategy::kernel_args_4k  ? Arguments4K<kArrays>::kCapacity
                   : known.strategy() == Strategy::kernel_args_32k ? Arguments32K<kArrays>::kCapacity
                                                                   : count;
  Ending ending;
  Counters* const counters = finishes ? &known.ticket(stream) : nullptr;
  if (finishes) {
    for (int first = 0; first < count; first += trip)
      ending.blocks += blocks_of(tiles_until(first + trip < count ? first + trip : count) - tiles_until(first));
    ending.ticket = counters->data();
    counters->begin(stream);
    if (count == 0) ending.blocks = 1;
  }
  const auto launch = [&](const auto& kernel, const auto& source) {
    lorry::cuda::launch_with(stream, lorry::cuda::Shape{count == 0 ? 1 : blocks_of(source.tiles), kListThreads}, kernel,
                             body, ending, source);
  };
  const auto pass = [&]<class Source>(const auto& kernel, Source&& source) {
    for (int first = 0; first < count; first += Source::kCapacity) {
      source.count = count - first < Source::kCapacity ? count - first : Source::kCapacity;
      source.first_tile = entries[first].first_tile;
      source.tiles = tiles_until(first + source.count) - source.first_tile;
      std::memcpy(static_cast<void*>(source.entries), entries + first,
                  static_cast<size_t>(source.count) * sizeof(Entry<kArrays>));
      launch(kernel, source);
    }
  };
  if (known.table() != nullptr || count == 0) {
    // Without elements there may be nothing to do but to finish.
    if (count > 0)
      launch(kernels.table, Table<kArrays>{known.tiles(),
                                           0,
                                           known.table()->owners(),
                                           static_cast<const Entry<kArrays>*>(known.table()->entries()),
                                           {}});
    else if (finishes)
      launch(kernels.table, Table<kArrays>{});
  } else if (known.strategy() == Strategy::per_tensor) {
    for (int e = 0; e < count; ++e)
      launch(kernels.table,
             Table<kArrays>{tiles_until(e + 1) - tiles_until(e), entries[e].first_tile, nullptr, nullptr, entries[e]});
  } else if (known.strategy() == Strategy::kernel_args_4k) {
    Arguments4K<kArrays> source;
    pass(kernels.arguments_4k, std::move(source));
  } else {
    Arguments32K<kArrays> source;
    pass(kernels.arguments_32k, std::move(source));
  }
  if (finishes) counters->end();
}

/// Runs the body over every tile of the list.
template <class Body>
void over_list(const List& list, const Body& body, const Stream& stream) {
  constexpr int kArrays = Body::kArrays;
  if constexpr (requires { Body::kTile; }) static_assert(Body::kTile % (32 * Body::kRunLength) == 0);
  constexpr bool kFinishes = requires { body.finish(0); };
  TileKernels<kArrays, Body> kernels{over_tiles<Body, Arguments4K<kArrays>>, nullptr, over_tiles<Body, Table<kArrays>>};
  if constexpr (large_arguments<Body>()) kernels.arguments_32k = over_tiles<Body, Arguments32K<kArrays>>;
  over_list(list, geometry_of(body), body, kernels, kFinishes, stream);
}

#endif  // __CUDACC_RTC__
#endif  // __CUDACC__

}  // namespace lorry::kernels::cuda
