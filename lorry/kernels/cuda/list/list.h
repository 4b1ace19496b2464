#pragma once

// Kernels over lists of tensors. A warp processes a tile: a fixed number of consecutive elements of one entry. So small
// tensors share a block, and a large tensor is spread over all multiprocessors. A source tells a warp which entry its
// tile belongs to. There are two sources:
//
//   Arguments   entries as kernel arguments, by value. Nothing is uploaded, nothing waits, and a captured graph has its
//               own copy. A warp finds its entry by binary search over the entries' first tiles.
//   Table       entries, and the owner of every tile, in memory of the device, of the host, or managed (list_table.h).
//               One launch for any number of entries; a warp does two dependent reads. For a single entry, the source
//               contains the entry itself.
//
// A kernel is given as a *body*: a trivially copyable struct whose operator() processes one tile.
//
//   struct Body {
//     static constexpr int kArrays, kTile, kRunLength, kBlocks;
//     __device__ void operator()(const Entry<kArrays>& entry, const Tile& tile, int lane) const;
//     void addresses(auto& visit) const;  // its members that are addresses (device/cuda/parameters.h)
//   };
//
// kTile is a multiple of 32 * kRunLength. kBlocks is the minimum number of blocks of 256 threads per multiprocessor. A
// body identifies its entry by entry.word and entry.number, which the client has set, and the tile within the list by
// entry.first_tile + tile.first / kTile (not with kRow, where eight warps share their tiles). A body may also have:
//
//   int elements;                         instead of kTile, if it depends on the list
//   bool kBackwards = true;               tiles are processed from the last to the first: for a pass that follows
//                                         another over the same memory and finds the end of it in the cache
//   bool kLargeArguments = false;         no kernel for 32 KB of arguments, which saves a third of the time to compile
//                                         a long body. Lists that exceed 4 KB of arguments then use a table
//   int kRow = 32 * kRunLength;           the warps of a block share the rows of their tiles, if these are whole tiles
//                                         of one entry (interleaved_at)
//   void open(int thread) const;          called by all threads of a block, before everything else
//   void close(uint32_t first, uint32_t end) const;
//                                         called by all threads of a block after each warp has processed its tile; the
//                                         block had tiles [first, end) of the list
//   void finish(int thread) const;        called by all threads of one block, after all tiles of all launches are done
//
// Tiles are aligned (tile.h). If an entry's length is not a multiple of a run, only its last few elements are accessed
// one by one. If its start is not aligned, only its first few, provided that all arrays are misaligned by the same
// number of elements; otherwise the whole entry.

// Kernels compiled at run time include this file too, but only its device part.

#ifndef __CUDACC_RTC__
#include <cstring>
#include <functional>
#include <utility>

#include "lorry/device/cuda/capture.h"
#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/common/list.h"
#include "lorry/kernels/cuda/list/list_table.h"
#endif

#include "lorry/device/cuda/begin_programmatic.h"
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

/// A body's requirements on its list.
struct Geometry {
  int tile = 0;                 ///< elements
  int run_length = 1;           ///< elements of a vector access; 1: no alignment is needed
  bool large_arguments = true;  ///< whether there is a kernel for 32 KB of arguments
  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// Counters in device memory with which blocks of several launches find out that they are the last. They are zero
/// before the first launch, and the last block resets them. A use that throws between its launches leaves other values,
/// so the next use zeroes them first.
class Counters {
 public:
  Counters() = default;
  /// The memory need not be initialised.
  Counters(uint32_t* at, int64_t bytes) : at_(at), bytes_(bytes) {}
  uint32_t* data() const { return at_; }
  /// Call before the first launch of a use.
  void begin(const Stream& stream) {
    captured_ = lorry::cuda::capturing(stream);
    if (counting_ || captured_) lorry::cuda::fill_bytes(stream, at_, 0, bytes_);
    counting_ = true;
  }
  /// Call after the last launch of a use. A captured use has not run: it has not changed the memory, and each replay
  /// zeroes it first.
  void end() { counting_ = captured_; }

 private:
  uint32_t* at_ = nullptr;
  int64_t bytes_ = 0;
  bool counting_ = true;   ///< the counters may not be zero
  bool captured_ = false;  ///< the current use is captured into a graph
};

/// CUDA's cached form of a list: entries as kernels read them (8 * arrays + 16 bytes each), and their table. Entries
/// without elements are left out: they have no tile and are not in entries(). A kernel with a result for every entry of
/// the list numbers the entries itself (fold_entries in list_norm.cu).
class CudaList : public ListOnDevice {
 public:
  /// The cached form of `list`, up to date for work on `stream`. Its strategy is never `automatic`.
  static CudaList& of(const List& list, const Geometry& geometry, const Stream& stream);

  Strategy strategy() const { return strategy_; }
  uint32_t tiles() const { return tiles_; }
  int count() const { return count_; }  ///< entries with elements
  template <int kArrays>
  const Entry<kArrays>* entries() const {
    return reinterpret_cast<const Entry<kArrays>*>(entries_.data());
  }
  /// The table; null for strategies without one, and for a list without elements.
  const ListTable* table() const { return table_.get(); }
  /// The counter of blocks for bodies with `finish`; over_list passes it on.
  Counters& ticket(const Stream& stream);
  /// Device memory that a kernel keeps with the list between calls, for example for results of tiles:
  ///
  ///   counters   `counters` bytes of work_counters(), with which blocks find out that they are the last
  ///   head       `head` bytes that `write` fills in host memory, for example the first tile of every entry
  ///   rest       the remaining bytes, up to `bytes` in all: uninitialised
  ///
  /// If key, bytes and stream are those of the last call, the memory is the same and `write` is not called; otherwise
  /// it is new. A list has one workspace, so two kernels over the same list must use different keys.
  char* workspace(uint64_t key, int64_t bytes, int64_t counters, int64_t head, const Stream& stream,
                  const std::function<void(char*)>& write);
  /// The counters at the start of the workspace. Call begin() before the first launch that counts, and end() after the
  /// last.
  Counters& work_counters() { return work_counters_; }

  ~CudaList() override;

 private:
  CudaList(const List& list, const Geometry& geometry);
  /// Updates the addresses of an entry. Returns false if the layout of the list must be rebuilt.
  bool update_addresses(const List& list, uint32_t at);
  /// The part of an entry from its last array on, which does not depend on the number of arrays.
  Entry<1>& last_part(int position);
  uint32_t first_tile(int position);
  uint8_t head_of(const ListEntry& entry) const;

  const Geometry geometry_;
  Device device_;
  int arrays_, entry_bytes_;
  int64_t element_bytes_[kMaxArrays] = {};
  Strategy strategy_;
  std::vector<std::byte> entries_;
  /// for each entry of the list: its index among entries with elements; -1: it has none
  std::vector<int32_t> positions_;
  std::vector<uint32_t> stale_;  ///< entries that have changed since the table was written
  int count_ = 0;
  uint32_t tiles_ = 0;
  std::unique_ptr<ListTable> table_;
  Stream ticket_stream_{};
  char* ticket_memory_ = nullptr;
  Counters ticket_;
  uint64_t work_key_ = 0;
  Stream work_stream_{};
  char* work_ = nullptr;
  bool work_ready_ = false;  ///< the upload of the head has been enqueued
  int64_t work_bytes_ = 0;
  Counters work_counters_;
};

/// The strategy that `automatic` chooses for a list of `count` entries of `entry_bytes`.
Strategy choose_strategy(int count, int entry_bytes, bool large_arguments = true);

#endif  // __CUDACC_RTC__

// ---- sources --------------------------------------------------------------------------------------------------------

/// The maximum size of a body.
inline constexpr int kBodyBytes = 192;

template <int kArrays, int kBytes>
struct Arguments {
  static constexpr int kCapacity = (kBytes - kBodyBytes - 16) / static_cast<int>(sizeof(Entry<kArrays>));
  uint32_t tiles;       ///< in this launch
  uint32_t first_tile;  ///< number of this launch's first tile
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
  const uint32_t* owners;  ///< null: all tiles belong to `one`
  const Entry<kArrays>* entries;
  Entry<kArrays> one;

  void addresses(auto& visit) const { owners ? visit(owners, entries) : visit(one); }

  __device__ __forceinline__ const Entry<kArrays>& find(uint32_t tile) const {
    return owners ? entries[owners[tile]] : one;
  }
};

// ---- kernels --------------------------------------------------------------------------------------------------------

#ifdef __CUDACC__

/// The geometry of a body.
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

/// How a kernel finds out that it is done: every block of every launch takes a ticket, and the last block resets it.
struct Ending {
  uint32_t* ticket = nullptr;
  uint32_t blocks = 0;  ///< in all launches

  void addresses(auto& visit) const { visit(ticket); }
};

/// The work of one block of a kernel over a list.
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

/// `source` is the last parameter: constants beyond 32 KB cannot be addressed directly, which would cost registers.
template <class Body, class Source>
__global__ void __launch_bounds__(kListThreads, Body::kBlocks)
    over_tiles(const __grid_constant__ Body body, const Ending ending, const __grid_constant__ Source source) {
  lorry::cuda::begin_programmatic();
  over_tile(body, ending, source);
}

#ifndef __CUDACC_RTC__

template <class Body>
Geometry geometry_of(const Body& body) {
  return {tile_elements(body), Body::kRunLength, large_arguments<Body>()};
}

/// The kernels of a body, one per source; null for 32 KB of arguments if the body has none.
template <int kArrayCount, class Body>
struct TileKernels {
  static constexpr int kArrays = kArrayCount;
  void (*arguments_4k)(Body, Ending, Arguments4K<kArrays>);
  void (*arguments_32k)(Body, Ending, Arguments32K<kArrays>);
  void (*table)(Body, Ending, Table<kArrays>);
};

/// The same, compiled at run time: only those that the list's strategy needs.
template <int kArrayCount, class Body>
struct CompiledTileKernels {
  static constexpr int kArrays = kArrayCount;
  template <class Source>
  using Kernel = lorry::cuda::CompiledKernel<Body, Ending, Source>;
  Kernel<Arguments4K<kArrays>> arguments_4k;
  Kernel<Arguments32K<kArrays>> arguments_32k;
  Kernel<Table<kArrays>> table;
};

/// Runs kernels over every tile of the list: TileKernels, or CompiledTileKernels. finishes: whether they take tickets.
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
    // A list without elements needs a launch only if the body has `finish`.
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
