// How close Lorry's products come to the best of cuBLASLt. For square matrices: mm_out as it is and with tuning, and
// the fastest of up to 32 algorithms that the library proposes for any order of summation. Measures device time with
// graphs that run in turn, so that clocks and heat favour none.

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/bench/suites.h"
#include "lorry/device/device.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "lorry/kernels/cuda/matmul/timed_graph.h"
#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"

namespace lorry::bench {
namespace {

using namespace lorry::kernels::cuda;

struct Kind {
  const char* name;
  DType dtype;
  Precision precision;
};
constexpr Kind kKinds[] = {
    {"f16", kF16, Precision::full}, {"bf16", kBF16, Precision::full}, {"tf32", kF32, Precision::tf32}};
constexpr int64_t kSizes[] = {512, 1024, 2048, 4096, 8192};
constexpr int kAlgorithms = 32, kRounds = 11;

double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1))];
}

void measure(const std::string& name, const Kind& kind, int64_t size, Stream stream, std::vector<Result>& results) {
  const MatmulPrecisionScope precision(kind.precision);
  const Options options{kind.dtype, stream.device};
  const Tensor a = randn({size, size}, options), b = randn({size, size}, options), out = empty({size, size}, options);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const int repeats = static_cast<int>(std::clamp(1e11 / flops, 1.0, 50.0));
  const auto lorry_product = [&] {
    for (int i = 0; i < repeats; ++i) mm_out(out, a, b);
  };
  std::vector<TimedGraph> graphs;
  double submit_us[2];
  for (const bool tuned : {false, true}) {
    set_matmul_tuning(tuned);
    submit_us[tuned] = profile::benchmark([&] { mm_out(out, a, b); }, {.device = stream.device}).submit_us;
    graphs.emplace_back(stream, lorry_product);
  }

  const Problem problem = describe({.out = lorry::array(out), .a = lorry::array(a), .b = lorry::array(b), .c = {}});
  MatmulPlan plan = make_plan(plan_key(problem, stream), nullptr);
  Algorithm algorithms[kAlgorithms];
  const int proposed = plan.candidates(algorithms, kAlgorithms, CUBLASLT_REDUCTION_SCHEME_MASK);
  const Scratch workspace(kWorkspaceBytes, stream);
  for (int x = 0; x < proposed; ++x) {
    const auto run = [&] { return plan.run(algorithms[x], problem, problem.data[kOut], workspace.data(), stream); };
    if (run() != CUBLAS_STATUS_SUCCESS) continue;
    graphs.emplace_back(stream, [&] {
      for (int i = 0; i < repeats; ++i) check_cublas_lt(run(), "cublasLtMatmul");
    });
  }

  require<DeviceError>(graphs.size() > 2, "matmul_ceiling: cuBLASLt has no algorithm for {}x{} {}", size, size,
                       kind.name);

  const auto samples = time_in_turns(graphs, stream, kRounds);
  const auto us = [&](size_t i, double share) { return quantile(samples[i], share) / repeats; };
  size_t best = 2;
  for (size_t i = 2; i < samples.size(); ++i)
    if (us(i, 0.5) < us(best, 0.5)) best = i;
  const auto add = [&](size_t i, const std::string& implementation, double submit) {
    results.push_back({.suite = "matmul_ceiling",
                       .name = name,
                       .time = {.median_us = us(i, 0.5), .min_us = us(i, 0), .p90_us = us(i, 0.9), .submit_us = submit},
                       .dtype = kind.name,
                       .bytes = 3 * size * size * size_of(kind.dtype),
                       .flops = flops,
                       .ratio_to_ceiling = us(best, 0.5) / us(i, 0.5),
                       .implementation = implementation,
                       .device = stream.device});
  };
  add(0, "lorry", submit_us[0]);
  add(1, "lorry tuned", submit_us[1]);
  add(best, fmt::format("cublasLt, best of {}", samples.size() - 2), 0);
}

}  // namespace

std::vector<Result> matmul_ceiling_suite(const Filter& filter) {
  const Device device = default_device();
  require<DeviceError>(!device.is_cpu(), "bench: matmul_ceiling compares with cuBLASLt; got device {}; expected a GPU",
                       device);
  const NoGrad no_grad;
  const bool tuning = matmul_tuning();
  const OwnedStream stream(device);
  const StreamScope scope(stream);
  std::vector<Result> results;
  for (const Kind& kind : kKinds)
    for (const int64_t size : kSizes)
      if (const std::string name = fmt::format("{0}x{0}x{0}", size); filter(fmt::format("{} {}", name, kind.name)))
        measure(name, kind, size, stream, results);
  set_matmul_tuning(tuning);
  return results;
}

}  // namespace lorry::bench
