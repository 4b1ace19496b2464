#include "lorry/ops/paged_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "lorry/autograd/grad_mode.h"
#include "lorry/device/device.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"
#include "tests/support/message.h"

namespace lorry::test {
namespace {

Tensor i32(const std::vector<int64_t>& values, const Dims& sizes) {
  return tensor_of(sizes, kI32, std::vector<double>(values.begin(), values.end()));
}
Tensor i32(const std::vector<int64_t>& values) { return i32(values, {static_cast<int64_t>(values.size())}); }

struct Sizes {
  int64_t heads, kv_heads, d, block_size;
};

/// A cache of several sequences, whose blocks lie in a random order, and the packed rows of all their tokens.
struct Sequences {
  Sequences(const Sizes& sizes, DType dtype, const std::vector<int64_t>& lengths, uint64_t seed)
      : sizes(sizes), lengths(lengths) {
    const int64_t longest = std::ranges::max(lengths), count = static_cast<int64_t>(lengths.size());
    per_sequence = (longest + sizes.block_size - 1) / sizes.block_size + 1;
    std::vector<int64_t> blocks(static_cast<size_t>(count * per_sequence + 3));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::ranges::shuffle(blocks, std::mt19937_64(seed));
    table = i32({blocks.begin(), blocks.end() - 3}, {count, per_sequence});
    Generator generator(seed);
    const int64_t width = (sizes.heads + 2 * sizes.kv_heads) * sizes.d;
    for (const int64_t length : lengths) qkv.push_back(randn({length, width}, {dtype}, &generator));
    const Dims cache = {static_cast<int64_t>(blocks.size()), sizes.block_size, sizes.kv_heads, sizes.d};
    k_cache = full(cache, NAN, {dtype}), v_cache = full(cache, NAN, {dtype});  // what is not written is not read
  }

  Tensor part(const Tensor& rows, int64_t first, int64_t heads) const {
    return rows.narrow(1, first * sizes.d, heads * sizes.d).unflatten(1, {heads, sizes.d});
  }
  Tensor q(const Tensor& rows) const { return part(rows, 0, sizes.heads); }
  Tensor k(const Tensor& rows) const { return part(rows, sizes.heads, sizes.kv_heads); }
  Tensor v(const Tensor& rows) const { return part(rows, sizes.heads + sizes.kv_heads, sizes.kv_heads); }

  /// Stores and attends to rows: (slot, position) each; a slot of -1 is padding.
  Tensor run(const std::vector<std::pair<int64_t, int64_t>>& rows) const {
    std::vector<Tensor> tokens;
    std::vector<int64_t> slot, position;
    for (const auto& [s, p] : rows) {
      tokens.push_back(qkv[static_cast<size_t>(std::max<int64_t>(s, 0))].narrow(0, p, 1));
      slot.push_back(s), position.push_back(p);
    }
    const Tensor batch = cat(tokens), slots = i32(slot), positions = i32(position);
    paged_write(k_cache, v_cache, k(batch), v(batch), table, slots, positions);
    return paged_attention(q(batch), k_cache, v_cache, table, slots, positions);
  }

  Sizes sizes;
  std::vector<int64_t> lengths;
  int64_t per_sequence;
  std::vector<Tensor> qkv;
  Tensor table, k_cache, v_cache;
};

std::vector<std::pair<int64_t, int64_t>> rows_of(int64_t slot, int64_t first, int64_t last) {
  std::vector<std::pair<int64_t, int64_t>> rows;
  for (int64_t p = first; p < last; ++p) rows.emplace_back(slot, p);
  return rows;
}

/// Row `position` of one sequence by the definition, in double: [heads * d].
std::vector<double> by_definition(const Sequences& s, int64_t slot, int64_t position) {
  const Tensor& rows = s.qkv[static_cast<size_t>(slot)];
  const std::vector<double> x = elements(rows.to(kCPU));
  const auto width = static_cast<size_t>(rows.size(1)), d = static_cast<size_t>(s.sizes.d);
  const auto group = static_cast<size_t>(s.sizes.heads / s.sizes.kv_heads);
  std::vector<double> out;
  for (size_t h = 0; h < static_cast<size_t>(s.sizes.heads); ++h) {
    const size_t k = (static_cast<size_t>(s.sizes.heads) + h / group) * d,
                 v = k + static_cast<size_t>(s.sizes.kv_heads) * d;
    std::vector<double> weights;
    for (size_t j = 0; j <= static_cast<size_t>(position); ++j) {
      double product = 0;
      for (size_t e = 0; e < d; ++e)
        product += x[static_cast<size_t>(position) * width + h * d + e] * x[j * width + k + e];
      weights.push_back(product / std::sqrt(static_cast<double>(d)));
    }
    const double most = std::ranges::max(weights);
    double total = 0;
    for (double& w : weights) total += w = std::exp(w - most);
    for (size_t e = 0; e < d; ++e) {
      double sum = 0;
      for (size_t j = 0; j < weights.size(); ++j) sum += weights[j] / total * x[j * width + v + e];
      out.push_back(sum);
    }
  }
  return out;
}

/// Rounding of products, weights and their sums, and of the result.
double allowed(DType t) { return t == kF64 ? 1e-13 : t == kF32 ? 2e-6 : 4 * tolerance(t); }

const Sizes kSizes[] = {{1, 1, 1, 1},   {2, 1, 3, 4},   {4, 2, 8, 16},  {12, 12, 64, 16},
                        {3, 3, 40, 7},  {2, 2, 80, 32}, {2, 1, 96, 16}, {8, 2, 128, 16},
                        {1, 1, 256, 8}, {1, 1, 257, 5}, {1, 1, 512, 3}};

TEST(PagedAttention, agrees_with_the_definition_in_double) {
  for (const Sizes& sizes : kSizes)
    for (const DType dtype : kFloatingDTypes) {
      const Sequences s(sizes, dtype, {70, 1, 33}, 1);
      SCOPED_TRACE(fmt::format("{} heads of {}, {} of the cache", sizes.heads, sizes.d, sizes.kv_heads));
      std::vector<std::pair<int64_t, int64_t>> rows = rows_of(0, 0, 70);
      rows.emplace_back(-1, 0);
      for (const auto& row : rows_of(2, 0, 33)) rows.push_back(row);
      rows.emplace_back(1, 0);
      const Tensor out = s.run(rows);
      ASSERT_EQ(out.sizes(), (Dims{105, sizes.heads, sizes.d}));
      EXPECT_EQ(out.dtype(), dtype);
      EXPECT_TRUE(out.is_contiguous());
      const Tensor on_cpu = out.to(kCPU);
      for (const size_t i : {0, 1, 31, 32, 33, 63, 64, 69, 71, 100, 104})
        EXPECT_TRUE(near(on_cpu.select(0, static_cast<int64_t>(i)), by_definition(s, rows[i].first, rows[i].second),
                         allowed(dtype)))
            << dtype << " row " << i;
      EXPECT_TRUE(near(on_cpu.select(0, 70), std::vector<double>(static_cast<size_t>(sizes.heads * sizes.d)), 0))
          << "padding";
    }
}

TEST(PagedAttention, agrees_with_the_definition_on_long_sequences) {
  const Sequences s({2, 1, 64, 16}, kF32, {3000, 1100}, 2);
  s.run(rows_of(0, 0, 2999));
  s.run(rows_of(1, 0, 1099));
  const Tensor out = s.run({{0, 2999}, {1, 1099}}).to(kCPU);
  EXPECT_TRUE(near(out[0], by_definition(s, 0, 2999), allowed(kF32)));
  EXPECT_TRUE(near(out[1], by_definition(s, 1, 1099), allowed(kF32)));
}

/// How a sequence of 150 tokens may be divided into calls: the first token of each.
const std::vector<std::vector<int64_t>> kDivisions = {
    {0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 140, 141, 142, 143, 144, 145, 146, 147, 148, 149},
    {0, 5, 37, 101},
    {0, 64, 128}};

TEST(PagedAttention, gives_a_row_the_same_bits_however_it_is_called) {
  for (const Sizes& sizes : {Sizes{12, 12, 64, 16}, {4, 2, 128, 16}, {2, 1, 5, 3}, {6, 3, 40, 8}})
    for (const DType dtype : kFloatingDTypes) {
      SCOPED_TRACE(fmt::format("{} heads of {} in {}", sizes.heads, sizes.d, dtype));
      const Sequences whole(sizes, dtype, {150, 41, 60}, 3);
      const Tensor want = whole.run(rows_of(0, 0, 150)).to(kCPU);
      for (const std::vector<int64_t>& division : kDivisions) {
        const Sequences s(sizes, dtype, {150, 41, 60}, 3);
        for (size_t c = 0; c < division.size(); ++c) {
          const int64_t first = division[c], last = c + 1 < division.size() ? division[c + 1] : 150;
          EXPECT_TRUE(same_bits(s.run(rows_of(0, first, last)).to(kCPU), want.narrow(0, first, last - first)))
              << first << " to " << last;
        }
      }
      // Among others, behind padding, and in a long batch.
      const Sequences s(sizes, dtype, {150, 41, 60}, 3);
      std::vector<std::pair<int64_t, int64_t>> rows = {{-1, 0}, {1, 0}};
      for (const auto& row : rows_of(0, 0, 150)) rows.push_back(row);
      for (const auto& row : rows_of(2, 0, 60)) rows.push_back(row);
      for (const auto& row : rows_of(1, 1, 41)) rows.push_back(row);
      const Tensor all = s.run(rows), again = s.run(rows);
      EXPECT_TRUE(same_bits(all.narrow(0, 2, 150).to(kCPU), want));
      EXPECT_TRUE(same_bits(all.to(kCPU), again.to(kCPU)));
    }
}

TEST(PagedAttention, does_not_depend_on_blocks_or_threads) {
  const Sequences a({2, 2, 64, 16}, kBF16, {90, 3}, 4), b({2, 2, 64, 16}, kBF16, {90, 3}, 4);
  a.run(rows_of(0, 0, 89));
  // The same sequence in other blocks.
  const Sequences elsewhere({2, 2, 64, 16}, kBF16, {90, 3}, 5);
  Sequences moved = elsewhere;
  moved.qkv = a.qkv;
  moved.run(rows_of(0, 0, 89));
  EXPECT_TRUE(same_bits(a.run({{0, 89}}).to(kCPU), moved.run({{0, 89}}).to(kCPU)));
  b.run(rows_of(0, 0, 89));
  expect_same_for_all_thread_counts([&] { return std::vector<Tensor>{b.run({{0, 89}, {1, 2}}).to(kCPU)}; });
}

TEST(PagedAttention, takes_operands_of_any_strides_and_a_scale) {
  for (const DType dtype : {kF32, kBF16}) {
    const Sequences s({4, 2, 16, 8}, dtype, {40}, 6);
    const Tensor want = s.run(rows_of(0, 0, 40)), slots = i32(std::vector<int64_t>(40, 0)),
                 positions = arange(40, {.dtype = kI32}), rows = s.q(s.qkv[0]);
    const auto transposed = [](const Tensor& x) { return x.transpose(0, -1).contiguous().transpose(0, -1); };
    EXPECT_TRUE(same_bits(
        paged_attention(transposed(rows), transposed(s.k_cache), s.v_cache, s.table, slots, positions), want));
    EXPECT_TRUE(
        same_bits(paged_attention(rows, s.k_cache, s.v_cache, transposed(s.table), slots, positions, 0.25), want))
        << "1 / sqrt(16)";
    const Tensor other = paged_attention(rows, s.k_cache, s.v_cache, s.table, slots, positions, 0.0);
    EXPECT_TRUE(near(
        other.to(kCPU)[1],
        elements(s.v(s.qkv[0]).narrow(0, 0, 2).to(kF64).mean(0).unsqueeze(1).expand({2, 2, 16}).contiguous().to(kCPU)),
        allowed(dtype)))
        << "with a scale of 0 all weights are equal";
  }
}

TEST(PagedAttention, of_infinite_and_nan_operands_is_what_softmax_gives) {
  const Sequences s({1, 1, 2, 4}, kF32, {3}, 7);
  s.run(rows_of(0, 0, 3));
  const Tensor slots = i32({0}), positions = i32({2});
  const auto with = [&](double q) {
    const Tensor x = tensor_of({1, 1, 2}, kF32, {q, 0});
    return elements(paged_attention(x, s.k_cache, s.v_cache, s.table, slots, positions).to(kCPU))[0];
  };
  EXPECT_TRUE(std::isnan(with(kNaN)));
  EXPECT_TRUE(std::isfinite(with(1)));
  EXPECT_TRUE(std::isfinite(with(1e30))) << "one score is far above the others";
  const int64_t block = s.table.to(kI64).to(kCPU).data<int64_t>()[0];
  s.v_cache[block][1].fill_(INFINITY);
  EXPECT_EQ(with(0), INFINITY);
}

TEST(PagedWrite, stores_rows_where_the_table_says_and_nothing_else) {
  for (const DType dtype : kFloatingDTypes)
    for (const Memory memory : {Memory::contiguous, Memory::transposed, Memory::sliced}) {
      const Tensor k_cache = sample({5, 4, 2, 6}, dtype, 8, memory), v_cache = sample({5, 4, 2, 6}, dtype, 9, memory),
                   k = sample({4, 2, 6}, dtype, 10), v = sample({4, 2, 6}, dtype, 11, memory);
      std::vector<double> want_k = elements(k_cache), want_v = elements(v_cache);
      const std::vector<double> from_k = elements(k), from_v = elements(v);
      const auto expect_row = [&](size_t row, size_t block, size_t at) {
        for (size_t e = 0; e < 12; ++e) {
          want_k[(block * 4 + at) * 12 + e] = from_k[row * 12 + e];
          want_v[(block * 4 + at) * 12 + e] = from_v[row * 12 + e];
        }
      };
      expect_row(0, 3, 1), expect_row(1, 4, 3), expect_row(3, 0, 0);
      const uint32_t versions = k_cache.version() + v_cache.version();
      paged_write(k_cache, v_cache, k, v, i32({2, 0, 3, 4}, {2, 2}), i32({1, 1, -1, 0}), i32({1, 7, 2, 4}));
      EXPECT_TRUE(near(k_cache, want_k, 0)) << dtype;
      EXPECT_TRUE(near(v_cache, want_v, 0)) << dtype;
      EXPECT_EQ(k_cache.version() + v_cache.version(), versions + 2);
    }
}

TEST(PagedWrite, reads_rows_that_lie_in_the_cache_before_it_writes) {
  const Tensor k_cache = sample({3, 2, 1, 4}, kF32, 12), v_cache = sample({3, 2, 1, 4}, kF32, 13);
  const std::vector<double> before = elements(k_cache);
  const Tensor rows = k_cache[0];
  paged_write(k_cache, v_cache, rows, rows, i32({0, 1, 2}, {1, 3}), i32({0, 0}), i32({1, 2}));
  EXPECT_TRUE(near(k_cache[0][1], {before.begin(), before.begin() + 4}, 0));
  EXPECT_TRUE(near(k_cache[1][0], {before.begin() + 4, before.begin() + 8}, 0));
}

/// Operands of both operators, to be spoilt.
struct Call {
  Tensor k_cache = ones({4, 2, 2, 3}), v_cache = ones({4, 2, 2, 3}), k = full({2, 2, 3}, 5.0, {kF32}), v = k.clone(),
         q = ones({2, 4, 3}), table = i32({0, 1, 2, 3}, {2, 2}), slots = i32({0, 1}), positions = i32({1, 2});
  void write() const {
    paged_write(k_cache, v_cache, k, v, table, slots, positions);
    device::synchronize(default_device());
  }
  Tensor attend() const {
    const Tensor out = paged_attention(q, k_cache, v_cache, table, slots, positions);
    device::synchronize(default_device());
    return out;
  }
};

TEST(PagedAttention, throws_for_slots_positions_and_blocks_that_do_not_exist) {
  const auto missing = [](const auto& spoil, const char* cpu, const char* gpu) {
    Call call;
    spoil(call);
    const char* const text = default_device().is_cpu() ? cpu : gpu;
    expect_error<IndexError>([&] { call.write(); }, text);
    expect_error<IndexError>([&] { call.attend(); }, text);
    if (default_device().is_cpu()) {
      EXPECT_TRUE(equal(call.k_cache, ones({4, 2, 2, 3}))) << "nothing is written";
    }
  };
  missing([](Call& c) { c.slots = i32({0, 2}); }, "slot 2 of row 1", "got 2; expected 0 to 1");
  missing([](Call& c) { c.positions = i32({-1, 2}); }, "position -1 of row 0", "got -1; expected 0 to 3");
  missing([](Call& c) { c.positions = i32({0, 4}); }, "position 4 of row 1", "got 4; expected 0 to 3");
  missing([](Call& c) { c.table = i32({4, 1, 2, 3}, {2, 2}); }, "block 4 of slot 0", "got 4; expected 0 to 3");
  missing([](Call& c) { c.table = i32({0, 1, 2, -7}, {2, 2}); }, "block -7 of slot 1", "got -7; expected 0 to 3");
  // What is not needed may be anything.
  Call call;
  call.table = i32({0, -7, 2, 3}, {2, 2}), call.slots = i32({0, -5}), call.positions = i32({1, 99});
  call.write();
  EXPECT_TRUE(near(call.attend()[1].to(kCPU), std::vector<double>(12), 0));
}

/// Which of the operators refuse.
enum class Who { both, write, attend };

/// Expects an E whose message contains `text` of a call with spoilt operands.
template <class E>
void refused(const std::function<void(Call&)>& spoil, const char* text, Who who = Who::both) {
  Call call;
  spoil(call);
  if (who != Who::attend) expect_error<E>([&] { call.write(); }, text);
  if (who != Who::write) expect_error<E>([&] { call.attend(); }, text);
}
TEST(PagedAttention, refuses_shapes_that_do_not_fit) {
  refused<ShapeError>([](Call& c) { c.v_cache = ones({4, 2, 2, 4}); }, "the caches do not fit");
  refused<ShapeError>([](Call& c) { c.k_cache = c.v_cache = ones({4, 2, 6}); }, "the caches do not fit");
  refused<ShapeError>([](Call& c) { c.k_cache = c.v_cache = ones({4, 0, 2, 3}); }, "the caches do not fit");
  refused<ShapeError>([](Call& c) { c.k = ones({2, 1, 3}); }, "k and v do not fit", Who::write);
  refused<ShapeError>([](Call& c) { c.v = ones({3, 2, 3}); }, "k and v do not fit", Who::write);
  refused<ShapeError>([](Call& c) { c.q = ones({2, 3, 3}); }, "q does not fit", Who::attend);
  refused<ShapeError>([](Call& c) { c.q = ones({2, 4, 2}); }, "q does not fit", Who::attend);
  refused<ShapeError>([](Call& c) { c.table = i32({0, 1}); }, "block_table is no matrix");
  refused<ShapeError>([](Call& c) { c.slots = i32({0}); }, "rows do not fit");
  refused<ShapeError>([](Call& c) { c.positions = i32({0, 1, 2}); }, "rows do not fit");
  refused<ShapeError>(
      [](Call& c) {
        c.k_cache = ones({1, 2, 2, 3}).expand({4, 2, 2, 3});
      },
      "share one address", Who::write);
}

TEST(PagedAttention, refuses_dtypes_that_do_not_fit) {
  refused<DTypeError>([](Call& c) { c.slots = c.slots.to(kI64); }, "slots is not i32");
  refused<DTypeError>([](Call& c) { c.positions = c.positions.to(kI64); }, "positions is not i32");
  refused<DTypeError>([](Call& c) { c.table = c.table.to(kF32); }, "block_table is not i32");
  refused<DTypeError>([](Call& c) { c.v_cache = c.v_cache.to(kF64); }, "v_cache has another dtype");
  refused<DTypeError>([](Call& c) { c.k_cache = c.k_cache.to(kI64); }, "k_cache is not floating", Who::write);
  refused<DTypeError>([](Call& c) { c.q = c.q.to(kBool); }, "q is not floating", Who::attend);
}

TEST(PagedAttention, has_no_gradient_and_says_so) {
  Call call;
  call.q.requires_grad_(), call.k.requires_grad_();
  EXPECT_THROW(call.write(), GradError);
  EXPECT_THROW(call.attend(), GradError);
  const NoGrad scope;
  call.write();
  EXPECT_FALSE(call.attend().requires_grad());
}

TEST(PagedAttention, of_no_rows_is_empty) {
  Call call;
  call.k = call.v = empty({0, 2, 3}), call.q = empty({0, 4, 3}), call.slots = call.positions = i32({});
  call.write();
  EXPECT_EQ(call.attend().sizes(), (Dims{0, 4, 3}));
  EXPECT_TRUE(equal(call.k_cache, ones({4, 2, 2, 3})));
}

}  // namespace
}  // namespace lorry::test
