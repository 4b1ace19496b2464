// Maps that also compute the sums of their results over leading dimensions: which sums they take, that what they store
// has the bits of the operators, and that the sums are as near to sums in f64.

#include <gtest/gtest.h>

#include "lorry/compile/columns.h"
#include "lorry/compile/compile.h"
#include "lorry/compile/program.h"
#include "lorry/compile/simplify.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/internal.h"
#include "tests/trace/support.h"

namespace lorry::test {
namespace {

bool has_column_sums() {
  const kernels::FusedKernels* fused = kernels::backend(default_device()).fused;
  return fused != nullptr && fused->column_sums;
}

trace::Graph graph_of(const Tensors& arguments, const Function& f) {
  trace::Recorder recorder(arguments);
  const Tensors results = f(arguments);
  return trace::functionalise(recorder.finish(results));
}

int sums_in_maps(const std::vector<compiler::Unit>& units) {
  int count = 0;
  for (const compiler::Unit& u : units) count += static_cast<int>(u.sum_registers.size());
  return count;
}

/// Pointwise results, and their sums over `dims`.
struct Case {
  Function values;
  Dims dims = {0};
  bool keepdim = false;
  bool returns_values = true;

  Tensors operator()(const Tensors& x) const {
    const Tensors all = values(x);
    Tensors results = returns_values ? all : Tensors();
    for (const Tensor& v : all) results.push_back(v.sum(dims, keepdim));
    return results;
  }
};

/// Other floats keep the bits of the operator.
bool has_sums_of(DType dtype) { return size_of(dtype) == 2; }

double rounding(DType dtype) { return dtype == kBF16 ? 4e-3 : dtype == kF16 ? 5e-4 : dtype == kF32 ? 1e-6 : 1e-13; }

/// Whether the sums are right, within the rounding of their dtype and of sums in f32.
void expect_near(const Tensor& got, const Tensor& value, const Case& f) {
  const Tensor wide = value.cpu().to(kF64), want = wide.sum(f.dims, f.keepdim);
  const Tensor error = (got.cpu().to(kF64) - want).abs();
  const double inner = value.dtype() == kF64 ? 1e-13 : 1e-6;
  const Tensor bound = want.abs() * rounding(got.dtype()) + wide.abs().sum(f.dims, f.keepdim) * inner + 1e-30;
  EXPECT_LE((error / bound).max().item<double>(), 1) << value.dtype();
}

/// Expects a program that computes so many of the sums in maps. On the CPU it has the bits of the function.
void expect_sums(const MakeArguments& make, const Case& f, int in_maps) {
  const NoGrad quiet;
  const trace::Graph graph = graph_of(make(1), f);
  const compiler::Program program(graph, {.epilogues = compiler::Epilogues::fast});
  SCOPED_TRACE(trace::to_string(program.graph()) + program.explain());
  EXPECT_EQ(sums_in_maps(program.units()), has_column_sums() ? in_maps : 0);
  EXPECT_EQ(sums_in_maps(compiler::fuse(program.graph())), 0) << "without being asked to";
  for (const uint64_t seed : {1, 2, 2}) {
    if (seed == 2) program.wait();  // the first run may find kernels that are not compiled yet
    const Tensors x = make(seed), values = f.values(x), plain = f(x), got = program.run(x);
    ASSERT_EQ(got.size(), plain.size());
    const size_t stored = f.returns_values ? values.size() : 0;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].layout(), plain[i].layout());
      EXPECT_EQ(got[i].dtype(), plain[i].dtype());
      if (i < stored || !has_column_sums() || !has_sums_of(values[i - stored].dtype()))
        EXPECT_TRUE(bits_of(got[i]) == bits_of(plain[i])) << "result " << i;
      else
        expect_near(got[i], values[i - stored], f);
    }
    // The order of the sums is that of every run.
    const Tensors again = program.run(x);
    for (size_t i = 0; i < got.size() && seed == 2; ++i) EXPECT_TRUE(bits_of(again[i]) == bits_of(got[i])) << i;
  }
}

MakeArguments randoms_of(DType dtype, const std::vector<Dims>& sizes) {
  return [=](uint64_t seed) {
    manual_seed(seed);
    Tensors all;
    for (const Dims& s : sizes) all.push_back(randn(s).to(dtype));
    return all;
  };
}

const std::vector<DType> kFloats = {kBF16, kF16, kF32, kF64};

TEST(ColumnSums, of_the_gradient_of_gelu) {
  const auto values = [](const Tensors& x) { return Tensors{gelu_tanh_backward(x[0], x[1])}; };
  for (const DType dtype : kFloats)
    for (const Dims& sizes : {Dims{1, 64}, Dims{2, 8}, Dims{77, 136}, Dims{2048, 768}, Dims{4099, 16}, Dims{3, 9000}}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype, sizes));
      expect_sums(randoms_of(dtype, {sizes, sizes}), {values}, has_sums_of(dtype));
      expect_sums(randoms_of(dtype, {sizes, sizes}), {values, {0}, true, false}, has_sums_of(dtype));
    }
}

TEST(ColumnSums, over_several_dimensions) {
  const auto values = [](const Tensors& x) { return Tensors{x[0] * x[1]}; };
  for (const bool keepdim : {false, true}) {
    expect_sums(randoms_of(kBF16, {{3, 5, 64}, {3, 5, 64}}), {values, {0, 1}, keepdim}, 1);
    expect_sums(randoms_of(kBF16, {{3, 5, 64}, {3, 5, 64}}), {values, {0}, keepdim}, 1);  // 3 rows of 320
    expect_sums(randoms_of(kF16, {{7, 1, 5, 64}, {64}}), {values, {0, 1, 2}, keepdim}, 1);
    expect_sums(randoms_of(kF16, {{7, 1, 5, 64}, {5, 64}}), {values, {0, 1, 2}, keepdim}, 0);  // rows that repeat
  }
  // The sum reads what the map makes as a matrix.
  const auto matrix = [](const Tensors& x) {
    const Tensor y = gelu_tanh_backward(x[0], x[1]);
    return Tensors{y, y.reshape({15, 64}).sum({0})};
  };
  const trace::Graph graph = graph_of(randoms_of(kF16, {{3, 5, 64}, {3, 5, 64}})(1), matrix);
  EXPECT_EQ(sums_in_maps(compiler::fuse(compiler::Program(graph).graph(), true)), has_column_sums() ? 1 : 0);
}

TEST(ColumnSums, of_several_steps_with_broadcast_operands) {
  const auto values = [](const Tensors& x) {
    const Tensor a = (x[0] * x[1] + x[2]).tanh() * 0.5, b = a.to(kF32) - x[3].to(kF32);
    return Tensors{a, b};
  };
  for (const DType dtype : kFloats)
    for (const int64_t rows : {1, 5, 129, 1000}) {
      const MakeArguments make = randoms_of(dtype, {{rows, 96}, {96}, {rows, 1}, {}});
      for (const bool returns_values : {true, false})
        expect_sums(make, {values, {0}, false, returns_values}, has_sums_of(dtype));
    }
}

TEST(ColumnSums, of_rows_that_are_parts_of_others) {
  const auto values = [](const Tensors& x) { return Tensors{x[0].slice(1, 16, 80) - x[1]}; };
  expect_sums(randoms_of(kBF16, {{300, 96}, {300, 64}}), {values}, 1);
}

TEST(ColumnSums, read_by_others) {
  const auto values = [](const Tensors& x) {
    const Tensor a = x[0].sigmoid() * x[1];
    return Tensors{a, a.mm(x[1].t()).slice(1, 0, 8) * 2, a.exp() + 1};
  };
  expect_sums(randoms_of(kF16, {{40, 64}, {40, 64}}), {values}, 3);
}

TEST(ColumnSums, that_maps_do_not_take) {
  const auto product = [](const Tensors& x) { return Tensors{x[0] * x[1]}; };
  expect_sums(randoms_of(kBF16, {{300, 12}, {300, 12}}), {product}, 0);  // rows are no whole runs of 16 bytes
  expect_sums(randoms_of(kF16, {{300, 7}, {300, 7}}), {product}, 0);
  expect_sums(randoms_of(kF16, {{300, 64}, {300, 64}}), {product, {1}}, 0);
  expect_sums(randoms_of(kF16, {{300, 64}, {300, 64}}), {product, {0, 1}}, 0);
  expect_sums(randoms_of(kF16, {{3, 30, 64}, {3, 30, 64}}), {product, {0, 2}}, 0);
  expect_sums(randoms_of(kF16, {{0, 64}, {0, 64}}), {product}, 0);
  expect_sums(randoms_of(kF16, {{64, 64}, {64, 64}}),
              {[](const Tensors& x) { return Tensors{x[0].t() * x[1] + x[1]}; }}, 0);
  expect_sums(randoms_of(kF16, {{64, 66}, {64, 64}}),
              {[](const Tensors& x) { return Tensors{x[0].slice(1, 0, 64) * x[1]}; }}, 0);
}

TEST(ColumnSums, explain_says_why_a_map_takes_none) {
  if (!has_column_sums()) GTEST_SKIP() << "no sums in maps on " << default_device();
  const auto text = [](const Dims& sizes) {
    return compiler::Program(graph_of(randoms_of(kBF16, {sizes})(1),
                                      [](const Tensors& x) {
                                        const Tensor y = x[0] * 2;
                                        return Tensors{y, y.sum({0})};
                                      }),
                             {.epilogues = compiler::Epilogues::fast})
        .explain();
  };
  EXPECT_NE(text({64, 64}).find("mul sum over [64, 64], 8192 bytes saved"), std::string::npos) << text({64, 64});
  EXPECT_NE(text({64, 12}).find("an operand is not laid out in rows of whole runs of 16 bytes"), std::string::npos)
      << text({64, 12});
}

TEST(ColumnSums, are_written_where_the_caller_wants_them) {
  const NoGrad quiet;
  const auto step = [](const Tensors& x) {
    x[0].mul_(x[1]).tanh_();
    x[1].copy_(x[0].sum({0}));
    x[2].add_(x[0].sum({0}));
    return Tensors{};
  };
  const auto make = randoms_of(kBF16, {{500, 64}, {64}, {64}});
  const compiler::Program program(graph_of(make(1), step), {.epilogues = compiler::Epilogues::fast});
  for (const uint64_t seed : {1, 2, 3}) {
    const Tensors want = make(seed), got = make(seed);
    step(want);
    if (seed > 1) program.wait();
    program.run(got);
    EXPECT_TRUE(bits_of(got[0]) == bits_of(want[0]));
    for (size_t i = 1; i < got.size(); ++i) EXPECT_TRUE(allclose(got[i], want[i], 0.01, 0.01)) << program.explain();
  }
}

TEST(ColumnSums, operands_that_are_not_aligned_are_left_to_the_operators) {
  const NoGrad quiet;
  const Function f = [](const Tensors& x) {
    const Tensor y = x[0].relu() * 2;
    return Tensors{y, y.sum({0})};
  };
  manual_seed(1);
  const Tensor memory = randn({64 * 65}).to(kBF16);
  const auto at = [&](int64_t shift) { return memory.narrow(0, shift, 64 * 64).view({64, 64}); };
  const auto compiled = compile([&](const Tensor& x) { return f({x}); }, {.wait = true});
  for (const int64_t shift : {0, 0, 1, 3, 0}) {
    const Tensors got = compiled(at(shift)), want = f({at(shift)});
    EXPECT_TRUE(bits_of(got[0]) == bits_of(want[0])) << shift;
    EXPECT_TRUE(allclose(got[1].to(kF32), want[1].to(kF32), 0.01, 0.01)) << shift;
  }
}

/// Two linear layers with GELU between them: the loss and the gradients.
TEST(ColumnSums, a_training_step_sums_the_gradient_of_gelu) {
  for (const DType dtype : {kBF16, kF32}) {
    manual_seed(3);
    const auto parameter = [&](const Dims& sizes) { return (randn(sizes) * 0.2).to(dtype).requires_grad_(); };
    const Tensors p{parameter({128, 64}), parameter({128}), parameter({64, 128}), parameter({64})};
    const auto step = [&](const Tensor& x) {
      const Tensor y = linear(gelu(linear(x, p[0], p[1]), "tanh"), p[2], p[3]), loss = (y * y).sum();
      Tensors all = autograd::grad({loss}, p);
      all.push_back(loss.detach());
      return all;
    };
    const auto compiled = compile(step, {.wait = true});
    for (int call = 0; call < 3; ++call) {
      const Tensor x = randn({4, 40, 64}).to(dtype);
      const Tensors got = compiled(x), want = step(x);
      for (size_t i = 0; i < got.size(); ++i) {
        const Tensor a = got[i].cpu().to(kF64), b = want[i].cpu().to(kF64);
        EXPECT_LE((a - b).abs().max().item<double>(), (dtype == kF32 ? 1e-5 : 2e-2) * b.abs().max().item<double>())
            << i << " " << dtype;
      }
    }
    if (has_column_sums() && has_sums_of(dtype)) {
      EXPECT_NE(compiled.explain().find("gelu_tanh_backward sum over"), std::string::npos) << compiled.explain();
    }
  }
}

}  // namespace
}  // namespace lorry::test
