#include "lorry/kernels/cpu/optim/compressed.h"

#include <algorithm>
#include <cmath>

#include "lorry/formula/rounding.h"
#include "lorry/kernels/common/convert.h"
#include "lorry/kernels/cpu/common/simd.h"
#include "lorry/kernels/cpu/list/list.h"
#include "lorry/kernels/cpu/optim/compressed_runs.h"
#include "lorry/kernels/cpu/random/random_tile.h"

namespace lorry::kernels::cpu {

LORRY_SIMD_DECLARE(void fill_compressed_runs(CompressedRuns& runs))

const CompressedRuns& compressed_runs() {
  static const CompressedRuns table = [] {
    CompressedRuns runs;
    LORRY_SIMD_CHOOSE(fill_compressed_runs)(runs);
    return runs;
  }();
  return table;
}

namespace {

uint8_t* codes(const CompressedArray& x, int64_t begin) { return static_cast<uint8_t*>(x.data) + begin; }
float& scale(const CompressedArray& x, int64_t begin) {
  return reinterpret_cast<float*>(static_cast<char*>(x.data) +
                                  formula::quant_scales_at(x.count))[begin / kCompressedBlock];
}
uint16_t* halves(const CompressedArray& x, int64_t begin) { return static_cast<uint16_t*>(x.data) + begin; }

}  // namespace

void CompressedArray::load(int64_t begin, int64_t n, float* to) const {
  if (type == StateType::q8)
    compressed_runs().decode[is_signed](codes(*this, begin), scale(*this, begin), to, n);
  else
    converter(kBF16, kF32)(halves(*this, begin), 1, to, 1, n);
}

void CompressedArray::store(const float* from, int64_t begin, int64_t n, const formula::RandomKey& key) const {
  if (type == StateType::q8) {
    scale(*this, begin) = compressed_runs().encode[is_signed](from, codes(*this, begin), n);
    return;
  }
  constexpr int64_t kWords = kCompressedBlock / formula::kRoundedAtOnce;  // blocks of them
  static_assert(kWords % kWordsUnit == 0);
  alignas(64) uint32_t words[4 * kWords];
  random_words(key, static_cast<uint64_t>((before + begin) / formula::kRoundedAtOnce), words, kWords);
  compressed_runs().round(from, words, halves(*this, begin), n);
}

int64_t before(const List& list, const ListEntry& entry, int64_t first_element) {
  if (first_element == 0) return 0;
  const auto first = std::ranges::find_if(list.entries(), [](const ListEntry& x) { return x.count > 0; });
  return &*first == &entry ? first_element : 0;
}

namespace {

/// Calls f(array, values, entry, begin, n) for all blocks of a list of {f32, compressed}.
template <class F>
void for_each_block(const CompressedCall& call, const F& f) {
  for_each_run(
      call.list,
      [&](const ListEntry& x, int64_t begin, int64_t count) {
        const CompressedArray array{x.at[1], x.count, call.type, call.is_signed,
                                    before(call.list, x, call.first_element)};
        for (int64_t i = begin; i < begin + count; i += kCompressedBlock)
          f(array, static_cast<float*>(x.at[0]) + i, x, i, std::min(kCompressedBlock, begin + count - i));
      },
      kCompressedBlock);
}

}  // namespace

void decompress(const CompressedCall& call, const Stream&) {
  for_each_block(call, [](const CompressedArray& array, float* values, const ListEntry&, int64_t begin, int64_t n) {
    array.load(begin, n, values);
  });
}

void compress(const CompressedCall& call, const Stream&) {
  if (call.grad_factor && std::isnan(*call.grad_factor)) return;
  const double steps = call.steps ? *call.steps : 0;
  for_each_block(call,
                 [&](const CompressedArray& array, const float* values, const ListEntry& x, int64_t begin, int64_t n) {
                   array.store(values, begin, n, formula::rounding_key(call.seed, x.number, call.array, steps));
                 });
}

}  // namespace lorry::kernels::cpu
