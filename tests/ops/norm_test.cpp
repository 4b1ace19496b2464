#include "lorry/ops/norm.h"

#include <algorithm>

#include "lorry/autograd/engine.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"

namespace lorry::test {
namespace {

struct Expected {
  std::vector<double> out, grad_x, grad_weight, grad_bias;
};

/// Forward and backward of layer_norm (or rms_norm) over rows of n, in long double.
Expected expected_norm(const Tensor& x, const Tensor& grad, int64_t n, const Tensor& weight, const Tensor& bias,
                       double eps, bool centred) {
  const std::vector<double> v = elements(x), g = elements(grad);
  Expected e{std::vector<double>(v.size()), std::vector<double>(v.size()), std::vector<double>(static_cast<size_t>(n)),
             std::vector<double>(static_cast<size_t>(n))};
  for (size_t row = 0; row + static_cast<size_t>(n) <= v.size(); row += static_cast<size_t>(n)) {
    long double mean = 0, squares = 0, direct = 0, along = 0;
    for (int64_t i = 0; centred && i < n; ++i) mean += static_cast<long double>(v[row + i]) / n;
    for (int64_t i = 0; i < n; ++i) squares += (v[row + i] - mean) * (v[row + i] - mean) / n;
    const long double rstd = 1 / std::sqrt(squares + eps);
    const auto w = [&](int64_t i) { return weight.defined() ? element(weight, i) : 1.0; };
    for (int64_t i = 0; i < n; ++i) {
      const long double normal = (v[row + i] - mean) * rstd;
      e.out[row + i] = static_cast<double>(normal * w(i) + (bias.defined() ? element(bias, i) : 0.0));
      direct += g[row + i] * w(i) / n;
      along += g[row + i] * w(i) * normal / n;
      e.grad_weight[i] += static_cast<double>(g[row + i] * normal);
      e.grad_bias[i] += g[row + i];
    }
    for (int64_t i = 0; i < n; ++i)
      e.grad_x[row + i] =
          static_cast<double>(rstd * (g[row + i] * w(i) - (centred ? direct : 0) - (v[row + i] - mean) * rstd * along));
  }
  return e;
}

struct Shape {
  Dims sizes, normalized;
};
const Shape kShapes[] = {
    {{7}, {7}},      {{5, 33}, {33}}, {{70, 128}, {128}}, {{3, 2, 5, 6}, {5, 6}}, {{2, 3, 1, 2, 2, 2, 3, 4}, {2, 3, 4}},
    {{130, 1}, {1}}, {{131, 3}, {3}}, {{131, 5}, {5}},    {{131, 14}, {14}},      {{67, 67}, {67}}};

TEST(norm, layer_norm_and_rms_norm_match_a_long_double_loop_for_every_dtype_and_layout) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : kFloatingDTypes)
      for (const Memory memory : kMemories) {
        const Tensor x = sample(shape.sizes, dtype, 2, memory), weight = sample(shape.normalized, dtype, 3),
                     bias = sample(shape.normalized, dtype, 4, memory);
        const int64_t n = weight.numel();
        const double eps = 1e-2, allowed = 8 * tolerance(dtype);
        const std::string what = fmt::format(" of {} {}", shape.sizes, dtype);
        EXPECT_EQ(layer_norm(x, shape.normalized).sizes(), shape.sizes);
        EXPECT_EQ(layer_norm(x, shape.normalized).dtype(), dtype);
        EXPECT_TRUE(near(layer_norm(x, shape.normalized, weight, bias, eps),
                         expected_norm(x, x, n, weight, bias, eps, true).out, allowed))
            << what;
        EXPECT_TRUE(near(layer_norm(x, shape.normalized, weight, {}, eps),
                         expected_norm(x, x, n, weight, {}, eps, true).out, allowed))
            << what;
        EXPECT_TRUE(
            near(layer_norm(x, shape.normalized, {}, {}, eps), expected_norm(x, x, n, {}, {}, eps, true).out, allowed))
            << what;
        EXPECT_TRUE(near(rms_norm(x, shape.normalized, weight, eps), expected_norm(x, x, n, weight, {}, eps, false).out,
                         allowed))
            << what;
        EXPECT_TRUE(
            near(rms_norm(x, shape.normalized, {}, eps), expected_norm(x, x, n, {}, {}, eps, false).out, allowed))
            << what;
      }
}

TEST(norm, fused_gradients_match_a_long_double_loop) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : {kBF16, kF32, kF64})
      for (const bool centred : {true, false}) {
        const Tensor x = sample(shape.sizes, dtype, 5).requires_grad_(),
                     weight = sample(shape.normalized, dtype, 6).requires_grad_();
        const Tensor bias = sample(shape.normalized, dtype, 7).requires_grad_(), grad = sample(shape.sizes, dtype, 8);
        const double eps = 1e-2;
        const Tensor y =
            centred ? layer_norm(x, shape.normalized, weight, bias, eps) : rms_norm(x, shape.normalized, weight, eps);
        y.backward(grad);
        const Expected e = expected_norm(x, grad, weight.numel(), weight, bias, eps, centred);
        const double rows = static_cast<double>(x.numel()) / static_cast<double>(weight.numel()),
                     allowed = 32 * tolerance(dtype);
        const std::string what = fmt::format(" of {} {}", shape.sizes, dtype);
        EXPECT_TRUE(near(x.grad(), e.grad_x, allowed)) << what;
        EXPECT_TRUE(near(weight.grad(), e.grad_weight, allowed * std::sqrt(rows))) << what;
        if (centred) {
          EXPECT_TRUE(near(bias.grad(), e.grad_bias, allowed * std::sqrt(rows))) << what;
        }
      }
}

/// As `sample`, but brought to a device at once.
Tensor drawn(const Dims& sizes, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> v(static_cast<size_t>(checked_numel(sizes)));
  for (double& x : v) x = static_cast<double>(static_cast<int64_t>(random() % 385) - 192) / 64;
  return from_data(v, sizes).to(dtype);
}

// Rows of one warp or a few, of a block, and of whole runs or not; few rows, and more than all blocks take at once.
TEST(norm, longer_rows_match_a_long_double_loop_and_gradients_take_an_addend) {
  const kernels::NormKernels& kernels_of_norm = *kernels::backend(default_device()).norm;
  for (const Dims& sizes : {Dims{3, 72}, Dims{5, 256}, Dims{9, 768}, Dims{1400, 520}, Dims{2, 1000}, Dims{5, 1001},
                            Dims{3, 1028}, Dims{9, 1536}, Dims{3, 4096}, Dims{2, 4104}, Dims{1, 9000}, Dims{1, 17000}})
    for (const DType dtype : {kBF16, kF16, kF32, kF64})
      for (const bool centred : {true, false}) {
        const int64_t rows = sizes[0], n = sizes[1];
        const std::string what = fmt::format(" of {} {}", sizes, dtype);
        const Tensor x = drawn(sizes, dtype, 14), weight = drawn({n}, dtype, 15), bias = drawn({n}, dtype, 16),
                     grad = drawn(sizes, dtype, 17), addend = drawn(sizes, dtype, 18);
        const double eps = 1e-2;
        const Expected e = expected_norm(x, grad, n, weight, centred ? bias : Tensor(), eps, centred);
        const Options wide{dtype == kF64 ? kF64 : kF32};
        Tensor out = empty(sizes, {dtype}), mean = empty({rows}, wide), rstd = empty({rows}, wide);
        const auto array = [&](const Tensor& t) { return kernels::Array{t.data_ptr(), t.dtype(), t.layout()}; };
        const Stream stream = current_stream(default_device());
        const kernels::Array means = centred ? array(mean) : kernels::Array{};
        kernels_of_norm.layer_norm(
            {array(out), array(x), array(weight), centred ? array(bias) : kernels::Array{}, means, array(rstd), eps},
            stream);
        EXPECT_TRUE(near(out, e.out, 8 * tolerance(dtype))) << what;

        Tensor grad_x = empty(sizes, {dtype}), grad_weight = empty({n}, {dtype}), grad_bias = empty({n}, {dtype});
        kernels::NormBackwardArgs args{.grad_x = array(grad_x),
                                       .grad_weight = array(grad_weight),
                                       .grad_bias = array(grad_bias),
                                       .grad = array(grad),
                                       .x = array(x),
                                       .weight = array(weight),
                                       .mean = means,
                                       .rstd = array(rstd)};
        kernels_of_norm.layer_norm_backward(args, stream);
        const double allowed = 32 * tolerance(dtype);
        EXPECT_TRUE(near(grad_x, e.grad_x, allowed)) << what;
        EXPECT_TRUE(near(grad_weight, e.grad_weight, allowed * std::sqrt(rows))) << what;
        EXPECT_TRUE(near(grad_bias, e.grad_bias, allowed * std::sqrt(rows))) << what;

        if (!kernels_of_norm.takes_addend) continue;
        Tensor with = empty(sizes, {dtype}), in_place = addend.clone();
        for (const Tensor& to : {with, in_place}) {
          args.grad_x = array(to);
          args.addend = array(to.data_ptr() == in_place.data_ptr() ? in_place : addend);
          kernels_of_norm.layer_norm_backward(args, stream);
          EXPECT_EQ(elements(to), elements(grad_x + addend)) << what;
        }
        args.grad_weight = args.grad_bias = {};
        kernels_of_norm.layer_norm_backward(args, stream);  // to the sum of before
        EXPECT_EQ(elements(in_place.clone()), elements(grad_x + (grad_x + addend))) << what;
      }
}

TEST(norm, a_large_common_offset_costs_no_digits) {
  const Tensor x = sample({4, 1000}, kF32, 9);
  Tensor far = empty({4, 1000});
  for (int64_t i = 0; i < 4000; ++i) set_element(far, i, element(x, i) + 4096);  // multiples of 1/64: exact
  EXPECT_TRUE(near(layer_norm(far, {1000}), elements(layer_norm(x, {1000})), 1e-4));
}

TEST(norm, constant_rows_and_infinities_give_what_the_formula_gives) {
  const Tensor x = tensor_of({3, 2}, kF32, {5, 5, kInf, 1, kNaN, 1});
  EXPECT_TRUE(near(layer_norm(x, {2}), {0, 0, kNaN, kNaN, kNaN, kNaN}, 0));
}

TEST(norm, rms_norm_without_eps_takes_the_machine_epsilon_of_the_compute_type) {
  const Tensor x = tensor_of({2}, kF32, {0, 1e-4});
  const double eps = std::numeric_limits<float>::epsilon();
  EXPECT_TRUE(near(rms_norm(x, {2}), {0, 1e-4 / std::sqrt(0.5e-8 + eps)}, 1e-6));
  const Tensor narrow = tensor_of({2}, kBF16, {0, 1.0 / 128});
  EXPECT_TRUE(near(rms_norm(narrow, {2}), {0, 1.0 / 128 / std::sqrt(0.5 / 16384 + eps)}, tolerance(kBF16)));
}

TEST(norm, empty_inputs_give_empty_results_and_zero_gradients) {
  const Tensor x = empty({0, 3}).requires_grad_(), weight = tensor_of({3}, kF32, {1, 2, 3}).requires_grad_();
  const Tensor y = layer_norm(x, {3}, weight);
  EXPECT_EQ(y.sizes(), (Dims{0, 3}));
  y.backward(empty({0, 3}));
  EXPECT_EQ(elements(weight.grad()), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(rms_norm(empty({2, 0}), {0}).sizes(), (Dims{2, 0}));
}

TEST(norm, results_and_gradients_do_not_depend_on_the_number_of_threads) {
  const Tensor x = sample({517, 65}, kF32, 10).requires_grad_(), weight = sample({65}, kF32, 11).requires_grad_(),
               bias = sample({65}, kF32, 12).requires_grad_();
  const Tensor grad = sample({517, 65}, kF32, 13);
  expect_same_for_all_thread_counts([&] {
    const Tensor y = layer_norm(x, {65}, weight, bias), z = rms_norm(x, {65}, weight);
    std::vector<Tensor> out = autograd::grad({y}, {x, weight, bias}, {grad});
    for (const Tensor& g : autograd::grad({z}, {x, weight}, {grad})) out.push_back(g);
    out.push_back(y);
    out.push_back(z);
    return out;
  });
}

TEST(norm, wrong_arguments_are_refused_with_the_operands_named) {
  const Tensor x = sample({2, 3}, kF32, 1);
  expect_error<ShapeError>(
      [&] { layer_norm(x, {2}); },
      "layer_norm: normalized_shape is not x's last sizes; got [2, 3] f32 cpu, normalized_shape [2]");
  expect_error<ShapeError>([&] { layer_norm(x, Dims()); }, "layer_norm: normalized_shape is not x's last sizes");
  expect_error<ShapeError>([&] { rms_norm(x, {3}, sample({2}, kF32, 1)); },
                           "rms_norm: weight has other sizes than normalized_shape; got [2] f32 cpu");
  expect_error<DTypeError>([&] { layer_norm(x, {3}, {}, sample({3}, kF64, 1)); },
                           "layer_norm: bias has another dtype than x; got [3] f64 cpu");
  expect_error<DTypeError>([&] { rms_norm(sample({3}, kI64, 1), {3}); }, "rms_norm: the input is not floating");
}

}  // namespace
}  // namespace lorry::test
