// Reading at computed positions. A thread copies four words, with all loads in flight together. If source and result
// are contiguous (rows of a look-up), words have 16 bytes. Bytes moved: the elements read and written, and an index per
// word, which the threads of a row find in the cache.

#include <algorithm>

#include "lorry/device/cuda/launch.h"
#include "lorry/kernels/cuda/indexing/index_bounds.h"
#include "lorry/kernels/cuda/indexing/indexing.h"

namespace lorry::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;
constexpr int64_t kTile = kThreads * kEach;

unsigned tiles(int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); }

/// Operands: out, source, index.
template <class Word, class Index>
__global__ void __launch_bounds__(kThreads, kBlocks<Index>)
    take_words(Word* out, const Word* source, const int64_t* index, Index n, int64_t step,
               StridedIndexer<3, Index> offsets, IndexBounds positions) {
  lorry::cuda::begin_programmatic();
  const Index first = static_cast<Index>(blockIdx.x) * static_cast<Index>(kTile) + threadIdx.x;
  Index at[kEach][3];
  int64_t position[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const Index i = first + u * kThreads;
    position[u] = -1;
    if (i >= n) continue;
    offsets(i, at[u]);
    position[u] = index[at[u][2]];
  }
  Word words[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    words[u] = Word{};
    if (first + u * kThreads >= n) continue;
    position[u] = positions(position[u]);
    if (position[u] >= 0) words[u] = source[at[u][1] + position[u] * step];
  }
#pragma unroll
  for (int u = 0; u < kEach; ++u)
    if (first + u * kThreads < n) out[at[u][0]] = words[u];
}

/// The maximum number of terms: the operands of an Iteration besides the result.
constexpr int kTerms = kMaxOperands - 1;

struct Term {
  const int64_t* index;
  int64_t step;
  IndexBounds positions;

  void addresses(auto& visit) const { visit(index); }
};
struct Terms {
  Term at[kTerms];
  void addresses(auto& visit) const { visit(at); }
};

/// Operands: out, and the index of each term. further: adds to the existing result.
template <class Index>
__global__ void __launch_bounds__(kThreads) flatten_terms(int64_t* out, Index n, Terms terms, int count, bool further,
                                                          StridedIndexer<kMaxOperands, Index> offsets) {
  lorry::cuda::begin_programmatic();
  const Index first = static_cast<Index>(blockIdx.x) * static_cast<Index>(kTile) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const Index i = first + u * kThreads;
    if (i >= n) return;
    Index at[kMaxOperands];
    offsets(i, at);
    int64_t sum = further ? out[at[0]] : 0;
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
      if (k >= count) break;
      const int64_t position = terms.at[k].positions(terms.at[k].index[at[k + 1]]);
      sum = sum < 0 || position < 0 ? -1 : sum + position * terms.at[k].step;
    }
    out[at[0]] = sum;
  }
}

}  // namespace

void take(const TakeArgs& args, Stream stream) {
  if (args.out.numel() == 0) return;
  const Layout layouts[] = {args.out.layout, args.source.layout, args.index.layout};
  Iteration it = collapse(layouts, 3);
  int64_t step = args.step;
  const int64_t bytes = widen(it, size_of(args.out.dtype), args.out.data, args.source.data, step);
  const int64_t n = it.numel();
  visit_word(bytes, [&]<class Word>(Type<Word>) {
    visit_index(fits_narrow(it), [&]<class Index>(Type<Index>) {
      lorry::cuda::launch(stream, {tiles(n), kThreads}, take_words<Word, Index>, args.out.as<Word>(),
                          args.source.as<const Word>(), args.index.as<const int64_t>(), static_cast<Index>(n), step,
                          StridedIndexer<3, Index>(it), IndexBounds(args, stream));
    });
  });
}

void flatten(const Array& out, const IndexTerm* terms, int count, Stream stream) {
  const int64_t n = out.numel();
  if (n == 0) return;
  for (int done = 0; done < count; done += kTerms) {
    const int some = std::min(count - done, kTerms);
    Layout layouts[kMaxOperands];
    layouts[0] = out.layout;
    const Term none{nullptr, 0, IndexBounds(0, Negative::wraps, stream)};
    Terms table{{none, none, none, none, none}};
    for (int k = 0; k < kTerms; ++k) {
      layouts[k + 1] = k < some ? terms[done + k].index.layout : out.layout;
      if (k < some)
        table.at[k] = {terms[done + k].index.as<const int64_t>(), terms[done + k].step,
                       IndexBounds(terms[done + k].size, Negative::wraps, stream)};
    }
    const Iteration it = collapse(layouts, kMaxOperands);
    visit_index(fits_narrow(it), [&]<class Index>(Type<Index>) {
      lorry::cuda::launch(stream, {tiles(n), kThreads}, flatten_terms<Index>, out.as<int64_t>(), static_cast<Index>(n),
                          table, some, done > 0, StridedIndexer<kMaxOperands, Index>(it));
    });
  }
}

}  // namespace lorry::kernels::cuda
