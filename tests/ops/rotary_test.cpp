#include "lorry/ops/rotary.h"

#include <cmath>
#include <complex>

#include "lorry/autograd/engine.h"
#include "lorry/autograd/grad_mode.h"
#include "lorry/base/events.h"
#include "lorry/formula/rotary.h"
#include "lorry/ops/ops.h"
#include "tests/ops/samples.h"
#include "tests/support/dtypes.h"
#include "tests/support/gradcheck.h"
#include "tests/support/on_cuda.h"

namespace lorry::test {
namespace {

/// The largest relative error of one rounding.
double rounding(DType t) { return t == kF64 ? 0x1p-53 : t == kF32 ? 0x1p-24 : t == kF16 ? 0x1p-11 : 0x1p-8; }
DType computed_in(DType t) { return t == kF64 ? kF64 : kF32; }

/// The tables of any angles, here some that grow unevenly: [t, half], of the type in which `dtype` is computed.
struct Tables {
  Tables(int64_t t, int64_t half, DType dtype) : cos(empty({t, half}, {computed_in(dtype)})), sin(empty_like(cos)) {
    for (int64_t i = 0; i < t * half; ++i) {
      const double angle = 0.3 + 1.7 * static_cast<double>(i);
      set_element(cos, i, std::cos(angle));
      set_element(sin, i, std::sin(angle));
    }
  }
  Tensor cos, sin;
};

/// x by the definition, in double: element i of its row-major order.
std::vector<std::complex<double>> turned(const Tensor& x, const Tables& by, int64_t heads, bool inverse) {
  const int64_t t = x.size(-3), h = x.size(-2), d = x.size(-1), half = d / 2;
  const std::vector<double> v = elements(x), cos = elements(by.cos), sin = elements(by.sin);
  std::vector<std::complex<double>> out(v.size());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const int64_t k = i % d, head = i / d % h, position = i / d / h % t, first = k < half ? i : i - half;
    const auto angle = static_cast<size_t>(position * half + k % half);
    const std::complex<double> pair(v[static_cast<size_t>(first)], v[static_cast<size_t>(first + half)]);
    const std::complex<double> by_angle(cos[angle], inverse ? -sin[angle] : sin[angle]);
    const std::complex<double> result = head < heads ? pair * by_angle : pair;
    out[static_cast<size_t>(i)] = {k < half ? result.real() : result.imag(), std::abs(pair)};
  }
  return out;
}

/// Two roundings of products and one of their sum, in the type of computation, and one of the result.
testing::AssertionResult is_turned(const Tensor& got, const Tensor& x, const Tables& by, int64_t heads, bool inverse) {
  if (got.sizes() != x.sizes() || got.dtype() != x.dtype() || !got.is_contiguous() || got.is_view())
    return testing::AssertionFailure() << describe(got);
  const auto want = turned(x, by, heads, inverse);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double value = want[static_cast<size_t>(i)].real(), size = want[static_cast<size_t>(i)].imag();
    const double computed = 3 * rounding(computed_in(x.dtype())) * size;
    const double stored = is_floating(x.dtype()) && size_of(x.dtype()) == 2 ? rounding(x.dtype()) : 0;
    const double allowed = computed + stored * (std::fabs(value) + computed);
    if (!(std::fabs(element(got, i) - value) <= allowed + (x.dtype() == kF16 ? 0x1p-25 : 0)))
      return testing::AssertionFailure() << "element " << i << " is " << element(got, i) << " instead of " << value;
  }
  return testing::AssertionSuccess();
}

struct Shape {
  Dims sizes;
  std::vector<int64_t> heads;
};
const Shape kShapes[] = {
    {{1, 1, 2}, {0, 1}},      {{3, 2, 6}, {0, 1, 2}},          {{2, 5, 3, 10}, {0, 2, 3}}, {{2, 3, 6, 32}, {0, 4, 6}},
    {{1, 4, 9, 34}, {5, 9}},  {{2, 2, 3, 5, 66}, {1, 5}},      {{2, 7, 12, 64}, {8, 12}},  {{1, 2, 3, 128}, {2, 3}},
    {{1, 2, 3, 80}, {2}},     {{2, 1, 2, 1, 3, 2, 8}, {1, 2}}, {{1, 1, 2, 5000}, {1}},     {{2, 300, 1, 4}, {0, 1}},
    {{1, 2, 300, 24}, {200}},
};

TEST(Rotary, turns_pairs_as_complex_numbers_and_rounds_once) {
  for (const Shape& shape : kShapes)
    for (const DType dtype : kFloatingDTypes) {
      const Tensor x = sample(shape.sizes, dtype, 1);
      const Tables by(x.size(-3), x.size(-1) / 2, dtype);
      for (const int64_t heads : shape.heads)
        for (const bool inverse : {false, true})
          EXPECT_TRUE(is_turned(rotary(x, by.cos, by.sin, heads, inverse), x, by, heads, inverse))
              << describe(x) << " " << heads;
      EXPECT_TRUE(is_turned(rotary(x, by.cos, by.sin), x, by, x.size(-2), false)) << describe(x);
    }
}

TEST(Rotary, gives_the_bits_of_the_formula) {
  const auto check = [&]<class T>(Type<T>) {
    const Tensor x = sample({2, 3, 4, 70}, dtype_of<T>, 2);
    const Tables by(3, 35, dtype_of<T>);
    const Tensor got = rotary(x, by.cos, by.sin, 3);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t k = i % 70, pair = i - (k < 35 ? 0 : 35), angle = i / 280 % 3 * 35 + k % 35;
      auto a = static_cast<T>(element(x, pair)), b = static_cast<T>(element(x, pair + 35));
      if (i / 70 % 4 < 3)
        formula::Rotary()(a, b, static_cast<T>(element(by.cos, angle)), static_cast<T>(element(by.sin, angle)));
      ASSERT_EQ(element(got, i), static_cast<double>(k < 35 ? a : b)) << i;
    }
  };
  check(Type<float>{});
  check(Type<double>{});
}

TEST(Rotary, gives_the_same_bits_on_the_cpu_and_on_a_gpu) {
  LORRY_SKIP_WITHOUT_CUDA();
  for (const Shape& shape : kShapes)
    for (const DType dtype : kFloatingDTypes) {
      const Tensor x = sample(shape.sizes, dtype, 3).to(kCPU);
      const Tables by(x.size(-3), x.size(-1) / 2, dtype);
      const auto on = [&](Device device) {
        return rotary(x.to(device), by.cos.to(device), by.sin.to(device), shape.heads.back()).to(kCPU);
      };
      EXPECT_TRUE(same_bits(on(kCPU), on(kGPU))) << describe(x);
    }
}

TEST(Rotary, copies_the_other_heads_to_the_bit) {
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = sample({2, 3, 5, 6}, dtype, 4);
    // A NaN with a payload, which arithmetic would quieten.
    const uint64_t bits = dtype == kF64   ? 0x7ff0000000000123u
                          : dtype == kF32 ? 0x7f800123u
                          : dtype == kF16 ? 0x7c23u
                                          : 0x7f93u;
    for (int64_t i = 0; i < x.numel(); i += 6) write_element(x, i, &bits);
    const Tables by(3, 3, dtype);
    const Tensor y = rotary(x, by.cos, by.sin, 2);
    EXPECT_EQ(bytes_of(y.narrow(2, 2, 3).contiguous()), bytes_of(x.narrow(2, 2, 3).contiguous())) << name(dtype);
    EXPECT_EQ(bytes_of(rotary(x, by.cos, by.sin, 0)), bytes_of(x)) << name(dtype);
  }
}

/// How often `f` copies an operand.
template <class F>
int copies_of(const F& f) {
  int copies = 0;
  const events::Handler before = events::set_handler([&](const events::Event& event) {
    if (event.kind == events::Kind::hidden_copy) copies += 1;
  });
  f();
  events::set_handler(before);
  return copies;
}

TEST(Rotary, reads_strided_heads_where_they_lie) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t d : {6, 16}) {
      const Tables by(4, d / 2, dtype);
      const auto turns = [&](const Tensor& x, int copies) {
        Tensor y;
        EXPECT_EQ(copies_of([&] { y = rotary(x, by.cos, by.sin, 2); }), copies) << to_string(x.strides());
        EXPECT_TRUE(is_turned(y, x, by, 2, false)) << describe(x) << " of strides " << to_string(x.strides());
      };
      const Tensor packed = sample({2, 4, 9 * d}, dtype, 5);
      turns(packed.view({2, 4, 9, d}), 0);
      turns(packed.narrow(2, 3 * d, 3 * d).unflatten(2, {3, d}), 0);                  // the keys of a packed tensor
      turns(packed.narrow(2, 3, 6 * d).unflatten(2, {3, 2 * d}).narrow(3, 1, d), 0);  // heads apart, starts uneven
      turns(sample({2, 3, 4, d}, dtype, 6).transpose(1, 2), 0);                       // heads before positions
      turns(sample({4, 3, d}, dtype, 7).unsqueeze(0).expand({5, 4, 3, d}), 0);        // one sequence, five times
      turns(sample({2, 6, 4, 3, d}, dtype, 8).slice(1, {}, {}, 3), 0);  // leading dimensions of one stride
      turns(sample({3, 2, 4, 3, d}, dtype, 8).slice(1, 1, 2), 0);
      turns(sample({3, 4, 4, 3, d}, dtype, 8).slice(1, {}, 3), 1);  // of two
      turns(sample({2, 4, d, 3}, dtype, 9).transpose(2, 3), 1);     // coordinates with gaps
    }
}

TEST(Rotary, takes_tables_of_any_strides_and_parts_of_longer_ones) {
  for (const DType dtype : kFloatingDTypes)
    for (const int64_t half : {3, 4, 8}) {
      const Tables all(9, half, dtype);
      const Tensor x = sample({2, 4, 3, 2 * half}, dtype, 10);
      for (const int64_t first : {0, 1, 5}) {
        Tables part = all;
        part.cos = all.cos.narrow(0, first, 4), part.sin = all.sin.narrow(0, first, 4);
        EXPECT_TRUE(is_turned(rotary(x, part.cos, part.sin), x, part, 3, false)) << first;
        Tables turned_round = part;
        turned_round.cos = part.cos.t().contiguous().t();
        EXPECT_TRUE(same_bits(rotary(x, turned_round.cos, part.sin), rotary(x, part.cos, part.sin)));
      }
    }
}

TEST(Rotary, the_inverse_is_the_rotation_by_negated_sines_and_brings_back) {
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = sample({2, 3, 4, 10}, dtype, 11);
    const Tables by(3, 5, dtype);
    EXPECT_TRUE(same_bits(rotary(x, by.cos, by.sin, 3, true), rotary(x, by.cos, by.sin.neg(), 3)));
    const Tensor back = rotary(rotary(x, by.cos, by.sin, 3), by.cos, by.sin, 3, true);
    EXPECT_TRUE(near(back, elements(x), 4 * rounding(dtype) + 4 * rounding(computed_in(dtype))));
  }
}

TEST(Rotary, gradients_agree_with_central_differences_twice) {
  const Tables by(3, 3, kF64);
  for (const int64_t heads : {0, 2, 4})
    for (const bool inverse : {false, true})
      for (const bool strided : {false, true}) {
        const Tensor x = randn(strided ? Dims{2, 4, 3, 6} : Dims{2, 3, 4, 6}, {kF64}).requires_grad_();
        const Function f = [&](const std::vector<Tensor>& v) {
          const Tensor y = rotary(strided ? v[0].transpose(1, 2) : v[0], by.cos, by.sin, heads, inverse);
          return y.square() * y;
        };
        EXPECT_TRUE(gradcheck(f, {x}));
        EXPECT_TRUE(gradgradcheck(f, {x}, {.relative = 1e-4, .absolute = 1e-6}));
      }
}

TEST(Rotary, the_gradient_is_the_gradient_turned_back) {
  for (const DType dtype : kFloatingDTypes) {
    const Tensor x = sample({2, 3, 4, 10}, dtype, 12).requires_grad_(), grad = sample({2, 3, 4, 10}, dtype, 13);
    const Tables by(3, 5, dtype);
    const Tensor y = rotary(x, by.cos, by.sin, 3);
    EXPECT_EQ(y.grad_fn(), "rotary");
    y.backward(grad);
    EXPECT_TRUE(same_bits(x.grad(), rotary(grad, by.cos, by.sin, 3, true))) << name(dtype);
  }
}

TEST(Rotary, tables_that_require_a_gradient_are_refused_while_gradients_are_recorded) {
  const Tensor x = sample({3, 2, 4}, kF32, 14);
  for (const int which : {0, 1}) {
    const Tables by(3, 2, kF32);
    (which == 0 ? by.cos : by.sin).requires_grad_();
    expect_error<GradError>([&] { rotary(x, by.cos, by.sin); }, std::string("rotary: ") + (which == 0 ? "cos" : "sin") +
                                                                    " requires a gradient, and tables get none");
    const NoGrad quiet;
    EXPECT_NO_THROW(rotary(x, by.cos, by.sin));
  }
}

TEST(Rotary, takes_tensors_without_elements) {
  for (const Dims& sizes : {Dims{0, 3, 2, 4}, Dims{2, 0, 2, 4}, Dims{2, 3, 0, 4}, Dims{2, 3, 2, 0}, Dims{0, 0, 0}}) {
    const Tensor x = empty(sizes, {kF32}).requires_grad_();
    const Tables by(x.size(-3), x.size(-1) / 2, kF32);
    const Tensor y = rotary(x, by.cos, by.sin);
    EXPECT_EQ(y.sizes(), sizes);
    y.sum().backward();
    EXPECT_EQ(x.grad().sizes(), sizes);
    EXPECT_EQ(rotary(x, by.cos, by.sin, 0).sizes(), sizes);
  }
}

TEST(Rotary, does_not_depend_on_the_number_of_threads) {
  expect_same_for_all_thread_counts([] {
    std::vector<Tensor> results;
    for (const DType dtype : kFloatingDTypes) {
      const Tensor x = sample({3, 70, 6, 32}, dtype, 15);
      const Tables by(70, 16, dtype);
      results.push_back(rotary(x, by.cos, by.sin, 4));
    }
    return results;
  });
}

TEST(Rotary, wrong_arguments_are_refused_with_the_operands_named) {
  const Tensor x = sample({2, 3, 4, 6}, kF32, 16);
  const Tables by(3, 3, kF32), wide(3, 3, kF64), longer(4, 3, kF32), narrow(3, 2, kF32);
  const auto refuses = [&]<class E>(Type<E>, const std::string& text, const Tensor& what, const Tensor& cos,
                                    const Tensor& sin, std::optional<int64_t> heads = {}) {
    expect_error<E>([&] { rotary(what, cos, sin, heads); }, text);
  };
  refuses(Type<DTypeError>{}, "rotary: x is not floating; got [2, 3, 4, 6] i64 cpu", x.to(kI64), by.cos, by.sin);
  refuses(Type<ShapeError>{}, "rotary: x has too few dimensions; got [4, 6] f32 cpu; expected [..., t, heads, d]",
          x[0][0], by.cos, by.sin);
  refuses(Type<ShapeError>{}, "rotary: the coordinates of a head make no pairs; got [2, 3, 4, 5] f32 cpu",
          x.narrow(3, 0, 5), by.cos, by.sin);
  refuses(Type<ShapeError>{},
          "rotary: cos does not fit x; got [4, 3] f32 cpu for x: [2, 3, 4, 6] f32 cpu; expected "
          "[t, d / 2], which is [3, 3]",
          x, longer.cos, by.sin);
  refuses(Type<ShapeError>{}, "rotary: sin does not fit x; got [3, 2] f32 cpu", x, by.cos, narrow.sin);
  refuses(Type<ShapeError>{}, "rotary: cos does not fit x; got [3, 1, 3] f32 cpu", x, by.cos.unsqueeze(1), by.sin);
  refuses(Type<DTypeError>{},
          "rotary: cos has another dtype; got [3, 3] f64 cpu for x: [2, 3, 4, 6] f32 cpu; expected f32", x, wide.cos,
          wide.sin);
  refuses(Type<DTypeError>{},
          "rotary: sin has another dtype; got [3, 3] f32 cpu for x: [2, 3, 4, 6] f64 cpu; expected f64", x.to(kF64),
          wide.cos, by.sin);
  refuses(Type<ValueError>{}, "rotary: heads out of range; got 5 for x: [2, 3, 4, 6] f32 cpu; expected 0 to 4", x,
          by.cos, by.sin, 5);
  refuses(Type<ValueError>{}, "rotary: heads out of range; got -1", x, by.cos, by.sin, -1);
  refuses(Type<ValueError>{}, "rotary: sin is an undefined tensor", x, by.cos, Tensor());
}

}  // namespace
}  // namespace lorry::test
