#include "lorry/ops/random.h"

#include <cmath>
#include <limits>

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/dispatch/out.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/random_sequence.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/views.h"

namespace lorry {
namespace {

const kernels::RandomKernels& kernels_of(const Tensor& x) { return *backend(x).random; }

void require_floating(DType dtype) {
  require_dtype(dtype);
  require<DTypeError>(is_floating(dtype), "dtype is not floating; got {}; expected one of {}", dtype, kFloatingNames);
}

void require_probability(double p) {
  require<ValueError>(p >= 0 && p <= 1, "not a probability; got p = {}; expected 0 to 1", p);
}

/// The largest whole number up to which every one is a value of the dtype.
int64_t largest(DType dtype) {
  return visit(dtype, []<class T>(Type<T>) -> int64_t {
    using Limits = std::numeric_limits<T>;
    if constexpr (kFloatingType<T>)
      return int64_t{1} << Limits::digits;
    else
      return Limits::max();
  });
}

int64_t smallest(DType dtype) {
  return visit(dtype, [&]<class T>(Type<T>) -> int64_t {
    if constexpr (kFloatingType<T>)
      return -largest(dtype);
    else
      return std::numeric_limits<T>::min();
  });
}

void require_range(int64_t low, int64_t high, DType dtype) {
  require_dtype(dtype);
  require<ValueError>(low < high, "empty range; got low {} and high {}; expected low < high", low, high);
  require<ValueError>(low >= smallest(dtype) && high - 1 <= largest(dtype),
                      "range does not fit {}; got {} to {}; expected values from {} to {}", dtype, low, high - 1,
                      smallest(dtype), largest(dtype));
}

uint64_t width(int64_t low, int64_t high) { return static_cast<uint64_t>(high) - static_cast<uint64_t>(low); }

/// Fills x through a kernel that wants it row-major: directly, or by way of a copy. An element's value depends on its
/// index alone.
template <class Fill>
void fill_random(const Tensor& x, const Fill& fill) {
  if (x.is_contiguous()) return fill(x);
  const Tensor row_major = empty(x.sizes(), x.options());
  fill(row_major);
  x.copy_(row_major);
}

}  // namespace

Tensor rand(const Dims& sizes, const Options& options, Generator* generator) {
  const Running running("rand");
  require_floating(options.dtype);
  const formula::RandomKey key = detail::next_key(generator, options.device);
  return door::call(
      Op::rand, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out).uniform(array(out), key, 0, 1, current_stream(options.device));
        return out;
      },
      sizes, options.dtype, options.device, key);
}

Tensor randn(const Dims& sizes, const Options& options, Generator* generator) {
  const Running running("randn");
  require_floating(options.dtype);
  const formula::RandomKey key = detail::next_key(generator, options.device);
  return door::call(
      Op::randn, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out).normal(array(out), key, 0, 1, current_stream(options.device));
        return out;
      },
      sizes, options.dtype, options.device, key);
}

Tensor randint(int64_t low, int64_t high, const Dims& sizes, const Options& options, Generator* generator) {
  const Running running("randint");
  require_range(low, high, options.dtype);
  const formula::RandomKey key = detail::next_key(generator, options.device);
  return door::call(
      Op::randint, {},
      [&] {
        const Tensor out = empty(sizes, options);
        kernels_of(out).integers(array(out), key, low, width(low, high), current_stream(options.device));
        return out;
      },
      low, high, sizes, options.dtype, options.device, key);
}

Tensor randint(int64_t high, const Dims& sizes, const Options& options, Generator* generator) {
  return randint(0, high, sizes, options, generator);
}

namespace {
Options options_like(const Tensor& x, std::optional<DType> dtype) {
  require_defined(x, "x");
  return {dtype.value_or(x.dtype()), x.device()};
}
}  // namespace

Tensor rand_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  const Running running("rand_like");
  const Options options = options_like(x, dtype);
  return rand(x.sizes(), options, generator);
}
Tensor randn_like(const Tensor& x, std::optional<DType> dtype, Generator* generator) {
  const Running running("randn_like");
  const Options options = options_like(x, dtype);
  return randn(x.sizes(), options, generator);
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, std::optional<DType> dtype, Generator* generator) {
  const Running running("randint_like");
  const Options options = options_like(x, dtype);
  return randint(low, high, x.sizes(), options, generator);
}
Tensor randint_like(const Tensor& x, int64_t high, std::optional<DType> dtype, Generator* generator) {
  return randint_like(x, 0, high, dtype, generator);
}

Tensor randperm(int64_t n, Device device, Generator* generator) {
  const Running running("randperm");
  require<ValueError>(n >= 0, "negative count; got {}", n);
  const formula::RandomKey key = detail::next_key(generator, device);
  return door::call(
      Op::randperm, {},
      [&] {
        const Tensor out = empty({n}, {kI64, device});
        kernels_of(out).permutation(array(out), key, current_stream(device));
        return out;
      },
      n, device, key);
}

Tensor bernoulli(const Tensor& p, Generator* generator) {
  const Running running("bernoulli");
  require_defined(p, "p");
  require_floating(p.dtype());
  const formula::RandomKey key = detail::next_key(generator, p.device());
  return door::call(
      Op::bernoulli, {&p},
      [&] {
        const Tensor out = empty(p.sizes(), p.options()), chances = p.contiguous();
        const bool inside = kernels_of(out).bernoulli_each(array(out), array(chances), key, current_stream(p.device()));
        require<ValueError>(inside, "a probability is outside 0 to 1; got p: {}", p);
        return out;
      },
      key);
}

Tensor bernoulli(const Tensor& x, double p, Generator* generator) {
  const Running running("bernoulli");
  require_defined(x, "x");
  return empty(x.sizes(), x.options()).bernoulli_(p, generator);
}

namespace {

/// Waits for the device, when all reductions are enqueued.
void require_weights(const Tensor& weights, int64_t samples, bool replacement) {
  const auto [least, greatest] = aminmax(weights);
  const Tensor fewest = count_nonzero(weights, {-1}).amin();
  require<ValueError>(least.item<double>() >= 0 && greatest.item<double>() < HUGE_VAL,  // false for NaN
                      "a weight is negative, infinite or NaN; got weights: {}", weights);
  const auto choices = fewest.item<int64_t>();
  require<ValueError>(choices >= (replacement ? 1 : samples),
                      "a row has too few positive weights; got {} for {} samples {} replacement", choices, samples,
                      replacement ? "with" : "without");
}

}  // namespace

Tensor multinomial(const Tensor& weights, int64_t samples, bool replacement, Generator* generator) {
  const Running running("multinomial");
  require_defined(weights, "weights");
  require_floating(weights.dtype());
  require<ShapeError>((weights.dim() == 1 || weights.dim() == 2) && weights.size(-1) > 0,
                      "weights must be a vector or a matrix with columns; got {}", weights);
  require<ValueError>(samples > 0, "the number of samples must be positive; got {}", samples);
  const formula::RandomKey key =
      weights.numel() > 0 ? detail::next_key(generator, weights.device()) : formula::RandomKey();
  return door::call(
      Op::multinomial, {&weights},
      [&] {
        const Tensor rows =
            reshape(weights.to(kF64), {weights.dim() == 1 ? 1 : weights.size(0), weights.size(-1)}).contiguous();
        const Tensor out = empty({rows.size(0), samples}, {kI64, weights.device()});
        if (rows.numel() > 0) {
          if (!rows.device().is_meta()) require_weights(weights, samples, replacement);
          kernels_of(out).multinomial(array(out), array(rows), replacement, key, current_stream(weights.device()));
        }
        return weights.dim() == 1 ? door::owning(squeeze(out, 0)) : out;
      },
      samples, replacement, key);
}

// ---- normal with tensors, and out= ----------------------------------------------------------------------------------

namespace {

/// z std + mean, with z drawn for every element.
Tensor spread(const Dims& sizes, DType dtype, Device device, const Operand& mean, const Operand& std,
              Generator* generator) {
  if (std.tensor() != nullptr) {
    require_floating(std.tensor()->dtype());
    require<ValueError>(
        std.tensor()->numel() == 0 || std.tensor()->device().is_meta() || std.tensor()->ge(0).all().item<bool>(),
        "standard deviation must not be negative; got std: {}", *std.tensor());
  } else {
    require<ValueError>(std.scalar().to<double>() >= 0, "standard deviation must not be negative; got {}",
                        std.scalar().to<double>());
  }
  if (mean.tensor() != nullptr) require_floating(mean.tensor()->dtype());
  return randn(sizes, {dtype, device}, generator).mul_(std).add_(mean);
}

}  // namespace

Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator) {
  const Running running("normal");
  require_defined(mean, "mean");
  require_defined(std, "std");
  require_same_device(mean, std);
  return spread(broadcast(mean.sizes(), std.sizes()), mean.dtype(), mean.device(), mean.detach(), std.detach(),
                generator);
}
Tensor normal(const Tensor& mean, double std, Generator* generator) {
  const Running running("normal");
  require_defined(mean, "mean");
  return spread(mean.sizes(), mean.dtype(), mean.device(), mean.detach(), std, generator);
}
Tensor normal(double mean, const Tensor& std, Generator* generator) {
  const Running running("normal");
  require_defined(std, "std");
  return spread(std.sizes(), std.dtype(), std.device(), mean, std.detach(), generator);
}
Tensor normal(double mean, double std, const Dims& sizes, const Options& options, Generator* generator) {
  const Running running("normal");
  return empty(sizes, options).normal_(mean, std, generator);
}

const Tensor& rand_out(const Tensor& out, const Dims& sizes, Generator* generator) {
  const Running running("rand");
  require_defined(out, "out");
  return write_out(out, rand(sizes, out.options(), generator));
}
const Tensor& randn_out(const Tensor& out, const Dims& sizes, Generator* generator) {
  const Running running("randn");
  require_defined(out, "out");
  return write_out(out, randn(sizes, out.options(), generator));
}
const Tensor& randint_out(const Tensor& out, int64_t low, int64_t high, const Dims& sizes, Generator* generator) {
  const Running running("randint");
  require_defined(out, "out");
  return write_out(out, randint(low, high, sizes, out.options(), generator));
}
const Tensor& randint_out(const Tensor& out, int64_t high, const Dims& sizes, Generator* generator) {
  return randint_out(out, 0, high, sizes, generator);
}
const Tensor& randperm_out(const Tensor& out, int64_t n, Generator* generator) {
  const Running running("randperm");
  require_defined(out, "out");
  return write_out(out, randperm(n, out.device(), generator));
}
const Tensor& normal_out(const Tensor& out, const Tensor& mean, const Tensor& std, Generator* generator) {
  const Running running("normal");
  return write_out(out, normal(mean, std, generator));
}
const Tensor& normal_out(const Tensor& out, const Tensor& mean, double std, Generator* generator) {
  const Running running("normal");
  return write_out(out, normal(mean, std, generator));
}
const Tensor& normal_out(const Tensor& out, double mean, const Tensor& std, Generator* generator) {
  const Running running("normal");
  return write_out(out, normal(mean, std, generator));
}
const Tensor& normal_out(const Tensor& out, double mean, double std, const Dims& sizes, Generator* generator) {
  const Running running("normal");
  require_defined(out, "out");
  return write_out(out, normal(mean, std, sizes, out.options(), generator));
}
const Tensor& bernoulli_out(const Tensor& out, const Tensor& p, Generator* generator) {
  const Running running("bernoulli");
  return write_out(out, bernoulli(p, generator));
}
const Tensor& multinomial_out(const Tensor& out, const Tensor& weights, int64_t samples, bool replacement,
                              Generator* generator) {
  const Running running("multinomial");
  return write_out(out, multinomial(weights, samples, replacement, generator));
}

const Tensor& Tensor::uniform_(double low, double high, Generator* generator) const {
  const Running running("uniform");
  require_defined(*this, "self");
  require_floating(dtype());
  require<ValueError>(low <= high && std::isfinite(high - low), "not a range; got low {} and high {}", low, high);
  const formula::RandomKey key = detail::next_key(generator, device());
  return door::call_in_place(
      Op::uniform, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) {
          kernels_of(x).uniform(array(x), key, low, high, current_stream(x.device()));
        });
      },
      low, high, key);
}

const Tensor& Tensor::normal_(double mean, double std, Generator* generator) const {
  const Running running("normal");
  require_defined(*this, "self");
  require_floating(dtype());
  require<ValueError>(std >= 0, "standard deviation must not be negative; got {}", std);
  const formula::RandomKey key = detail::next_key(generator, device());
  return door::call_in_place(
      Op::normal, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) {
          kernels_of(x).normal(array(x), key, mean, std, current_stream(x.device()));
        });
      },
      mean, std, key);
}

const Tensor& Tensor::bernoulli_(double p, Generator* generator) const {
  const Running running("bernoulli");
  require_defined(*this, "self");
  require_probability(p);
  const formula::RandomKey key = detail::next_key(generator, device());
  return door::call_in_place(
      Op::coin, *this, {},
      [&] {
        fill_random(*this,
                    [&](const Tensor& x) { kernels_of(x).bernoulli(array(x), key, p, current_stream(x.device())); });
      },
      p, key);
}

const Tensor& Tensor::random_(int64_t low, int64_t high, Generator* generator) const {
  const Running running("random");
  require_defined(*this, "self");
  require_range(low, high, dtype());
  const formula::RandomKey key = detail::next_key(generator, device());
  return door::call_in_place(
      Op::random, *this, {},
      [&] {
        fill_random(*this, [&](const Tensor& x) {
          kernels_of(x).integers(array(x), key, low, width(low, high), current_stream(x.device()));
        });
      },
      low, high, key);
}

Tensor Tensor::bernoulli(Generator* generator) const { return lorry::bernoulli(*this, generator); }
Tensor Tensor::multinomial(int64_t samples, bool replacement, Generator* generator) const {
  return lorry::multinomial(*this, samples, replacement, generator);
}

}  // namespace lorry
