// Matrix products: square ones in every floating type and alignment, f32 through tf32 if the device has it, those of a
// GPT-2 training step, and its linear layers over a few tokens, as in decoding, with and without the mode
// BatchInvariant.

#include <fmt/core.h>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/suites.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {
namespace {

/// Operations per second of large products of this kind; 0 if it has no ceiling.
double ceiling_of(std::string_view kind) {
  const profile::Ceilings& ceilings = profile::ceilings(default_device());
  if (kind == "tf32") return ceilings.tf32_flops_per_s;
  for (const auto& [dtype, rate] : ceilings.matmul_flops_per_s)
    if (lorry::name(dtype) == kind) return rate;
  return 0;
}

/// Measures `out = a b` with the algorithm chosen at once and, on a GPU, with the tuned one.
void add_rows(std::vector<Result>& rows, const std::string& name, const char* kind, const Tensor& out, const Tensor& a,
              const Tensor& b) {
  const bool can_tune = !default_device().is_cpu() && out.dtype() != kF64;
  for (const bool tuned : {false, true}) {
    if (tuned && !can_tune) continue;
    set_matmul_tuning(tuned);
    Result row{.suite = "matmul",
               .name = tuned ? name + ", tuned" : name,
               .time = profile::benchmark([&] { matmul_out(out, a, b); }, {.device = default_device()}),
               .dtype = kind};
    row.flops = 2.0 * static_cast<double>(a.size(0)) * static_cast<double>(a.size(1)) * static_cast<double>(b.size(1));
    if (const double ceiling = ceiling_of(kind); ceiling > 0)
      row.ratio_to_ceiling = *row.flops / (row.time.median_us / 1e6) / ceiling;
    rows.push_back(row);
  }
}

void square_products(std::vector<Result>& rows, const Filter& filter) {
  const bool gpu = !default_device().is_cpu();
  struct Kind {
    const char* name;
    DType dtype;
    Precision precision;
  };
  // Beside powers of two, sizes just off one: rows not aligned to 16 bytes, and sizes that are no multiple of a
  // tile.
  static const std::vector<int64_t> kCpuSizes = {512, 1023, 1024, 1025, 1028, 1032},
                                    kGpuSizes = {512, 1024, 2048, 4095, 4096, 4097, 4104, 8192};
  constexpr Kind kKinds[] = {{"f64", kF64, Precision::full},
                             {"f32", kF32, Precision::full},
                             {"tf32", kF32, Precision::tf32},
                             {"f16", kF16, Precision::full},
                             {"bf16", kBF16, Precision::full}};
  for (const Kind& kind : kKinds) {
    if (!gpu && (kind.precision == Precision::tf32 || kind.dtype == kF16)) continue;  // CPUs have no hardware for it
    const MatmulPrecisionScope precision(kind.precision);
    for (const int64_t n : gpu ? kGpuSizes : kCpuSizes) {
      const std::string name = fmt::format("matmul {0} x {0} x {0} {1}", n, kind.name);
      if (!filter(name)) continue;
      const Tensor a = randn({n, n}).to(kind.dtype), b = randn({n, n}).to(kind.dtype),
                   out = empty({n, n}, {.dtype = kind.dtype});
      add_rows(rows, name, kind.name, out, a, b);
    }
  }
}

/// A linear layer of GPT-2 124M.
struct Layer {
  const char* name;
  int64_t in, out;
};
constexpr Layer kLayers[] = {{"qkv", 768, 2304},      {"proj", 768, 768},   {"mlp up", 768, 3072},
                             {"mlp down", 3072, 768}, {"head", 768, 50257}, {"padded head", 768, 50304}};

/// The linear layers of GPT-2 124M over 8 sequences of 1,024 tokens, in bf16: y = x w^T, and for its gradient g the
/// gradients g w of x and g^T x of w. A case is named "matmul gpt2 LAYER PRODUCT ROWS x INNER x COLUMNS bf16". The head
/// is measured with its 50,257 columns and padded to a multiple of 128.
void gpt2_products(std::vector<Result>& rows, const Filter& filter) {
  constexpr int64_t kTokens = 8 * 1024;
  for (const Layer& layer : kLayers) {
    const auto name = [&](const char* product, int64_t m, int64_t k, int64_t n) {
      return fmt::format("matmul gpt2 {} {} {} x {} x {} bf16", layer.name, product, m, k, n);
    };
    const std::string forward = name("forward", kTokens, layer.in, layer.out),
                      to_input = name("backward to x", kTokens, layer.out, layer.in),
                      to_weight = name("backward to w", layer.out, kTokens, layer.in);
    if (!filter(forward) && !filter(to_input) && !filter(to_weight)) continue;
    const Tensor x = randn({kTokens, layer.in}).to(kBF16), w = randn({layer.out, layer.in}).to(kBF16),
                 g = randn({kTokens, layer.out}).to(kBF16);
    if (filter(forward)) add_rows(rows, forward, "bf16", empty_like(g), x, w.t());
    if (filter(to_input)) add_rows(rows, to_input, "bf16", empty_like(x), g, w);
    if (filter(to_weight)) add_rows(rows, to_weight, "bf16", empty_like(w), g.t(), x);
  }
}

/// The linear layers over 1 to 128 tokens. Weights come from memory, because a model's do not fit the caches. A case is
/// named "linear gpt2 LAYER ROWS x INNER x COLUMNS DTYPE", and ends with ", batch invariant" in the mode.
void decoding_products(std::vector<Result>& rows, const Filter& filter) {
  for (const DType dtype : {kF32, kBF16})
    for (const Layer& layer : kLayers)
      for (const int64_t m : {1, 16, 64, 128})
        for (const bool invariant : {false, true}) {
          const std::string name = fmt::format("linear gpt2 {} {} x {} x {} {}{}", layer.name, m, layer.in, layer.out,
                                               dtype, invariant ? ", batch invariant" : "");
          if (!filter(name)) continue;
          const BatchInvariant scope(invariant);
          const Tensor x = randn({m, layer.in}).to(dtype), bias = randn({layer.out}).to(dtype);
          const int64_t bytes = layer.in * layer.out * size_of(dtype);
          profile::Rotation weights([&] { return randn({layer.out, layer.in}).to(dtype); }, bytes);
          Result row{
              .suite = "matmul",
              .name = name,
              .time = profile::benchmark([&] { profile::do_not_optimize(linear_aligned(x, weights.next(), bias)); },
                                         {.device = default_device()}),
              .dtype = std::string(lorry::name(dtype))};
          row.bytes = bytes + x.nbytes() + bias.nbytes() + m * layer.out * size_of(dtype);
          row.flops = 2.0 * static_cast<double>(m * layer.in) * static_cast<double>(layer.out);
          rows.push_back(row);
        }
}

}  // namespace

std::vector<Result> matmul_suite(const Filter& filter) {
  const NoGrad no_grad;
  std::vector<Result> rows;
  const bool tuning = matmul_tuning();
  square_products(rows, filter);
  if (!default_device().is_cpu()) gpt2_products(rows, filter);  // takes too long on a CPU
  set_matmul_tuning(tuning);
  decoding_products(rows, filter);
  return rows;
}

}  // namespace lorry::bench
