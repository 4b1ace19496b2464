// The next token. A row's candidates, the tokens with a weight, are sorted where top_k or top_p bounds them.

#include "lorry/kernels/tokens.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lorry/base/error.h"
#include "lorry/device/cpu/team.h"
#include "lorry/formula/tokens.h"
#include "lorry/kernels/common/compute.h"
#include "lorry/kernels/common/sequences.h"
#include "lorry/kernels/cpu/common/load_store.h"
#include "lorry/kernels/cpu/table.h"

namespace lorry::kernels::cpu {
using lorry::cpu::parallel_for;
namespace {

struct Candidate {
  uint64_t order;
  uint32_t weight;
  bool operator<(const Candidate& other) const { return order < other.order; }
};

/// Draws the token of a row of f32 logits.
class Row {
 public:
  Row(const TokenSampling& args, int64_t row)
      : temperature_(args.temperature.as<const float>()[row]),
        top_k_(args.top_k.as<const int32_t>()[row]),
        top_p_(args.top_p.as<const float>()[row]),
        uniform_(args.uniform.as<const double>()[row]) {}

  /// -1 if no token has a probability. `candidates` and `sorted` are memory to use.
  int64_t draw(const std::vector<float>& logits, std::vector<Candidate>& candidates,
               std::vector<Candidate>& sorted) const {
    float largest = -INFINITY;
    for (const float x : logits) largest = x > largest ? x : largest;
    if (largest == -INFINITY) return -1;
    weigh(logits, largest, candidates);
    const auto all = static_cast<int64_t>(candidates.size()), limit = formula::token_limit(temperature_, top_k_, all);
    if (limit == 1) return token(*std::min_element(candidates.begin(), candidates.end()));
    uint64_t last = UINT64_MAX;
    if (limit < all || top_p_ < 1) {
      sorted = candidates;
      last = last_of(static_cast<size_t>(limit), sorted);
    }
    uint64_t selected = 0;
    for (const Candidate& c : candidates) selected += c.order <= last ? c.weight : 0;
    const uint64_t point = formula::token_point(uniform_, selected);
    auto c = candidates.begin();
    for (uint64_t sum = 0;; ++c)
      if (c->order <= last && (sum += c->weight) > point) return token(*c);
  }

 private:
  static int64_t token(const Candidate& c) { return static_cast<uint32_t>(c.order); }

  /// The order of the last token that the settings leave.
  uint64_t last_of(size_t limit, std::vector<Candidate>& candidates) const {
    if (limit < candidates.size()) {
      std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(limit), candidates.end());
      candidates.resize(limit);
    }
    std::sort(candidates.begin(), candidates.end());
    uint64_t total = 0;
    for (const Candidate& c : candidates) total += c.weight;
    const uint64_t mass = formula::token_mass(top_p_, total);
    auto last = candidates.begin();
    for (uint64_t sum = last->weight; sum < mass; sum += last->weight) ++last;
    return last->order;
  }

  void weigh(const std::vector<float>& logits, float largest, std::vector<Candidate>& candidates) const {
    const formula::TokenWeights weights(largest, temperature_);
    candidates.clear();
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!(logits[i] > -INFINITY)) continue;  // NaN compares false
      const uint32_t weight = weights(logits[i]);
      if (weight > 0) candidates.push_back({formula::token_order(logits[i], static_cast<uint32_t>(i)), weight});
    }
  }

  float temperature_;
  int32_t top_k_;
  float top_p_;
  double uniform_;
};

void sample(const TokenSampling& args, Stream) {
  const int64_t vocab = args.logits.size(1), bytes = size_of(args.logits.dtype) * args.logits.stride(0);
  parallel_for(args.out.numel(), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> logits(static_cast<size_t>(vocab));
    std::vector<Candidate> candidates, sorted;
    for (int64_t row = begin; row < end; ++row) {
      load(logits.data(), args.logits.as<const char>() + row * bytes, args.logits.dtype, 1, vocab);
      args.out.as<int64_t>()[row] = Row(args, row).draw(logits, candidates, sorted);
    }
  });
  for (int64_t row = 0; row < args.out.numel(); ++row)
    require<ValueError>(args.out.as<int64_t>()[row] >= 0,
                        "no token has a probability; got logits that are all NaN or -infinity in row {}", row);
}

/// Applies the penalty to one row.
template <class T>
void penalise_row(T* out, const T* logits, const bool* seen, float penalty, int64_t vocab) {
  using C = Accumulate<T>;
  std::copy(logits, logits + vocab, out);
  if (seen == nullptr) return;
  const C by = static_cast<C>(penalty);
  for (int64_t i = 0; i < vocab; ++i) {
    const C x = static_cast<C>(logits[i]);
    if (seen[i]) out[i] = static_cast<T>(x > 0 ? x / by : x * by);
  }
}

void penalise(const TokenPenalty& args, Stream) {
  const int64_t n = args.out.size(0), vocab = args.out.size(1), sequences = args.seen.size(0);
  const int32_t* const slots = args.slots.as<const int32_t>();
  for (int64_t row = 0; row < n; ++row)
    require<IndexError>(slots[row] < sequences, "slot {} of row {} does not exist; expected {}, or a negative one",
                        slots[row], row, IndexRange{0, sequences});
  visit_floating(args.out.dtype, [&]<class T>(Type<T>) {
    parallel_for(n, std::max<int64_t>(1, (1 << 14) / (vocab + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const bool* const seen =
            slots[row] < 0 ? nullptr : args.seen.as<const bool>() + slots[row] * args.seen.stride(0);
        penalise_row(args.out.as<T>() + row * vocab, args.logits.as<const T>() + row * args.logits.stride(0), seen,
                     args.penalty.as<const float>()[row], vocab);
      }
    });
  });
}

void advance(const SequenceAdvance& args, Stream) {
  const SequenceStep rows(args);
  const int64_t n = args.next.numel();
  for (int64_t row = 0; row < n && rows.marks_seen(); ++row) {
    if (rows.is_padding(row)) continue;
    require<IndexError>(rows.slots[row] < rows.sequences,
                        "slot {} of row {} does not exist; expected {}, or a negative one", rows.slots[row], row,
                        IndexRange{0, rows.sequences});
    require<IndexError>(rows.next[row] >= 0 && rows.next[row] < rows.vocab,
                        "token {} of row {} does not exist; expected {}", rows.next[row], row,
                        IndexRange{0, rows.vocab});
  }
  for (int64_t row = 0; row < n; ++row)
    if (!rows.is_padding(row)) rows.advance(row);
}

}  // namespace

const TokenKernels& token_kernels() {
  static constexpr TokenKernels kKernels{.sample = sample, .penalise = penalise, .advance = advance};
  return kKernels;
}

}  // namespace lorry::kernels::cpu
