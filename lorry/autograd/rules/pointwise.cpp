// The derivatives of the pointwise operators. Where a function has no derivative at a point, the value is PyTorch's: 0
// for abs and relu at 0, half each for a tie of maximum and minimum, 1 for clamp at its bounds.

#include <numbers>

#include "lorry/autograd/grad_mode.h"
#include "lorry/autograd/rules.h"
#include "lorry/ops/internal.h"
#include "lorry/ops/ops.h"

namespace lorry::autograd {
namespace {

/// The gradient of input i: `gradient()` summed over what was broadcast; undefined if it is not needed.
template <class F>
Tensor of(const Call& c, int i, F&& gradient) {
  return c.needs(i) ? sum_to_size(gradient(), c.sizes(i)) : Tensor();
}

Tensor zeros_like_input(const Call& c, int i) {
  return c.needs(i) ? empty(c.sizes(i), c.options(i)).fill_(0) : Tensor();
}

/// For steps: the derivative is 0 wherever it exists.
Grads zero(const Call& c, const Grads&) {
  Grads grads;
  for (int i = 0; i < c.inputs(); ++i) grads.push_back(zeros_like_input(c, i));
  return grads;
}

/// The gradient where the mask holds, else 0.
Tensor keep(const Tensor& mask, const Tensor& g) { return where(mask, g, 0); }

Tensor gelu_slope(const Tensor& x) {
  const Tensor cdf = 0.5 * (1 + erf(x * (1 / std::numbers::sqrt2)));
  return cdf + x * (exp(-0.5 * x * x) * (0.5 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi));
}
/// Of x sigmoid(2 u), with u = sqrt(2 / pi) (x + 0.044715 x^3).
Tensor gelu_tanh_slope(const Tensor& x) {
  constexpr double kTwiceRoot = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Tensor square = x * x, gate = sigmoid(kTwiceRoot * x * (1 + 0.044715 * square));
  return gate + x * gate * (1 - gate) * (kTwiceRoot * (1 + 3 * 0.044715 * square));
}
Tensor silu_slope(const Tensor& x) {
  const Tensor gate = sigmoid(x);
  return gate * (1 + x * (1 - gate));
}

constexpr double kLn2 = std::numbers::ln2, kLn10 = std::numbers::ln10;

// clang-format off
constexpr Rule kRules[] = {
    // ---- one operand ------------------------------------------------------------------------------------------------
    {Op::abs, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * sign(c.input(0))}; }},
    {Op::neg, kNothing, [](const Call&, const Grads& g) -> Grads { return {-g[0]}; }},
    {Op::sign, kNothing, zero},
    {Op::square, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * (2 * c.input(0))}; }},
    {Op::reciprocal, kOutput0, [](const Call& c, const Grads& g) -> Grads {
        return {-g[0] * (c.output() * c.output())}; }},
    {Op::sqrt, kOutput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / (2 * c.output())}; }},
    {Op::rsqrt, kOutput0, [](const Call& c, const Grads& g) -> Grads {
        const Tensor y = c.output(); return {-0.5 * g[0] * (y * y * y)}; }},
    {Op::floor, kNothing, zero},
    {Op::ceil, kNothing, zero},
    {Op::round, kNothing, zero},
    {Op::trunc, kNothing, zero},
    {Op::frac, kNothing, [](const Call&, const Grads& g) -> Grads { return {g[0]}; }},
    {Op::exp, kOutput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * c.output()}; }},
    {Op::exp2, kOutput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * (c.output() * kLn2)}; }},
    {Op::expm1, kOutput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * (c.output() + 1)}; }},
    {Op::log, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / c.input(0)}; }},
    {Op::log1p, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / (c.input(0) + 1)}; }},
    {Op::log2, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / (c.input(0) * kLn2)}; }},
    {Op::log10, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / (c.input(0) * kLn10)}; }},
    {Op::sin, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * cos(c.input(0))}; }},
    {Op::cos, kInput0, [](const Call& c, const Grads& g) -> Grads { return {-g[0] * sin(c.input(0))}; }},
    {Op::tan, kOutput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * (1 + c.output() * c.output())}; }},
    {Op::asin, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * rsqrt(1 - square(c.input(0)))}; }},
    {Op::acos, kInput0, [](const Call& c, const Grads& g) -> Grads { return {-g[0] * rsqrt(1 - square(c.input(0)))}; }},
    {Op::atan, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] / (1 + square(c.input(0)))}; }},
    {Op::sinh, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * cosh(c.input(0))}; }},
    {Op::cosh, kInput0, [](const Call& c, const Grads& g) -> Grads { return {g[0] * sinh(c.input(0))}; }},
    {Op::erf, kInput0, [](const Call& c, const Grads& g) -> Grads {
        return {g[0] * (2 * std::numbers::inv_sqrtpi * exp(-square(c.input(0))))}; }},
    {Op::erfc, kInput0, [](const Call& c, const Grads& g) -> Grads {
        return {g[0] * (-2 * std::numbers::inv_sqrtpi * exp(-square(c.input(0))))}; }},

    // ---- activations: one pass while nothing is recorded, differentiable operators otherwise ------------------------
    {Op::tanh, kOutput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {tanh_backward(g[0], c.output())};
       return {g[0] * (1 - square(c.output()))};
     }},
    {Op::sigmoid, kOutput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {sigmoid_backward(g[0], c.output())};
       return {g[0] * (c.output() * (1 - c.output()))};
     }},
    {Op::relu, kOutput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {relu_backward(g[0], c.output())};
       return {where(le(c.output(), 0), 0, g[0])};
     }},
    {Op::gelu, kInput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {gelu_backward(g[0], c.input(0))};
       return {g[0] * gelu_slope(c.input(0))};
     }},
    {Op::gelu_tanh, kInput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {gelu_tanh_backward(g[0], c.input(0))};
       return {g[0] * gelu_tanh_slope(c.input(0))};
     }},
    {Op::silu, kInput0, [](const Call& c, const Grads& g) -> Grads {
       if (!grad_enabled()) return {silu_backward(g[0], c.input(0))};
       return {g[0] * silu_slope(c.input(0))};
     }},
    {Op::leaky_relu, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
        return {where(gt(c.input(0), 0), g[0], g[0] * c.input(1)), Tensor()}; }},
    {Op::elu, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0);
       // exp only where it is used: elsewhere it could overflow, and a second derivative would see 0 * inf.
       return {where(gt(x, 0), g[0], g[0] * (exp(clamp_max(x, 0)) * c.input(1))), Tensor()};
     }},
    {Op::softplus, kInputs, [](const Call& c, const Grads& g) -> Grads {
       const Tensor scaled = c.input(0) * c.input(1);
       return {where(gt(scaled, c.input(2)), g[0], g[0] * sigmoid(scaled)), Tensor(), Tensor()};
     }},
    {Op::nan_to_num, kInput0, [](const Call& c, const Grads& g) -> Grads {
        return {keep(isfinite(c.input(0)), g[0])}; }},

    // ---- two operands -----------------------------------------------------------------------------------------------
    {Op::add, kNothing, [](const Call& c, const Grads& g) -> Grads {
        return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return g[0]; })}; }},
    {Op::sub, kNothing, [](const Call& c, const Grads& g) -> Grads {
        return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return -g[0]; })}; }},
    {Op::mul, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0] * c.input(1); }), of(c, 1, [&] { return g[0] * c.input(0); })};
     }},
    {Op::div, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0] / c.input(1); }),
           of(c, 1, [&] { return -g[0] * (c.input(0) / c.input(1) / c.input(1)); })};
     }},
    {Op::floor_divide, kNothing, zero},
    {Op::trunc_divide, kNothing, zero},
    {Op::remainder, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return -g[0] * floor_divide(c.input(0), c.input(1)); })};
     }},
    {Op::fmod, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return -g[0] * trunc_divide(c.input(0), c.input(1)); })};
     }},
    {Op::pow, kInput0 | kInput1 | kOutput0, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), y = c.input(1);
       return {of(c, 0, [&] { return where(eq(y, 0), 0, g[0] * (y * pow(x, y - 1))); }),
               of(c, 1, [&] {
                 // 0^y is constant for y >= 0; its logarithm there must not reach the product.
                 const Tensor constant = logical_and(eq(x, 0), ge(y, 0));
                 return keep(logical_not(constant), g[0] * (c.output() * log(where(constant, 1, x.to(g[0].dtype())))));
               })};
     }},
    {Op::atan2, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor y = c.input(0).to(g[0].dtype()), x = c.input(1).to(g[0].dtype()), scaled = g[0] / (x * x + y * y);
       return {of(c, 0, [&] { return scaled * x; }), of(c, 1, [&] { return -scaled * y; })};
     }},
    {Op::maximum, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), y = c.input(1), shared = where(eq(x, y), g[0] * 0.5, g[0]);
       return {of(c, 0, [&] { return where(lt(x, y), 0, shared); }),
           of(c, 1, [&] { return where(gt(x, y), 0, shared); })};
     }},
    {Op::minimum, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), y = c.input(1), shared = where(eq(x, y), g[0] * 0.5, g[0]);
       return {of(c, 0, [&] { return where(gt(x, y), 0, shared); }),
           of(c, 1, [&] { return where(lt(x, y), 0, shared); })};
     }},
    {Op::fmax, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor first = logical_or(ge(c.input(0), c.input(1)), isnan(c.input(1)));
       return {of(c, 0, [&] { return where(first, g[0], 0); }), of(c, 1, [&] { return where(first, 0, g[0]); })};
     }},
    {Op::fmin, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor first = logical_or(le(c.input(0), c.input(1)), isnan(c.input(1)));
       return {of(c, 0, [&] { return where(first, g[0], 0); }), of(c, 1, [&] { return where(first, 0, g[0]); })};
     }},
    {Op::clamp_min, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), low = c.input(1);
       return {of(c, 0, [&] { return keep(ge(x, low), g[0]); }), of(c, 1, [&] { return keep(lt(x, low), g[0]); })};
     }},
    {Op::clamp_max, kInput0 | kInput1, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), high = c.input(1);
       return {of(c, 0, [&] { return keep(le(x, high), g[0]); }), of(c, 1, [&] { return keep(gt(x, high), g[0]); })};
     }},

    // ---- more operands ----------------------------------------------------------------------------------------------
    {Op::add_scaled, kInput2, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return g[0] * c.input(2); }), Tensor()};
     }},
    {Op::where, kInput0, [](const Call& c, const Grads& g) -> Grads {
       const Tensor condition = c.input(0);
       return {Tensor(), of(c, 1, [&] { return where(condition, g[0], 0); }),
           of(c, 2, [&] { return where(condition, 0, g[0]); })};
     }},
    {Op::clamp, kInputs, [](const Call& c, const Grads& g) -> Grads {
       const Tensor x = c.input(0), low = c.input(1), high = c.input(2);
       return {of(c, 0, [&] { return keep(logical_and(ge(x, low), le(x, high)), g[0]); }),
               of(c, 1, [&] { return keep(logical_and(lt(x, low), lt(low, high)), g[0]); }),
               of(c, 2, [&] { return keep(logical_or(gt(x, high), lt(high, low)), g[0]); })};
     }},
    {Op::lerp, kInputs, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0] * (1 - c.input(2)); }), of(c, 1, [&] { return g[0] * c.input(2); }),
               of(c, 2, [&] { return g[0] * (c.input(1) - c.input(0)); })};
     }},
    {Op::addcmul, kInput1 | kInput2 | kInput3, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return g[0] * (c.input(2) * c.input(3)); }),
               of(c, 2, [&] { return g[0] * (c.input(1) * c.input(3)); }), Tensor()};
     }},
    {Op::addcdiv, kInput1 | kInput2 | kInput3, [](const Call& c, const Grads& g) -> Grads {
       return {of(c, 0, [&] { return g[0]; }), of(c, 1, [&] { return g[0] * (c.input(3) / c.input(2)); }),
               of(c, 2, [&] { return -g[0] * (c.input(3) * c.input(1) / square(c.input(2))); }), Tensor()};
     }},

    // ---- copies -----------------------------------------------------------------------------------------------------
    {Op::copy, kNothing, [](const Call& c, const Grads& g) -> Grads {
        return {zeros_like_input(c, 0), of(c, 1, [&] { return g[0]; })}; }},
    {Op::fill, kNothing, [](const Call& c, const Grads& g) -> Grads {
        return {zeros_like_input(c, 0), of(c, 1, [&] { return g[0]; })}; }},
    {Op::cast, kNothing, [](const Call& c, const Grads& g) -> Grads { return {g[0].to(c.dtype(0))}; }},
    {Op::transfer, kNothing, [](const Call& c, const Grads& g) -> Grads { return {g[0].to(c.device(0))}; }},
    {Op::clone, kNothing, [](const Call&, const Grads& g) -> Grads { return {g[0]}; }},
};
// clang-format on

}  // namespace

std::span<const Rule> pointwise_rules() { return kRules; }

}  // namespace lorry::autograd
