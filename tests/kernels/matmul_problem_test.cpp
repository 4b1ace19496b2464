#include "lorry/kernels/cuda/matmul/matmul_problem.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "tests/support/dtypes.h"
#include "tests/support/product_layouts.h"

// What cuBLASLt is told of a product, carried out by plain loops as its manual says, against the product by its
// definition. Runs without a device.

namespace lorry::kernels::cuda {
namespace {

using test::Random;

const Stream kStream{Device{DeviceType::cuda, 0}, nullptr};

/// Memory and one operand in it.
struct Strided {
  std::vector<double> memory;
  Layout layout;

  void fill(Random& random) {
    memory.resize(static_cast<size_t>(std::max<int64_t>(1, layout.extent())));
    for (double& x : memory) x = static_cast<double>(random.number(-3, 3));
  }
  Array array() { return {memory.data(), kF64, layout}; }
};

double gelu(double x) { return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double gate = 1 / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
  return gate + x * gate * (1 - gate) * 1.5957691216057308 * (1 + 3 * 0.044715 * x * x);
}

/// An epilogue as cuBLASLt's manual defines it, at row i and column j of D: returns the element of D.
double finish(const PlanKey& key, const MatmulEpilogue& epilogue, double result, int64_t i, int64_t j) {
  double* const sums = static_cast<double*>(epilogue.sums);
  double* const aux = static_cast<double*>(epilogue.aux) + (epilogue.aux == nullptr ? 0 : i + j * key.leading[kOut]);
  switch (key.epilogue) {
    case MatmulEpilogue::gelu_and_input:
      *aux = result;
      [[fallthrough]];
    case MatmulEpilogue::gelu:
      return gelu(result);
    case MatmulEpilogue::gelu_backward:
      return result * gelu_slope(*aux);
    case MatmulEpilogue::gelu_backward_and_sums:
      result *= gelu_slope(*aux);
      sums[i] = (j == 0 ? 0 : sums[i]) + result;
      return result;
    default:
      return result;
  }
}

/// The product as cuBLASLt's manual defines it, from what the plan's key tells it.
void blas(const Problem& part) {
  const PlanKey key = plan_key(part, kStream);
  const auto at = [&](Operand x, int64_t batch) {
    return reinterpret_cast<double*>(part.data[x]) + batch * key.batch_stride[x];
  };
  ASSERT_GE(key.leading[kA], key.transposed_a ? key.k : key.m);
  ASSERT_GE(key.leading[kB], key.transposed_b ? key.n : key.k);
  ASSERT_GE(key.leading[kC], key.m);
  ASSERT_GE(key.leading[kOut], key.m);
  for (int64_t batch = 0; batch < key.batches; ++batch) {
    const double *const a = at(kA, batch), *const b = at(kB, batch), *const c = at(kC, batch);
    for (int64_t j = 0; j < key.n; ++j) {
      for (int64_t i = 0; i < key.m; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < key.k; ++k)
          sum += a[key.transposed_a ? k + i * key.leading[kA] : i + k * key.leading[kA]] *
                 b[key.transposed_b ? j + k * key.leading[kB] : k + j * key.leading[kB]];
        double result = part.alpha * sum;
        if (key.bias != 0) {
          result += c[i];
        } else if (part.adds) {
          result += part.beta * c[i + j * key.leading[kC]];
        }
        at(kOut, batch)[i + j * key.leading[kOut]] = finish(key, part.epilogue, result, i, j);
      }
      if (key.epilogue != MatmulEpilogue::sums_of_a) continue;  // BGRADB: the sums of the columns of B
      double sum = 0;
      for (int64_t k = 0; k < key.k; ++k)
        sum += b[key.transposed_b ? j + k * key.leading[kB] : k + j * key.leading[kB]];
      static_cast<double*>(part.epilogue.sums)[j] = sum;
    }
  }
}

/// Walks every element of `sizes` and gives each operand's offset there.
template <class F>
void for_each_element(const Dims& sizes, F&& f) {
  Dims at;
  for (int d = 0; d < static_cast<int>(sizes.size()); ++d) at.push_back(0);
  for (int64_t i = 0, n = checked_numel(sizes); i < n; ++i) {
    f(at);
    for (int d = static_cast<int>(sizes.size()) - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
  }
}

int64_t offset(const Layout& layout, const Dims& at) {
  int64_t sum = 0;
  for (int d = 0; d < layout.rank; ++d) sum += at[d] * layout.strides[d];
  return sum;
}

void by_definition(const MatmulArgs& args) {
  const int r = args.out.layout.rank;
  for_each_element(args.out.layout.size_list(), [&](const Dims& at) {
    Dims at_a = at, at_b = at;
    double sum = 0;
    for (int64_t k = 0; k < args.a.size(r - 1); ++k) {
      at_a[r - 1] = at_b[r - 2] = k;
      sum += args.a.as<double>()[offset(args.a.layout, at_a)] * args.b.as<double>()[offset(args.b.layout, at_b)];
    }
    const double added =
        args.beta == 0 || args.c.data == nullptr ? 0 : args.beta * args.c.as<double>()[offset(args.c.layout, at)];
    args.out.as<double>()[offset(args.out.layout, at)] = args.alpha * sum + added;
  });
}

TEST(MatmulProblem, what_the_library_is_told_is_the_product) {
  Random random(20251121);
  int64_t forms[5] = {};
  for (int round = 0; round < 20000; ++round) {
    const int rank = static_cast<int>(random.number(2, 6));
    Dims sizes;
    for (int d = 0; d < rank; ++d) sizes.push_back(random.number(1, 3));
    const int64_t k = random.number(1, 3);
    Dims sizes_a = sizes, sizes_b = sizes;
    sizes_a[rank - 1] = k, sizes_b[rank - 2] = k;
    Strided out, a, b, c;
    out.layout = test::product_layout(random, sizes, false);
    a.layout = test::product_layout(random, sizes_a, true);
    b.layout = test::product_layout(random, sizes_b, true);
    c.layout = test::addend_layout(random, sizes);
    for (Strided* x : {&out, &a, &b, &c}) x->fill(random);
    MatmulArgs args{.out = out.array(), .a = a.array(), .b = b.array(), .c = {}, .alpha = 1.0, .beta = 0.0};
    if (random.one_in(3)) args.alpha = 2;
    if (!random.one_in(3)) args.c = random.one_in(3) ? args.out : c.array(), args.beta = random.one_in(3) ? 3 : 1;

    Strided expected = out;
    MatmulArgs oracle = args;
    oracle.out.data = expected.memory.data();
    if (args.c.data == args.out.data) oracle.c.data = oracle.out.data;
    by_definition(oracle);

    Problem problem = describe(args);
    ++forms[static_cast<int>(addend(problem))];
    if (addend(problem) == Addend::other) {
      for_each_element(sizes, [&](const Dims& at) {
        out.memory[static_cast<size_t>(offset(out.layout, at))] = c.memory[static_cast<size_t>(offset(c.layout, at))];
      });
      args.c = args.out;
      problem = describe(args);
    }
    for_each_part(problem, 2, [](const Problem& part) { blas(part); });
    ASSERT_EQ(out.memory, expected.memory)
        << "round " << round << ": " << to_string(sizes) << " strides " << to_string(out.layout.stride_list());
  }
  for (const int64_t count : forms) EXPECT_GT(count, 100);
}

/// The arguments as if they were of 16-bit floats.
MatmulArgs narrow(MatmulArgs args) {
  for (Array* x : {&args.out, &args.a, &args.b, &args.c}) x->dtype = kBF16;
  return args;
}

constexpr MatmulEpilogue::Kind kEpilogues[] = {MatmulEpilogue::gelu, MatmulEpilogue::gelu_and_input,
                                               MatmulEpilogue::gelu_backward, MatmulEpilogue::gelu_backward_and_sums,
                                               MatmulEpilogue::sums_of_a};

/// Computes a product with an epilogue by its contract. `sums` of the epilogue has been set to 0.
void by_definition(const MatmulArgs& args, const MatmulEpilogue& epilogue) {
  by_definition(args);
  const int r = args.out.layout.rank;
  double* const sums = static_cast<double*>(epilogue.sums);
  for_each_element(args.out.layout.size_list(), [&](const Dims& at) {
    const int64_t i = offset(args.out.layout, at);
    double& out = args.out.as<double>()[i];
    double* const aux = static_cast<double*>(epilogue.aux) + (epilogue.aux == nullptr ? 0 : i);
    if (epilogue.kind == MatmulEpilogue::gelu_and_input) *aux = out;
    if (epilogue.kind == MatmulEpilogue::gelu || epilogue.kind == MatmulEpilogue::gelu_and_input) out = gelu(out);
    if (epilogue.kind == MatmulEpilogue::gelu_backward || epilogue.kind == MatmulEpilogue::gelu_backward_and_sums)
      out *= gelu_slope(*aux);
    if (epilogue.kind == MatmulEpilogue::gelu_backward_and_sums) sums[at[r - 1]] += out;
  });
  if (epilogue.kind != MatmulEpilogue::sums_of_a) return;
  for_each_element(args.a.layout.size_list(),
                   [&](const Dims& at) { sums[at[0]] += args.a.as<double>()[offset(args.a.layout, at)]; });
}

TEST(MatmulProblem, what_the_library_is_told_of_an_epilogue_is_the_epilogue) {
  Random random(20261125);
  std::map<MatmulEpilogue::Kind, int> taken;
  for (int round = 0; round < 20000; ++round) {
    const auto size = [&] { return random.one_in(4) ? random.number(1, 20) : 8 * random.number(1, 2); };
    const MatmulEpilogue::Kind kind = kEpilogues[static_cast<size_t>(random.number(0, 4))];
    Dims sizes = random.one_in(3) ? Dims{random.number(1, 3), size(), size()} : Dims{size(), size()};
    const int r = sizes.size();
    Dims sizes_a = sizes, sizes_b = sizes;
    sizes_a[r - 1] = sizes_b[r - 2] = size();
    Strided out, a, b, c, aux, sums;
    out.layout = random.one_in(2) ? Layout::contiguous(sizes) : test::product_layout(random, sizes, false);
    a.layout = random.one_in(2) ? Layout::contiguous(sizes_a) : test::product_layout(random, sizes_a, true);
    b.layout = expand(test::product_layout(random, {sizes_b[r - 2], sizes_b[r - 1]}, true), sizes_b);
    c.layout = test::addend_layout(random, sizes);
    if (random.one_in(2)) c.layout = expand(Layout::contiguous({sizes[r - 1]}), sizes);
    aux.layout = out.layout, sums.layout = Layout::contiguous({64});
    for (Strided* x : {&out, &a, &b, &c, &aux, &sums}) x->fill(random);
    MatmulArgs args{.out = out.array(), .a = a.array(), .b = b.array(), .c = {}};
    if (random.one_in(2)) args.c = c.array(), args.beta = 1;
    MatmulEpilogue epilogue{.kind = kind};
    if (kind != MatmulEpilogue::gelu && kind != MatmulEpilogue::sums_of_a) epilogue.aux = aux.memory.data();
    if (kind == MatmulEpilogue::gelu_backward_and_sums || kind == MatmulEpilogue::sums_of_a)
      epilogue.sums = sums.memory.data();
    if (epilogue_refused(narrow(args), epilogue) != nullptr) continue;
    ++taken[kind];

    Strided want_out = out, want_aux = aux, want_sums = sums;
    const auto count = kind == MatmulEpilogue::sums_of_a ? sizes[0] : sizes[r - 1];
    if (epilogue.sums != nullptr) std::fill_n(want_sums.memory.begin(), count, 0.0);
    MatmulArgs oracle = args;
    oracle.out.data = want_out.memory.data();
    by_definition(oracle, {.kind = kind,
                           .aux = epilogue.aux == nullptr ? nullptr : want_aux.memory.data(),
                           .sums = epilogue.sums == nullptr ? nullptr : want_sums.memory.data()});
    Problem problem = describe(args);
    problem.epilogue = epilogue;
    blas(problem);
    const auto expect_near = [&](const Strided& got, const Strided& want, const char* what) {
      for (size_t i = 0; i < got.memory.size(); ++i)
        ASSERT_NEAR(got.memory[i], want.memory[i], 1e-9)
            << "round " << round << ", " << kernels::name(kind) << ", " << what << ": " << to_string(sizes)
            << " strides " << to_string(out.layout.stride_list());
    };
    expect_near(out, want_out, "result");
    expect_near(aux, want_aux, "aux");
    expect_near(sums, want_sums, "sums");
  }
  for (const MatmulEpilogue::Kind kind : kEpilogues) EXPECT_GT(taken[kind], 100) << kernels::name(kind);
}

TEST(MatmulProblem, epilogues_of_a_transformer_are_taken_and_others_say_why_not) {
  using enum MatmulEpilogue::Kind;
  const auto matrix = [](int64_t rows, int64_t columns) { return Layout::contiguous({rows, columns}); };
  const auto args = [](const Layout& out, const Layout& a, const Layout& b, DType dtype = kBF16) {
    return MatmulArgs{.out = {nullptr, dtype, out}, .a = {nullptr, dtype, a}, .b = {nullptr, dtype, b}, .c = {}};
  };
  // up: [8, 1024, 768] by [3072, 768]^T with a bias; the gradient of down's input, and the gradient of up's weight
  const Layout hidden = Layout::contiguous({8, 1024, 3072}), x = Layout::contiguous({8, 1024, 768});
  MatmulArgs up = args(hidden, x, Layout::strided({8, 768, 3072}, {0, 1, 768}));
  up.c = {&up, kBF16, Layout::strided({8, 1024, 3072}, {0, 0, 1})}, up.beta = 1;
  EXPECT_EQ(epilogue_refused(up, {gelu}), nullptr);
  EXPECT_EQ(epilogue_refused(up, {gelu_and_input}), nullptr);
  MatmulArgs one_row = args(matrix(1, 3072), matrix(1, 768), Layout::strided({768, 3072}, {1, 768}));
  for (const int64_t row : {0, 3072}) {  // the stride of a bias between rows does not matter
    one_row.c = {&up, kBF16, Layout::strided({1, 3072}, {row, 1})}, one_row.beta = 1;
    EXPECT_EQ(epilogue_refused(one_row, {gelu}), nullptr);
    EXPECT_EQ(epilogue_refused(one_row, {relu}), nullptr);
  }
  const MatmulArgs down = args(hidden, x, Layout::strided({8, 768, 3072}, {0, 3072, 1}));
  EXPECT_EQ(epilogue_refused(down, {gelu_backward}), nullptr);
  EXPECT_EQ(epilogue_refused(down, {gelu_backward_and_sums}), nullptr);
  const MatmulArgs weight = args(matrix(3072, 768), Layout::strided({3072, 8192}, {1, 3072}), matrix(8192, 768));
  EXPECT_EQ(epilogue_refused(weight, {sums_of_a}), nullptr);

  const auto why = [](const MatmulArgs& given, const MatmulEpilogue& epilogue) {
    const char* text = epilogue_refused(given, epilogue);
    return std::string(text == nullptr ? "taken" : text);
  };
  EXPECT_EQ(why(args(matrix(8, 8), matrix(8, 8), matrix(8, 8), kF32), {gelu}), "only 16-bit floats have epilogues");
  EXPECT_EQ(why(args(matrix(8, 8), matrix(8, 0), matrix(0, 8)), {gelu}), "it is empty or scaled");
  EXPECT_EQ(why(args(Layout::strided({8, 8}, {1, 8}), matrix(8, 8), matrix(8, 8)), {gelu}),
            "the rows of its result have no unit stride");
  EXPECT_EQ(
      why(args(Layout::contiguous({3, 8, 8}), Layout::contiguous({3, 8, 8}), Layout::contiguous({3, 8, 8})), {gelu}),
      "it is a batch of products");
  EXPECT_EQ(why(up, {gelu_backward}), "it adds something that is no bias");
  EXPECT_EQ(why(down, {sums_of_a}), "its first operand is no matrix");
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{7, 8, 8}, {8, 9, 8}, {8, 8, 12}})
    EXPECT_EQ(why(args(matrix(m, n), matrix(m, k), matrix(k, n)), {gelu}),
              m == 7 ? "taken" : "its rows are not whole runs of 16 bytes");
  alignas(16) char memory[32];
  EXPECT_EQ(why(down, {gelu_backward, memory + 2}), "its rows are not whole runs of 16 bytes");
}

Problem described(const Layout& out, const Layout& a, const Layout& b, const Layout* c = nullptr) {
  static double memory;
  MatmulArgs args{.out = {&memory, kF64, out}, .a = {&memory, kF64, a}, .b = {&memory, kF64, b}, .c = {}};
  if (c != nullptr) args.c = {&memory + 1, kF64, *c}, args.beta = 1;
  return describe(args);
}

TEST(MatmulProblem, parts_of_whole_runs_make_the_product) {
  Random random(7);
  int cut = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t m = random.number(1, 30), n = random.number(1, 30), k = random.number(1, 30);
    const auto matrix = [&](int64_t rows, int64_t columns) {
      const bool across = random.number(0, 1) == 0;
      const int64_t ld = ((across ? columns : rows) + 3) / 4 * 4;
      return Layout::strided({rows, columns}, across ? Dims{ld, 1} : Dims{1, ld});
    };
    const Layout layouts[] = {matrix(m, n), matrix(m, k), matrix(k, n)};
    std::vector<float> memory[3];
    for (int x = 0; x < 3; ++x)
      for (int64_t i = 0; i < layouts[x].extent(); ++i) memory[x].push_back(static_cast<float>(random.number(-3, 3)));
    const bool adds = random.number(0, 1) == 0;
    MatmulArgs args{.out = {memory[0].data(), kF32, layouts[0]},
                    .a = {memory[1].data(), kF32, layouts[1]},
                    .b = {memory[2].data(), kF32, layouts[2]},
                    .c = {}};
    if (adds) args.c = args.out, args.beta = 2;
    std::vector<float> want;
    const auto at = [&](int x, int64_t i, int64_t j) -> float& {
      return memory[x][static_cast<size_t>(i * layouts[x].strides[0] + j * layouts[x].strides[1])];
    };
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        float sum = adds ? 2 * at(0, i, j) : 0;
        for (int64_t l = 0; l < k; ++l) sum += at(1, i, l) * at(2, l, j);
        want.push_back(sum);
      }
    int parts = 0;
    for_each_aligned_part(
        describe(args),
        [&](const Problem& p) {
          ++parts;
          const auto of = [&](Operand x, int64_t i, int64_t j) -> float& {
            return reinterpret_cast<float*>(p.data[x])[i * p.row[x] + j * p.column[x]];
          };
          for (int64_t i = 0; i < p.m; ++i)
            for (int64_t j = 0; j < p.n; ++j) {
              float sum = p.adds ? static_cast<float>(p.beta) * of(kC, i, j) : 0;
              for (int64_t l = 0; l < p.k; ++l) sum += of(kA, i, l) * of(kB, l, j);
              of(kOut, i, j) = sum;
            }
        },
        0);
    cut += parts > 1;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        ASSERT_EQ(at(0, i, j), want[static_cast<size_t>(i * n + j)]) << "round " << round << " at " << i << ", " << j;
  }
  EXPECT_GT(cut, 100);
}

TEST(MatmulProblem, a_linear_layer_over_batches_is_one_product_with_a_bias) {
  const Layout bias = Layout::strided({8, 128, 32}, {0, 0, 1});
  const Problem p = described(Layout::contiguous({8, 128, 32}), Layout::contiguous({8, 128, 64}),
                              Layout::strided({8, 64, 32}, {0, 1, 64}), &bias);
  EXPECT_EQ(p.batch_rank, 0);
  EXPECT_EQ(p.m, 32);
  EXPECT_EQ(p.n, 1024);
  EXPECT_EQ(addend(p), Addend::bias);
}

TEST(MatmulProblem, a_batch_of_matrices_by_one_vector_is_one_product) {
  const Problem p = described(Layout::contiguous({8, 128, 1}), Layout::contiguous({8, 128, 64}),
                              Layout::strided({8, 64, 1}, {0, 1, 1}));
  EXPECT_EQ(p.batch_rank, 0);
  EXPECT_EQ(p.m, 1024);
  EXPECT_EQ(p.n, 1);
}

TEST(MatmulProblem, even_batches_are_one_call) {
  const Problem p = described(Layout::contiguous({4, 8, 16, 16}), Layout::contiguous({4, 8, 16, 32}),
                              Layout::contiguous({4, 8, 32, 16}));
  EXPECT_EQ(p.batch_rank, 1);
  EXPECT_EQ(p.batches(), 32);
}

TEST(MatmulProblem, an_alpha_of_zero_leaves_no_depth) {
  double memory[4] = {};
  const Array x{memory, kF64, Layout::contiguous({2, 2})};
  EXPECT_EQ(describe({.out = x, .a = x, .b = x, .c = {}, .alpha = 0}).k, 0);
}

TEST(MatmulProblem, the_library_is_asked_for_no_dtype_that_it_does_not_multiply) {
  for (const DType dtype : test::kWholeDTypes) {
    if (dtype == kI8) continue;  // with sums in i32
    PlanKey key{};
    key.m = key.n = key.k = 4, key.batches = 1, key.dtype = dtype;
    EXPECT_THROW(make_plan(key, nullptr), DTypeError) << name(dtype);
  }
}

}  // namespace
}  // namespace lorry::kernels::cuda
