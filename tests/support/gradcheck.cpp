#include "tests/support/gradcheck.h"

#include <cmath>

#include "lorry/autograd/engine.h"
#include "lorry/ops/ops.h"
#include "tests/support/host.h"

namespace lorry::test {
namespace {

/// The offset of element i, in row-major order, of a tensor with any strides.
int64_t offset_of(const Tensor& x, int64_t i) {
  const Layout& l = x.layout();
  int64_t offset = 0;
  for (int d = l.rank - 1; d >= 0; --d) {
    offset += i % l.sizes[d] * l.strides[d];
    i /= l.sizes[d];
  }
  return offset;
}
double element(const Tensor& x, int64_t i) { return host<double>(x)[offset_of(x, i)]; }
void set_element(const Tensor& x, int64_t i, double value) { write_element(x, offset_of(x, i), &value); }

/// A fixed weight in [0.5, 1.5) for element i.
double weight(int64_t i) {
  uint64_t z = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  return 0.5 + static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

double weighted_sum(const Tensor& y) {
  double total = 0;
  for (int64_t i = 0; i < y.numel(); ++i) total += weight(i) * element(y, i);
  return total;
}

Tensor weights_like(const Tensor& y) {
  const Tensor w = empty(y.sizes(), {kF64, y.device()});
  for (int64_t i = 0; i < y.numel(); ++i) set_element(w, i, weight(i));
  return w;
}

/// Fresh leaves with the same values and strides, so that a check never disturbs its caller's tensors.
std::vector<Tensor> leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> copies;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !x.requires_grad()) {
      copies.push_back(x);
      continue;
    }
    Tensor copy = x.layout().has_internal_overlap() ? empty(x.sizes(), x.options())
                                                    : empty_strided(x.sizes(), x.strides(), x.options());
    for (int64_t i = 0; i < x.numel(); ++i) set_element(copy, i, element(x, i));
    copies.push_back(copy.requires_grad_());
  }
  return copies;
}

}  // namespace

testing::AssertionResult gradcheck(const Function& f, const std::vector<Tensor>& given,
                                   const GradcheckOptions& options) {
  const std::vector<Tensor> inputs = leaves(given);
  std::vector<Tensor> wanted;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !x.requires_grad()) continue;
    if (x.dtype() != kF64) return testing::AssertionFailure() << "gradcheck needs f64 inputs; got " << describe(x);
    wanted.push_back(x);
  }
  if (wanted.empty()) return testing::AssertionFailure() << "gradcheck: no input requires a gradient";
  const Tensor y = f(inputs);
  if (!y.requires_grad()) return testing::AssertionFailure() << "the result " << describe(y) << " has no history";
  const std::vector<Tensor> analytic = autograd::grad({y}, wanted, {weights_like(y)}, {.allow_unused = true});
  const NoGrad quiet;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const Tensor& x = wanted[k];
    if (analytic[k].defined() && analytic[k].sizes() != x.sizes())
      return testing::AssertionFailure() << "gradient " << k << " has shape " << to_string(analytic[k].sizes())
                                         << " for input " << describe(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const double centre = element(x, i), h = options.step * std::max(1.0, std::abs(centre));
      set_element(x, i, centre + h);
      const double above = weighted_sum(f(inputs));
      set_element(x, i, centre - h);
      const double below = weighted_sum(f(inputs));
      set_element(x, i, centre);
      const double numeric = (above - below) / (2 * h);
      const double exact = analytic[k].defined() ? element(analytic[k], i) : 0.0;
      const double allowed = options.absolute + options.relative * std::max(std::abs(numeric), std::abs(exact));
      if (!(std::abs(numeric - exact) <= allowed))
        return testing::AssertionFailure() << "input " << k << " " << describe(x) << ", element " << i << " (value "
                                           << centre << "): gradient " << exact << ", central difference " << numeric;
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult gradgradcheck(const Function& f, const std::vector<Tensor>& given,
                                       const GradcheckOptions& options) {
  size_t outputs = 0;
  for (const Tensor& x : given) outputs += x.defined() && x.requires_grad();
  for (size_t k = 0; k < outputs; ++k) {
    bool constant = false;
    const auto gradient_of_k = [&, k](const std::vector<Tensor>& inputs) {
      std::vector<Tensor> wanted;
      for (const Tensor& x : inputs)
        if (x.defined() && x.requires_grad()) wanted.push_back(x);
      const EnableGrad recording;
      const Tensor y = f(inputs);
      const Tensor g = autograd::grad({y}, wanted, {weights_like(y)}, {.create_graph = true, .allow_unused = true})[k];
      constant = !g.defined() || !g.requires_grad();
      return g;
    };
    const Tensor g = gradient_of_k(leaves(given));
    if (constant) continue;  // linear in everything: its second derivative is zero
    if (const auto result = gradcheck(gradient_of_k, given, options); !result)
      return testing::AssertionFailure() << "second derivative through gradient " << k << ": " << result.message();
  }
  return testing::AssertionSuccess();
}

}  // namespace lorry::test
