// Quantisation by scheme, compared with a copy of as many bytes, and products of int8 beside those of floats. Bytes are
// those that must be moved: elements and codes, and for schemes with a scale of many elements the elements once more,
// because their range is known only after all have been read.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/memory_cases.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using profile::do_not_optimize;

void add_schemes(MemoryCases& suite, const Tensor& x) {
  const QuantScheme kSchemes[] = {QuantScheme::int8(),
                                  QuantScheme::int8(true),
                                  QuantScheme::int8_per_channel(0),
                                  QuantScheme::int8_per_channel(1),
                                  QuantScheme::blocks(),
                                  QuantScheme::float8_e4m3(),
                                  QuantScheme::float8_e4m3(true),
                                  QuantScheme::float8_e5m2()};
  for (const QuantScheme& scheme : kSchemes) {
    const Quantized q = quantize(x, scheme);
    const bool reads_twice = scheme.scaled || scheme.kind < QuantScheme::block8;
    const std::string how = fmt::format("{} {}", to_string(scheme), name(x.dtype()));
    suite.add("quantize " + how, x.dtype(), (reads_twice ? 2 : 1) * x.nbytes() + q.nbytes(),
              [&] { do_not_optimize(quantize(x, scheme)); });
    suite.add("dequantize " + how, x.dtype(), x.nbytes() + q.nbytes(), [&] { do_not_optimize(dequantize(q)); });
  }
}

/// out = a b of square matrices, with b the transpose of a contiguous one, as in a linear layer.
template <class F>
void add_product(std::vector<Result>& rows, const Filter& filter, const char* kind, int64_t n, const F& product) {
  const std::string name = fmt::format("product {0} x {0} x {0} {1}", n, kind);
  if (!filter(name)) return;
  rows.push_back({.suite = "lossy",
                  .name = name,
                  .time = profile::benchmark(product, {.device = default_device()}),
                  .dtype = kind});
  rows.back().flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
}

void add_products(std::vector<Result>& rows, const Filter& filter) {
  const int64_t n = default_device().is_cpu() ? 1024 : 8192;
  const Tensor x = randn({n, n}), weight = randn({n, n}), narrow = x.to(kBF16), narrow_weight = weight.to(kBF16);
  add_product(rows, filter, "f32", n, [&] { do_not_optimize(linear(x, weight)); });
  add_product(rows, filter, "bf16", n, [&] { do_not_optimize(linear(narrow, narrow_weight)); });
  const Quantized a = quantize(x, QuantScheme::int8_per_channel(0)),
                  b = quantize(weight, QuantScheme::int8_per_channel(0));
  add_product(rows, filter, "int8", n, [&] { do_not_optimize(int8_matmul(a.codes, b.codes.t())); });
  add_product(rows, filter, "int8 linear of f32", n, [&] { do_not_optimize(int8_linear(x, b)); });
  add_product(rows, filter, "int8 linear of bf16", n, [&] { do_not_optimize(int8_linear(narrow, b)); });
}

}  // namespace

std::vector<Result> lossy_suite(const Filter& filter) {
  const NoGrad no_grad;
  // Much larger than the caches of either device.
  const int64_t rows = default_device().is_cpu() ? 4096 : 16384, columns = 4096;
  MemoryCases suite("lossy", filter);
  {
    const Tensor x = randn({rows, columns});
    suite.add("aminmax f32", kF32, x.nbytes(), [&] { do_not_optimize(x.aminmax()); });
    add_schemes(suite, x);
    add_schemes(suite, x.to(kBF16));
  }
  std::vector<Result> results = suite.rows();
  add_products(results, filter);
  return results;
}

}  // namespace lorry::bench
