// How near Lorry's products come to the best of cuBLASLt: for square matrices, mm_out as it is and with tuning, beside
// the fastest of up to 32 algorithms that the library proposes under any rule of adding up. Device time of each, from
// recordings that take turns, so that clocks and heat favour none. Prints the JSON of DESIGN section 11 to standard
// output.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "lorry/cli/machine.h"
#include "lorry/device/device.h"
#include "lorry/kernels/cuda/common/scratch.h"
#include "lorry/kernels/cuda/matmul/matmul_plan.h"
#include "lorry/kernels/cuda/matmul/recording.h"
#include "lorry/ops/array.h"
#include "lorry/ops/ops.h"

namespace {

using namespace lorry;
using namespace lorry::kernels::cuda;
using Json = nlohmann::ordered_json;

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

/// Microseconds that the host takes to enqueue one product.
double submission_us(const Tensor& out, const Tensor& a, const Tensor& b, Stream stream) {
  constexpr int kCalls = 100;
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) mm_out(out, a, b);
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  stream.synchronize();
  return taken.count() / kCalls;
}

void measure(const Kind& kind, int64_t size, Stream stream, Json& results) {
  set_matmul_precision(kind.precision);
  const Options options{kind.dtype, stream.device};
  const Tensor a = randn({size, size}, options), b = randn({size, size}, options), out = empty({size, size}, options);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  const int repeats = static_cast<int>(std::clamp(1e11 / flops, 1.0, 50.0));
  const auto lorry_product = [&] {
    for (int i = 0; i < repeats; ++i) mm_out(out, a, b);
  };
  std::vector<Recording> recordings;
  double submit_us[2];
  for (const bool tuned : {false, true}) {
    set_matmul_tuning(tuned);
    submit_us[tuned] = submission_us(out, a, b, stream);
    recordings.emplace_back(stream, lorry_product);
  }

  const Problem problem = describe({.out = lorry::array(out), .a = lorry::array(a), .b = lorry::array(b), .c = {}});
  Plan plan = make_plan(plan_key(problem, stream), nullptr);
  Algorithm algorithms[kAlgorithms];
  const int proposed = plan.candidates(algorithms, kAlgorithms, CUBLASLT_REDUCTION_SCHEME_MASK);
  const Scratch workspace(kWorkspaceBytes, stream);
  for (int x = 0; x < proposed; ++x) {
    const auto run = [&] { return plan.run(algorithms[x], problem, problem.data[kOut], workspace.data(), stream); };
    if (run() != CUBLAS_STATUS_SUCCESS) continue;
    recordings.emplace_back(stream, [&] {
      for (int i = 0; i < repeats; ++i) check_cublas_lt(run(), "cublasLtMatmul");
    });
  }

  require<DeviceError>(recordings.size() > 2, "matmul_ceiling: cuBLASLt has no algorithm for {}x{} {}", size, size,
                       kind.name);

  const auto samples = time_in_turns(recordings, stream, kRounds);
  const auto us = [&](size_t i, double share) { return quantile(samples[i], share) / repeats; };
  size_t best = 2;
  for (size_t i = 2; i < samples.size(); ++i)
    if (us(i, 0.5) < us(best, 0.5)) best = i;
  const auto row = [&](size_t i, const std::string& implementation, std::optional<double> submit) {
    Json figures = {{"suite", "matmul"},
                    {"case", fmt::format("{0}x{0}x{0}", size)},
                    {"implementation", implementation},
                    {"device", "cuda"},
                    {"dtype", kind.name},
                    {"median_us", us(i, 0.5)},
                    {"min_us", us(i, 0)},
                    {"p90_us", us(i, 0.9)}};
    if (submit) figures["submit_us"] = *submit;
    figures["bytes"] = 3 * size * size * size_of(kind.dtype);
    figures["flops"] = flops;
    figures["tflop_per_s"] = flops / us(i, 0.5) / 1e6;
    figures["ratio_to_ceiling"] = us(best, 0.5) / us(i, 0.5);
    results.push_back(figures);
    fmt::print(stderr, "{:5} {:5} {:28} {:9.2f} us {:7.1f} TFLOP/s {:6.3f} of the best\n", kind.name, size,
               implementation, us(i, 0.5), flops / us(i, 0.5) / 1e6, us(best, 0.5) / us(i, 0.5));
  };
  row(0, "lorry", submit_us[0]);
  row(1, "lorry tuned", submit_us[1]);
  row(best, fmt::format("cublasLt, best of {}", samples.size() - 2), {});
}

}  // namespace

int main() {
  try {
    const Device device{DeviceType::cuda, 0};
    device::require_device(device, "matmul_ceiling");
    const OwnedStream stream(device);
    const StreamScope scope(stream);
    Json results = Json::array();
    for (const Kind& kind : kKinds)
      for (const int64_t size : kSizes) measure(kind, size, stream, results);
    Json machine = cli::describe_machine();
    machine["gpu"] = device::facts(device).name;
    fmt::print("{}\n", Json{{"schema", 1}, {"machine", machine}, {"results", results}}.dump(2));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
