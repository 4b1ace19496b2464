#include <fmt/core.h>

#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <vector>

#include "lorry/autograd/grad_mode.h"
#include "lorry/cli/commands.h"
#include "lorry/cli/machine.h"
#include "lorry/cli/measure.h"
#include "lorry/cli/report.h"
#include "lorry/device/cpu/team.h"
#include "lorry/ops/ops.h"

namespace lorry::cli {
namespace {

std::string text_of(const nlohmann::ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void print(const nlohmann::ordered_json& facts) {
  for (const auto& [name, value] : facts.items()) {
    if (!value.is_object()) {
      fmt::print("{:<12} {}\n", name, text_of(value));
      continue;
    }
    std::string line;
    for (const auto& [key, entry] : value.items()) line += fmt::format("{}{} {}", line.empty() ? "" : ", ", key, text_of(entry));
    fmt::print("{:<12} {}\n", name, line);
  }
}

/// The time of day, as ISO 8601 in UTC: a saved measurement says how old it is.
std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[sizeof "2000-01-01T00:00:00Z"];
  std::strftime(text, sizeof text, "%FT%TZ", &utc);
  return text;
}

/// Bytes read and written a second by a copy far larger than the caches, every thread at work.
double copy_gb_per_s() {
  constexpr int64_t kBytes = 256 << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  const Timing t = measure([&] {
    cpu::parallel_for(kBytes, 1 << 20,
                      [&](int64_t begin, int64_t end) { std::memcpy(to.data() + begin, from.data() + begin, static_cast<size_t>(end - begin)); });
    keep(to);
  });
  return 2.0 * kBytes / t.min_us / 1e3;
}

/// What it costs to give the team a loop and wait for it.
double team_launch_us() {
  const int64_t threads = cpu::threads();
  return measure([&] { cpu::parallel_for(threads, 1, [](int64_t begin, int64_t) { keep(begin); }); }).median_us;
}

/// The speed of a square matrix product.
double matmul_gflop_per_s(DType dtype) {
  constexpr int64_t n = 1024;
  const NoGrad no_grad;
  const Tensor a = randn({n, n}).to(dtype), b = randn({n, n}).to(dtype);
  return 2e-3 * n * n * n / measure([&] { keep(a.matmul(b)); }).min_us;
}

}  // namespace

int run_info(const InfoOptions& options, const CommonOptions& common) {
  nlohmann::ordered_json facts = describe_machine();
  print(facts);
  if (options.measure) {
    nlohmann::ordered_json ceilings = {{"copy_gb_per_s", copy_gb_per_s()}, {"team_launch_us", team_launch_us()}};
    for (const DType dtype : {kF32, kBF16, kF64}) ceilings[fmt::format("matmul_{}_gflop_per_s", dtype)] = matmul_gflop_per_s(dtype);
    for (const auto& [name, value] : ceilings.items()) fmt::print("{:<28} {:.4g}\n", name, value.get<double>());
    ceilings["measured"] = now();
    facts["ceilings"] = ceilings;
  }
  write_json(common.json, facts);
  return 0;
}

}  // namespace lorry::cli
