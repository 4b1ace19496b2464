// Reading at computed positions: one loop, with indices that are known to be valid, or that it checks.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "lorry/device/cpu/team.h"
#include "lorry/kernels/cpu/common/walk.h"
#include "lorry/kernels/cpu/indexing/indexing.h"

namespace lorry::kernels::cpu {
namespace {

constexpr int64_t kGrain = int64_t{1} << 14;

/// A run of a take along the innermost dimension. The offsets' state is passed by value, so that it stays in registers.
struct TakeRun {
  int64_t to_stride, from_stride, index_stride;

  template <class Word, class Offset>
  Offset operator()(Word* to, const Word* from, const int64_t* index, int64_t count, Offset offset) const {
    if (index_stride == 0) {
      const Word* const row = from + offset(*index);
      if (to_stride == 1 && from_stride == 1) {
        std::memcpy(to, row, static_cast<size_t>(count) * sizeof(Word));
      } else {
        for (int64_t i = 0; i < count; ++i) to[i * to_stride] = row[i * from_stride];
      }
    } else if (to_stride == 1 && from_stride == 0 && index_stride == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = from[offset(index[i])];
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride + offset(index[i * index_stride])];
    }
    return offset;
  }
};

/// Whether all indices were valid.
template <class Offset>
bool take_all(const TakeArgs& args, Offset offset) {
  const Layout layouts[] = {args.out.layout, args.source.layout, args.index.layout};
  const Iteration it = collapse(layouts, 3);
  const int64_t* const index = args.index.as<int64_t>();
  const TakeRun run{it.strides[0][0], it.strides[1][0], it.strides[2][0]};
  std::atomic<bool> valid{true};
  visit_size(size_of(args.out.dtype), [&]<class Word>(Type<Word>) {
    lorry::cpu::parallel_for(it.numel(), kGrain, [&](int64_t begin, int64_t end) {
      Offset own = offset;
      walk(it, begin, end, [&](const int64_t* at, int64_t count) {
        own = run(args.out.as<Word>() + at[0], args.source.as<Word>() + at[1], index + at[2], count, own);
      });
      if (!own.all_valid()) valid.store(false, std::memory_order_relaxed);
    });
  });
  return valid;
}

}  // namespace

void take(const TakeArgs& args, Stream) {
  if (args.out.numel() > 0) take_all(args, Trusted{args.size, args.step});
}

bool take_checked(const TakeArgs& args, int64_t low, Stream) {
  if (args.out.numel() == 0 || args.size == 0) return false;
  if (low < 0) return take_all(args, Checked<true>{args.size, args.step});
  return take_all(args, Checked<false>{args.size, args.step});
}

}  // namespace lorry::kernels::cpu
