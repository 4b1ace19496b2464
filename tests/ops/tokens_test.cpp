#include "lorry/ops/tokens.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "lorry/autograd/grad_mode.h"
#include "lorry/device/device.h"
#include "lorry/formula/tokens.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"
#include "tests/support/on_cuda.h"

namespace lorry::test {
namespace {

struct Settings {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
};

/// The same settings for every row.
std::vector<int64_t> draw(const Tensor& logits, const Settings& s, const std::vector<double>& uniform) {
  const Dims n = {logits.size(0)};
  return sample_tokens(logits, full(n, s.temperature, {kF32}), full(n, s.top_k, {kI32}), full(n, s.top_p, {kF32}),
                       tensor_of(n, kF64, uniform))
      .to_vector<int64_t>();
}
int64_t draw_one(const std::vector<double>& logits, const Settings& s, double uniform, DType dtype = kF32) {
  return draw(tensor_of({1, static_cast<int64_t>(logits.size())}, dtype, logits), s, {uniform})[0];
}

/// The definition in double, with probabilities instead of integer weights: the token, and how close the decision was
/// to another one.
struct Drawn {
  int64_t token;
  double doubt;
};
Drawn by_definition(const std::vector<double>& logits, const Settings& s, double uniform) {
  std::vector<int64_t> order;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -kInf) order.push_back(static_cast<int64_t>(i));
  const auto logit = [&](int64_t i) { return logits[static_cast<size_t>(i)]; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (!(s.temperature > 0)) return {order[0], 1};
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  std::vector<double> weights;
  double total = 0;
  for (const int64_t i : order) {
    const double w = logit(i) == logit(order[0]) ? 1 : std::exp((logit(i) - logit(order[0])) / s.temperature);
    weights.push_back(w);
    total += w;
  }
  double selected = 0, doubt = kInf;
  size_t count = 0;
  do {
    selected += weights[count++];
    if (s.top_p < 1) doubt = std::min(doubt, std::fabs(selected / total - static_cast<float>(s.top_p)));
  } while (count < weights.size() && (s.top_p >= 1 || selected < static_cast<float>(s.top_p) * total));
  std::map<int64_t, double> left;  // by index
  for (size_t i = 0; i < count; ++i) left[order[i]] = weights[i];
  double sum = 0;
  for (const auto& [token, weight] : left) {
    sum += weight;
    doubt = std::min(doubt, std::fabs(sum / selected - uniform));
    if (sum > uniform * selected) return {token, doubt};
  }
  return {left.rbegin()->first, doubt};
}

const std::vector<double> kLogits = {std::log(0.5), std::log(0.125), std::log(0.25), std::log(0.125)};

/// How often each token is drawn when the uniform runs evenly over [0, 1).
std::map<int64_t, double> shares(const Settings& settings) {
  constexpr int kDraws = 2000;
  std::vector<double> uniform;
  for (int i = 0; i < kDraws; ++i) uniform.push_back((i + 0.5) / kDraws);
  const Tensor logits = tensor_of({1, 4}, kF32, kLogits).expand({kDraws, 4});
  std::map<int64_t, double> counts;
  for (const int64_t token : draw(logits, settings, uniform)) counts[token] += 1.0 / kDraws;
  return counts;
}

TEST(SampleTokens, follows_the_probabilities) {
  const auto got = shares({});
  EXPECT_NEAR(got.at(0), 0.5, 2e-3);
  EXPECT_NEAR(got.at(1), 0.125, 2e-3);
  EXPECT_NEAR(got.at(2), 0.25, 2e-3);
  EXPECT_NEAR(got.at(3), 0.125, 2e-3);
  const auto sharp = shares({.temperature = 0.5});
  EXPECT_NEAR(sharp.at(0), 0.25 / (0.25 + 0.0625 + 2 * 0.015625), 2e-3);
  EXPECT_NEAR(shares({.temperature = 100}).at(1), 0.25, 0.01);
  EXPECT_NEAR(shares({.temperature = kInf}).at(1), 0.25, 1e-9);
}

TEST(SampleTokens, top_k_and_top_p_keep_the_likeliest) {
  const auto two = shares({.top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(0), 2.0 / 3, 2e-3);
  EXPECT_EQ(shares({.top_k = 1}).size(), 1u);
  EXPECT_EQ(shares({.top_k = 3}).count(3), 0u) << "of equals the first";
  EXPECT_EQ(shares({.top_k = 100}).size(), 4u);
  EXPECT_EQ(shares({.top_k = -1}).size(), 4u);
  for (const auto& [top_p, kept] : {std::pair{-1.0, 1}, {0.0, 1}, {0.4, 1}, {0.6, 2}, {0.8, 3}, {1.0, 4}, {kNaN, 4}})
    EXPECT_EQ(shares({.top_p = top_p}).size(), static_cast<size_t>(kept)) << top_p;
  EXPECT_EQ(shares({.top_k = 2, .top_p = 0.6}).size(), 1u) << "the fraction is of the top k";
}

TEST(SampleTokens, without_a_temperature_is_the_likeliest_and_the_first_of_equals) {
  for (const double temperature : {0.0, -0.0, -1.0, kNaN}) {
    EXPECT_EQ(draw_one({1, 3, 3}, {.temperature = temperature}, 0.99), 1) << temperature;
    EXPECT_EQ(draw_one({-kInf, kNaN, -5, -kInf}, {.temperature = temperature}, 0.99), 2) << temperature;
  }
  EXPECT_EQ(draw_one({-0.0, 0.0}, {.temperature = 0}, 0.5), 0) << "zeros are equal";
}

TEST(SampleTokens, never_draws_the_impossible_and_draws_the_certain) {
  for (const double u : {0.0, 0.5, 0.999999}) {
    EXPECT_EQ(draw_one({-kInf, 1, kNaN, -kInf}, {}, u), 1);
    EXPECT_EQ(draw_one({1, kInf, 2}, {}, u), 1);
    EXPECT_EQ(draw_one({1, kInf, 2, kInf}, {}, u), u < 0.5 ? 1 : 3);
    EXPECT_EQ(draw_one({3e38, -3e38}, {}, u), 0);
    EXPECT_EQ(draw_one({1, 2}, {.temperature = 1e-44}, u), 1);
    EXPECT_EQ(draw_one({5}, {.top_k = 3, .top_p = 0.1}, u), 0);
  }
}

TEST(SampleTokens, takes_uniforms_that_are_none_as_the_nearest) {
  EXPECT_EQ(draw_one(kLogits, {}, -1), 0);
  EXPECT_EQ(draw_one(kLogits, {}, kNaN), 0);
  EXPECT_EQ(draw_one(kLogits, {}, 1), 3);
  EXPECT_EQ(draw_one(kLogits, {}, kInf), 3);
}

/// Rows of logits of very different kinds, by the same number.
std::vector<double> make_logits(int kind, int64_t vocab, DType dtype) {
  std::mt19937_64 random(static_cast<uint64_t>(kind * 1000 + vocab));
  std::normal_distribution<double> normal;
  std::vector<double> x(static_cast<size_t>(vocab));
  for (size_t i = 0; i < x.size(); ++i) {
    const double z = normal(random);
    x[i] = kind == 0   ? 3 * z
           : kind == 1 ? 0.25                                  // all equal
           : kind == 2 ? std::floor(2 * z)                     // few values
           : kind == 3 ? (i == x.size() / 2 ? 100 : 1e-3 * z)  // one far above the others
           : kind == 4 ? (z > 1     ? -kInf
                          : z > 0.9 ? kNaN
                                    : z)
                       : 1e-3 * z - 50;  // close together
    if (dtype == kF32) x[i] = static_cast<float>(x[i]);
    if (dtype == kBF16) x[i] = BFloat16(static_cast<float>(x[i]));
    if (dtype == kF16) x[i] = Float16(static_cast<float>(x[i]));
  }
  return x;
}
constexpr int kKinds = 6;
const Settings kSettings[] = {{},
                              {.temperature = 0},
                              {.top_k = 40},
                              {.top_p = 0.9},
                              {.temperature = 0.7, .top_k = 50, .top_p = 0.95},
                              {.temperature = 20, .top_p = 0.5},
                              {.temperature = 1.3, .top_k = 1500}};
const double kUniforms[] = {0, 0.1234, 0.5, 0.77, 0.999999};

TEST(SampleTokens, agrees_with_the_definition_in_double) {
  for (const DType dtype : {kF32, kBF16, kF16})
    for (const int64_t vocab : {1, 2, 31, 513, 5000})
      for (int kind = 0; kind < kKinds; ++kind) {
        const std::vector<double> row = make_logits(kind, vocab, dtype);
        if (std::ranges::none_of(row, [](double x) { return x > -kInf; })) continue;
        std::vector<double> uniform(std::begin(kUniforms), std::end(kUniforms));
        const Tensor logits = tensor_of({1, vocab}, kF32, row).to(dtype).expand({std::ssize(uniform), vocab});
        for (const Settings& s : kSettings) {
          const std::vector<int64_t> got = draw(logits, s, uniform);
          for (size_t i = 0; i < uniform.size(); ++i) {
            const Drawn want = by_definition(row, s, uniform[i]);
            // A decision within the rounding of the weights may fall either way.
            if (want.doubt < 1e-6) continue;
            EXPECT_EQ(got[i], want.token)
                << dtype << " vocab " << vocab << " kind " << kind << " temperature " << s.temperature << " k "
                << s.top_k << " p " << s.top_p << " u " << uniform[i];
          }
        }
      }
}

/// Every row has a kind and settings of its own.
struct Batch {
  explicit Batch(int64_t vocab, DType dtype) {
    std::vector<double> all, t, k, p, u;
    for (int kind = 0; kind < kKinds; ++kind)
      for (const Settings& s : kSettings) {
        const std::vector<double> row = make_logits(kind, vocab, dtype);
        all.insert(all.end(), row.begin(), row.end());
        t.push_back(s.temperature), k.push_back(static_cast<double>(s.top_k)), p.push_back(s.top_p);
        u.push_back(std::fmod(0.123 + 0.377 * static_cast<double>(u.size()), 1.0));
      }
    const Dims n = {std::ssize(t)};
    const auto on_cpu = [&](const std::vector<double>& x, const Dims& sizes, DType as) {
      const Tensor f64 = empty(sizes, {kF64, kCPU});
      std::ranges::copy(x, f64.data<double>());
      return f64.to(as);
    };
    logits = on_cpu(all, {n[0], vocab}, dtype), temperature = on_cpu(t, n, kF32), top_k = on_cpu(k, n, kI32);
    top_p = on_cpu(p, n, kF32), uniform = on_cpu(u, n, kF64);
  }
  std::vector<int64_t> draw_on(Device device) const {
    return sample_tokens(logits.to(device), temperature.to(device), top_k.to(device), top_p.to(device),
                         uniform.to(device))
        .to_vector<int64_t>();
  }
  Tensor logits, temperature, top_k, top_p, uniform;
};

TEST(SampleTokens, draws_the_same_tokens_on_the_cpu_and_on_a_gpu) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const DType dtype : {kF32, kBF16, kF16})
    for (const int64_t vocab : {1, 3, 257, 5000, 50'257, 262'145}) {
      if (vocab == 262'145 && dtype != kF32) continue;
      const Batch batch(vocab, dtype);
      if (vocab < 3) continue;  // some kinds may have no token
      EXPECT_EQ(batch.draw_on(kGPU), batch.draw_on(kCPU)) << dtype << " vocab " << vocab;
    }
}

TEST(SampleTokens, draws_a_row_alone_as_among_others) {
  const Batch batch(5000, kF32);
  const std::vector<int64_t> all = batch.draw_on(default_device());
  for (const int64_t row : {0, 9, 17, 23, 41}) {
    const auto only = [&](const Tensor& x) { return x.narrow(0, row, 1).to(default_device()); };
    EXPECT_EQ(sample_tokens(only(batch.logits), only(batch.temperature), only(batch.top_k), only(batch.top_p),
                            only(batch.uniform))
                  .item<int64_t>(),
              all[static_cast<size_t>(row)]);
  }
}

TEST(SampleTokens, takes_logits_of_any_strides_and_f64) {
  const Tensor logits = sample({6, 37}, kF32, 3);
  const std::vector<double> uniform = {0.1, 0.3, 0.5, 0.7, 0.9, 0.99};
  const std::vector<int64_t> want = draw(logits, {}, uniform);
  EXPECT_EQ(draw(logits.t().contiguous().t(), {}, uniform), want);
  EXPECT_EQ(draw(cat({logits, logits}, 1).narrow(1, 0, 37), {}, uniform), want);
  EXPECT_EQ(draw(logits.to(kF64), {}, uniform), want);
}

TEST(SampleTokens, throws_where_no_token_has_a_probability) {
  const auto impossible = [](const std::vector<double>& row) {
    expect_error<ValueError>(
        [&] {
          draw(tensor_of({2, 3}, kF32, {1, 2, 3, row[0], row[1], row[2]}), {}, {0.5, 0.5});
          device::synchronize(default_device());
        },
        default_device().is_cpu() ? "all NaN or -infinity in row 1" : "a probability");
  };
  impossible({-kInf, -kInf, -kInf});
  impossible({kNaN, -kInf, kNaN});
}

TEST(SampleTokens, refuses_operands_that_do_not_fit) {
  const Tensor logits = ones({2, 3}), one = ones({2}), k = zeros({2}, {kI32}), u = zeros({2}, {kF64});
  expect_error<DTypeError>([&] { sample_tokens(logits.to(kI64), one, k, one, u); }, "logits are not floating");
  expect_error<ShapeError>([&] { sample_tokens(logits[0], one, k, one, u); }, "logits are no matrix");
  expect_error<ShapeError>([&] { sample_tokens(empty({2, 0}), one, k, one, u); }, "too few or too many tokens");
  expect_error<ShapeError>(
      [&] {
        sample_tokens(ones({1}).expand({2, (1 << 20) + 1}), one, k, one, u);
      },
      "too few or too many tokens");
  expect_error<DTypeError>([&] { sample_tokens(logits, one.to(kF64), k, one, u); }, "temperature has another dtype");
  expect_error<DTypeError>([&] { sample_tokens(logits, one, k.to(kI64), one, u); }, "top_k has another dtype");
  expect_error<DTypeError>([&] { sample_tokens(logits, one, k, one.to(kF16), u); }, "top_p has another dtype");
  expect_error<DTypeError>([&] { sample_tokens(logits, one, k, one, one); }, "uniform has another dtype");
  expect_error<ShapeError>([&] { sample_tokens(logits, one, k, ones({3}), u); }, "top_p does not fit");
  EXPECT_EQ(sample_tokens(empty({0, 3}), empty({0}), empty({0}, {kI32}), empty({0}), empty({0}, {kF64})).sizes(),
            (Dims{0}));
  const Tensor leaf = ones({2, 3}).requires_grad_();
  EXPECT_THROW(sample_tokens(leaf, one, k, one, u), GradError);
  const NoGrad scope;
  EXPECT_NO_THROW(sample_tokens(leaf, one, k, one, u));
}

TEST(SampleTokens, weights_are_exponentials_rounded) {
  for (double y = 0; y > -24; y -= 0.0137) {
    const double want = std::exp(y) * 0x1p32;
    EXPECT_NEAR(formula::token_weight(y), std::min(want, 0x1p32 - 1), 0.5 + want * 0x1p-36) << y;
  }
  EXPECT_EQ(formula::token_weight(kNaN), 0u);
  EXPECT_EQ(formula::token_weight(-kInf), 0u);
}

// ---- repetition_penalty ---------------------------------------------------------------------------------------------

TEST(RepetitionPenalty, divides_what_is_above_0_and_multiplies_the_rest) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t vocab : {1, 5, 1500}) {
      const Tensor logits = sample({4, vocab}, dtype, 1), seen = sample({3, vocab}, kBool, 2);
      const std::vector<double> penalty = {1.5, 2, 0.5, 1.25};
      const std::vector<int> slots = {2, -1, 0, 2};
      std::vector<double> want = elements(logits);
      const std::vector<double> was_seen = elements(seen);
      for (size_t i = 0; i < want.size(); ++i) {
        const size_t row = i / static_cast<size_t>(vocab), token = i % static_cast<size_t>(vocab);
        if (slots[row] < 0 || was_seen[static_cast<size_t>(slots[row] * vocab) + token] == 0) continue;
        want[i] = want[i] > 0 ? want[i] / penalty[row] : want[i] * penalty[row];
      }
      const Tensor by = tensor_of({4}, kF32, penalty), rows = tensor_of({4}, kI32, {2, -1, 0, 2});
      EXPECT_TRUE(near(repetition_penalty(logits, seen, rows, by), want, tolerance(dtype))) << dtype;
      EXPECT_TRUE(same_bits(repetition_penalty(logits.t().contiguous().t(), seen.t().contiguous().t(), rows, by),
                            repetition_penalty(logits, seen, rows, by)));
      EXPECT_TRUE(same_bits(repetition_penalty(logits, seen, rows, ones({4})), logits));
    }
}

TEST(RepetitionPenalty, refuses_what_does_not_fit) {
  const Tensor logits = ones({2, 3}), seen = ones({4, 3}, {kBool}), slots = zeros({2}, {kI32}), by = ones({2});
  const auto wait = [](const Tensor&) { device::synchronize(default_device()); };
  expect_error<IndexError>([&] { wait(repetition_penalty(logits, seen, full({2}, 4, {kI32}), by)); },
                           default_device().is_cpu() ? "slot 4 of row 0" : "got 4; expected 0 to 3");
  expect_error<DTypeError>([&] { repetition_penalty(logits, seen.to(kU8), slots, by); }, "seen is not bool");
  expect_error<ShapeError>([&] { repetition_penalty(logits, ones({4, 2}, {kBool}), slots, by); }, "seen does not fit");
  expect_error<DTypeError>([&] { repetition_penalty(logits, seen, slots.to(kI64), by); }, "slots has another dtype");
  expect_error<ShapeError>([&] { repetition_penalty(logits, seen, slots, ones({3})); }, "penalty does not fit");
  EXPECT_THROW(repetition_penalty(ones({2, 3}).requires_grad_(), seen, slots, by), GradError);
  EXPECT_EQ(repetition_penalty(empty({0, 3}), seen, empty({0}, {kI32}), empty({0})).sizes(), (Dims{0, 3}));
}

}  // namespace
// ---- advance_sequences ----------------------------------------------------------------------------------------------

constexpr int64_t kVocab = 6, kWindow = 5, kStops = 3, kLongest = 4;

/// A sequence as plain numbers.
struct PlainSequence {
  int64_t position, slot, limit, seed, stream;
  std::vector<int64_t> drawn = {};
  std::vector<std::vector<int64_t>> stops = {};
  std::set<int64_t> seen = {};
  bool ended = false;

  void take(int64_t token) {
    if (ended) return;
    drawn.push_back(token);
    seen.insert(token);
    ++position;
    ended = static_cast<int64_t>(drawn.size()) >= limit;
    for (const auto& run : stops)
      ended |= !run.empty() && drawn.size() >= run.size() && std::equal(run.rbegin(), run.rend(), drawn.rbegin());
  }
  double uniform() const {
    const formula::RandomKey key{static_cast<uint64_t>(seed), drawn.size()};
    const formula::Words4 words = formula::random_block(key, static_cast<uint64_t>(stream));
    return formula::unit_f64(words.word[0], words.word[1]);
  }
};

/// The rows of new sequences. strided: in memory with gaps.
SequenceRows rows_of(const std::vector<PlainSequence>& all, bool strided) {
  const auto n = static_cast<int64_t>(all.size());
  const auto make = [&](Dims sizes, DType dtype, double fill) {
    if (!strided) return full(sizes, fill, {dtype});
    sizes.push_back(2);
    return full(sizes, fill, {dtype}).select(-1, 1);
  };
  SequenceRows rows{make({n}, kI64, 0),          make({n}, kI32, 0),
                    make({n}, kI32, -1),         make({n}, kI64, 0),
                    make({n}, kF64, 0),          make({n, kWindow}, kI64, 0),
                    make({n, kVocab}, kBool, 0), make({n}, kI64, 0),
                    make({n, 2}, kI64, 0),       make({n, kStops, kLongest}, kI64, -1)};
  for (int64_t i = 0; i < n; ++i) {
    const PlainSequence& s = all[static_cast<size_t>(i)];
    rows.positions[i].fill_(s.position);
    rows.slots[i].fill_(s.slot);
    rows.limits[i].fill_(s.limit);
    rows.keys[i].copy_(tensor({s.seed, s.stream}));
    for (size_t k = 0; k < s.stops.size(); ++k)
      for (size_t j = 0; j < s.stops[k].size(); ++j)
        rows.stops.select(0, i)
            .select(0, static_cast<int64_t>(k))
            .select(0, kLongest - static_cast<int64_t>(s.stops[k].size() - j))
            .fill_(s.stops[k][j]);
  }
  return rows;
}

void expect_rows(const SequenceRows& rows, const std::vector<PlainSequence>& all) {
  for (int64_t i = 0; i < rows.tokens.size(0); ++i) {
    const PlainSequence& s = all[static_cast<size_t>(i)];
    const auto count = static_cast<int64_t>(s.drawn.size());
    EXPECT_EQ(rows.slots[i].item<int>(), s.ended ? -1 : s.slot);
    EXPECT_EQ(rows.positions[i].item<int>(), s.ended ? 0 : s.position);
    EXPECT_EQ(rows.drawn[i].item<int64_t>(), count);
    if (count == 0) continue;
    EXPECT_EQ(rows.tokens[i].item<int64_t>(), s.drawn.back());
    EXPECT_EQ(rows.uniform[i].item<double>(), s.uniform());
    for (int64_t k = std::max<int64_t>(0, count - kWindow); k < count; ++k)
      EXPECT_EQ(rows.outputs[i][k % kWindow].item<int64_t>(), s.drawn[static_cast<size_t>(k)]);
    for (int64_t token = 0; token < kVocab; ++token)
      EXPECT_EQ(rows.seen[s.slot][token].item<bool>(), s.seen.contains(token));
  }
}

TEST(AdvanceSequences, counts_marks_and_ends_as_plain_sequences_do) {
  for (const bool strided : {false, true}) {
    std::vector<PlainSequence> all = {
        {.position = 3, .slot = 2, .limit = 9, .seed = 1, .stream = 0, .stops = {{1, 2}, {}, {4, 4, 4, 4}}},
        {.position = 0, .slot = 0, .limit = 100, .seed = -5, .stream = 1, .stops = {{3}}},
        {.position = 7, .slot = 1, .limit = 1, .seed = 2, .stream = int64_t{1} << 40},
        {.position = 0, .slot = 3, .limit = 100, .seed = 2, .stream = 3, .stops = {{0, 0, 0}, {5, 0}, {2, 1, 2, 1}}},
    };
    SequenceRows rows = rows_of(all, strided);
    Generator generator(strided ? 3 : 4);
    for (int step = 0; step < 30; ++step) {
      const Tensor next = randint(0, kVocab, {4}, {.dtype = kI64}, &generator);
      advance_sequences(rows, strided ? next.expand({2, 4}).t().contiguous().select(1, 0) : next);
      for (size_t i = 0; i < all.size(); ++i) all[i].take(next[static_cast<int64_t>(i)].item<int64_t>());
      expect_rows(rows, all);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(all[0].ended && all[2].ended);
  }
}

TEST(AdvanceSequences, needs_no_stops_and_no_seen) {
  const SequenceRows rows = rows_of({{.position = 0, .slot = 0, .limit = 3, .seed = 1, .stream = 0}}, false);
  for (const Dims& none : {Dims{1, 0, 0}, Dims{1, 0, 3}, Dims{1, 3, 0}}) {
    SequenceRows bare = rows;
    bare.slots = zeros({1}, {kI32});
    bare.stops = zeros(none, {kI64});
    bare.seen = zeros({0, 0}, {kBool});
    bare.drawn = zeros({1}, {kI64});
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(bare.slots.item<int>(), 0);
      advance_sequences(bare, full({1}, 1'000'000, {kI64}));
    }
    EXPECT_EQ(bare.slots.item<int>(), -1);
  }
}

TEST(AdvanceSequences, refuses_what_does_not_fit) {
  const SequenceRows rows = rows_of({{.position = 0, .slot = 0, .limit = 3, .seed = 1, .stream = 0}}, false);
  const Tensor next = zeros({1}, {kI64});
  const auto refused = [&]<class Error>(Type<Error>, Tensor SequenceRows::*part, const Tensor& x, const char* says) {
    SequenceRows bad = rows;
    bad.*part = x;
    expect_error<Error>([&] { advance_sequences(bad, next); }, says);
  };
  refused(Type<DTypeError>{}, &SequenceRows::tokens, zeros({1}), "tokens has another dtype");
  refused(Type<ShapeError>{}, &SequenceRows::positions, zeros({2}, {kI32}), "positions does not fit");
  refused(Type<ShapeError>{}, &SequenceRows::outputs, zeros({1, 3}, {kI64}), "outputs hold too few tokens");
  refused(Type<ShapeError>{}, &SequenceRows::keys, zeros({1, 3}, {kI64}), "keys do not fit");
  refused(Type<ValueError>{}, &SequenceRows::drawn, Tensor(), "drawn");
  refused(Type<ShapeError>{}, &SequenceRows::seen, zeros({3}, {kBool}), "seen is no matrix");
  expect_error<DTypeError>([&] { advance_sequences(rows, zeros({1})); }, "next is not i64");
  const auto wait = [&](const SequenceRows& x, const Tensor& drawn) {
    advance_sequences(x, drawn);
    device::synchronize(default_device());
  };
  SequenceRows bad = rows;
  bad.slots = full({1}, 4, {kI32});
  EXPECT_THROW(wait(bad, next), IndexError);
  EXPECT_THROW(wait(rows, full({1}, kVocab, {kI64})), IndexError);
  EXPECT_THROW(wait(rows, full({1}, -1, {kI64})), IndexError);
  EXPECT_EQ(rows.drawn.item<int64_t>(), 0);
}

}  // namespace lorry::test
