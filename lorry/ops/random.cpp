#include "lorry/ops/random.h"

#include <cmath>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/door.h"
#include "lorry/ops/out.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

formula::RandomKey next_key(Generator* generator) { return (generator != nullptr ? *generator : default_generator()).next(); }

const kernels::RandomKernels& kernels_of(const Tensor& x, const char* where) { return *backend(x, where).random; }

void require_floating(DType dtype, const char* where) {
  require_dtype(dtype, where);
  require<DTypeError>(is_floating(dtype), "{}: dtype is not floating; got {}; expected f16, bf16, f32 or f64", where, dtype);
}

void require_probability(double p, const char* where) { require<ValueError>(p >= 0 && p <= 1, "{}: not a probability; got p = {}; expected 0 to 1", where, p); }

/// The largest whole number up to which every one is a value of the dtype.
int64_t largest(DType dtype) {
  switch (dtype) {
    case kBool:
      return 1;
    case kU8:
      return 255;
    case kI8:
      return 127;
    case kI16:
      return 32767;
    case kI32:
      return 2147483647;
    case kI64:
      return INT64_MAX;
    case kF16:
      return 1 << 11;
    case kBF16:
      return 1 << 8;
    case kF32:
      return 1 << 24;
    default:
      return int64_t{1} << 53;
  }
}

int64_t smallest(DType dtype) {
  if (dtype == kBool || dtype == kU8) return 0;
  return is_integral(dtype) ? -largest(dtype) - 1 : -largest(dtype);
}

void require_range(int64_t low, int64_t high, DType dtype, const char* where) {
  require_dtype(dtype, where);
  require<ValueError>(low < high, "{}: empty range; got low {} and high {}; expected low < high", where, low, high);
  require<ValueError>(low >= smallest(dtype) && high - 1 <= largest(dtype), "{}: range does not fit {}; got {} to {}; expected values from {} to {}", where,
                      dtype, low, high - 1, smallest(dtype), largest(dtype));
}

uint64_t width(int64_t low, int64_t high) { return static_cast<uint64_t>(high) - static_cast<uint64_t>(low); }

/// Fills x through a kernel that wants it row-major: directly, or by way of a copy. An element's value depends on its index alone.
template <class Fill>
void fill_random(const Tensor& x, const Fill& fill) {
  if (x.is_contiguous()) return fill(x);
  const Tensor row_major = empty(x.sizes(), x.options());
  fill(row_major);
  x.copy_(row_major);
}

}  // namespace

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }

Tensor rand(const Dims& sizes, const Options& options, Generator* generator) {
  require_floating(options.dtype, "rand");
  return door::call(
      Op::rand, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out, "rand").uniform(array(out), next_key(generator), 0, 1, current_stream(options.device));
        return out;
      },
      sizes);
}

Tensor randn(const Dims& sizes, const Options& options, Generator* generator) {
  require_floating(options.dtype, "randn");
  return door::call(
      Op::randn, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out, "randn").normal(array(out), next_key(generator), 0, 1, current_stream(options.device));
        return out;
      },
      sizes);
}

Tensor randint(int64_t low, int64_t high, const Dims& sizes, const Options& options, Generator* generator) {
  require_range(low, high, options.dtype, "randint");
  return door::call(
      Op::randint, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out, "randint").integers(array(out), next_key(generator), low, width(low, high), current_stream(options.device));
        return out;
      },
      low, high, sizes);
}

Tensor randint(int64_t high, const Dims& sizes, const Options& options, Generator* generator) { return randint(0, high, sizes, options, generator); }

namespace {
Options options_like(const Tensor& x, std::optional<DType> dtype, const char* where) {
  require_defined(x, where, "x");
  return {dtype.value_or(x.dtype()), x.device()};
}
}  // namespace

Tensor rand_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  const Options options = options_like(x, dtype, "rand_like");
  return rand(x.sizes(), options, generator);
}
Tensor randn_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  const Options options = options_like(x, dtype, "randn_like");
  return randn(x.sizes(), options, generator);
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, std::optional<DType> dtype, Generator* generator) {
  const Options options = options_like(x, dtype, "randint_like");
  return randint(low, high, x.sizes(), options, generator);
}
Tensor randint_like(const Tensor& x, int64_t high, std::optional<DType> dtype, Generator* generator) { return randint_like(x, 0, high, dtype, generator); }

Tensor randperm(int64_t n, Device device, Generator* generator) {
  require<ValueError>(n >= 0, "randperm: negative count; got {}", n);
  return door::call(
      Op::randperm, {},
      [&] {
        const Tensor out = empty({n}, {kI64, device});
        kernels_of(out, "randperm").permutation(array(out), next_key(generator), current_stream(device));
        return out;
      },
      n);
}

Tensor bernoulli(const Tensor& p, Generator* generator) {
  require_defined(p, "bernoulli", "p");
  require_floating(p.dtype(), "bernoulli");
  return door::call(Op::bernoulli, {&p}, [&] {
    const Tensor out = empty(p.sizes(), p.options()), chances = p.contiguous();
    const bool inside = kernels_of(out, "bernoulli").bernoulli_each(array(out), array(chances), next_key(generator), current_stream(p.device()));
    require<ValueError>(inside, "bernoulli: a probability is outside 0 to 1; got p: {}", p);
    return out;
  });
}

Tensor bernoulli(const Tensor& x, double p, Generator* generator) {
  require_defined(x, "bernoulli", "x");
  return empty(x.sizes(), x.options()).bernoulli_(p, generator);
}

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, Generator* generator) {
  require_defined(weights, "multinomial", "weights");
  require_floating(weights.dtype(), "multinomial");
  require<ShapeError>((weights.dim() == 1 || weights.dim() == 2) && weights.size(-1) > 0,
                      "multinomial: weights must be a vector or a matrix with columns; got {}", weights);
  require<ValueError>(samples > 0, "multinomial: the number of samples must be positive; got {}", samples);
  return door::call(
      Op::multinomial, {&weights},
      [&] {
        const Tensor rows = reshape(weights.to(kF64), {weights.dim() == 1 ? 1 : weights.size(0), weights.size(-1)}).contiguous();
        const Tensor out = empty({rows.size(0), samples}, {kI64, weights.device()});
        if (rows.numel() > 0) {
          require<ValueError>(rows.ge(0).logical_and(rows.lt(HUGE_VAL)).all().item<bool>(),
                              "multinomial: a weight is negative, infinite or NaN; got weights: {}", weights);
          const int64_t choices = rows.gt(0).to(kI64).sum({1}).min().item<int64_t>();
          require<ValueError>(choices >= (replacement ? 1 : samples), "multinomial: a row has too few positive weights; got {} for {} samples {} replacement",
                              choices, samples, replacement ? "with" : "without");
          kernels_of(out, "multinomial").multinomial(array(out), array(rows), replacement, next_key(generator), current_stream(weights.device()));
        }
        return weights.dim() == 1 ? door::owning(squeeze(out, 0)) : out;
      },
      samples, replacement);
}

// ---- normal with tensors, and out=
// -----------------------------------------------------------------------------------

namespace {

/// z std + mean, with z drawn for every element.
Tensor spread(const Dims& sizes, DType dtype, Device device, const Operand& mean, const Operand& std,
              Generator* generator) {
  if (std.tensor() != nullptr) {
    require_floating(std.tensor()->dtype(), "normal");
    require<ValueError>(std.tensor()->numel() == 0 || std.tensor()->ge(0).all().item<bool>(),
                        "normal: standard deviation must not be negative; got std: {}", *std.tensor());
  } else {
    require<ValueError>(std.scalar().to<double>() >= 0, "normal: standard deviation must not be negative; got {}",
                        std.scalar().to<double>());
  }
  if (mean.tensor() != nullptr) require_floating(mean.tensor()->dtype(), "normal");
  return randn(sizes, {dtype, device}, generator).mul_(std).add_(mean);
}

}  // namespace

Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator) {
  require_defined(mean, "normal", "mean");
  require_defined(std, "normal", "std");
  require_same_device(mean, std, "normal");
  return spread(broadcast(mean.sizes(), std.sizes(), "normal"), mean.dtype(), mean.device(), mean.detach(),
                std.detach(), generator);
}
Tensor normal(const Tensor& mean, double std, Generator* generator) {
  require_defined(mean, "normal", "mean");
  return spread(mean.sizes(), mean.dtype(), mean.device(), mean.detach(), std, generator);
}
Tensor normal(double mean, const Tensor& std, Generator* generator) {
  require_defined(std, "normal", "std");
  return spread(std.sizes(), std.dtype(), std.device(), mean, std.detach(), generator);
}
Tensor normal(double mean, double std, const Dims& sizes, const Options& options, Generator* generator) {
  return empty(sizes, options).normal_(mean, std, generator);
}

const Tensor& rand_out(const Tensor& out, const Dims& sizes, Generator* generator) {
  require_defined(out, "rand", "out");
  return write_out(out, rand(sizes, out.options(), generator), "rand");
}
const Tensor& randn_out(const Tensor& out, const Dims& sizes, Generator* generator) {
  require_defined(out, "randn", "out");
  return write_out(out, randn(sizes, out.options(), generator), "randn");
}
const Tensor& randint_out(const Tensor& out, int64_t low, int64_t high, const Dims& sizes, Generator* generator) {
  require_defined(out, "randint", "out");
  return write_out(out, randint(low, high, sizes, out.options(), generator), "randint");
}
const Tensor& randint_out(const Tensor& out, int64_t high, const Dims& sizes, Generator* generator) {
  return randint_out(out, 0, high, sizes, generator);
}
const Tensor& randperm_out(const Tensor& out, int64_t n, Generator* generator) {
  require_defined(out, "randperm", "out");
  return write_out(out, randperm(n, out.device(), generator), "randperm");
}
const Tensor& normal_out(const Tensor& out, const Tensor& mean, const Tensor& std, Generator* generator) {
  return write_out(out, normal(mean, std, generator), "normal");
}
const Tensor& normal_out(const Tensor& out, const Tensor& mean, double std, Generator* generator) {
  return write_out(out, normal(mean, std, generator), "normal");
}
const Tensor& normal_out(const Tensor& out, double mean, const Tensor& std, Generator* generator) {
  return write_out(out, normal(mean, std, generator), "normal");
}
const Tensor& normal_out(const Tensor& out, double mean, double std, const Dims& sizes, Generator* generator) {
  require_defined(out, "normal", "out");
  return write_out(out, normal(mean, std, sizes, out.options(), generator), "normal");
}
const Tensor& bernoulli_out(const Tensor& out, const Tensor& p, Generator* generator) {
  return write_out(out, bernoulli(p, generator), "bernoulli");
}
const Tensor& multinomial_out(const Tensor& out, const Tensor& weights, int64_t samples, bool replacement,
                              Generator* generator) {
  return write_out(out, multinomial(weights, samples, replacement, generator), "multinomial");
}

const Tensor& Tensor::uniform_(double low, double high, Generator* generator) const {
  require_defined(*this, "uniform", "self");
  require_floating(dtype(), "uniform");
  require<ValueError>(low <= high && std::isfinite(high - low), "uniform: not a range; got low {} and high {}", low, high);
  return door::call_in_place(
      Op::uniform, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) { kernels_of(x, "uniform").uniform(array(x), next_key(generator), low, high, current_stream(x.device())); });
      },
      low, high);
}

const Tensor& Tensor::normal_(double mean, double std, Generator* generator) const {
  require_defined(*this, "normal", "self");
  require_floating(dtype(), "normal");
  require<ValueError>(std >= 0, "normal: standard deviation must not be negative; got {}", std);
  return door::call_in_place(
      Op::normal, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) { kernels_of(x, "normal").normal(array(x), next_key(generator), mean, std, current_stream(x.device())); });
      },
      mean, std);
}

const Tensor& Tensor::bernoulli_(double p, Generator* generator) const {
  require_defined(*this, "bernoulli", "self");
  require_probability(p, "bernoulli");
  return door::call_in_place(
      Op::coin, *this, {},
      [&] { fill_random(*this, [&](const Tensor& x) { kernels_of(x, "bernoulli").bernoulli(array(x), next_key(generator), p, current_stream(x.device())); }); },
      p);
}

const Tensor& Tensor::random_(int64_t low, int64_t high, Generator* generator) const {
  require_defined(*this, "random", "self");
  require_range(low, high, dtype(), "random");
  return door::call_in_place(
      Op::random, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) {
          kernels_of(x, "random").integers(array(x), next_key(generator), low, width(low, high), current_stream(x.device()));
        });
      },
      low, high);
}

Tensor Tensor::bernoulli(Generator* generator) const { return lorry::bernoulli(*this, generator); }
Tensor Tensor::multinomial(int64_t samples, bool replacement, Generator* generator) const { return lorry::multinomial(*this, samples, replacement, generator); }

}  // namespace lorry
