// The cases of `lorry bench overhead` in libtorch, called from C++ without gradients:
//
//   T=$(python -c 'import os, torch; print(os.path.dirname(torch.__file__))')
//   g++ -O3 -std=c++20 -I. -I$T/include -I$T/include/torch/csrc/api/include bench/peers/overhead_torch.cpp \
//     lorry/profile/sampling.cpp -o build/overhead_torch \
//     -L$T/lib -Wl,-rpath,$T/lib -Wl,--no-as-needed -ltorch_cpu -lc10
//   build/overhead_torch [FILE.json]
//
// Same harness and schema as `lorry bench --json`.
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "lorry/profile/sampling.h"

namespace {

/// As profile::benchmark() does on a CPU.
template <class F>
lorry::profile::BenchmarkResult measure(F&& call) {
  using namespace lorry::profile::detail;
  return take_samples(
      {.run =
           [&](int64_t count) {
             for (int64_t i = 0; i < count; ++i) call();
           }},
      {.warmup_s = 0.2, .sample_s = 0.0005, .total_s = 1, .min_samples = 9, .max_calls_per_sample = INT64_MAX},
      {.seconds = steady_seconds, .synchronize = [] {}});
}

/// Keeps the compiler from dropping a computation whose result nobody reads.
template <class T>
void do_not_optimize(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace

int main(int argc, char** argv) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({64}), y = torch::ones({64});
  const std::pair<const char*, lorry::profile::BenchmarkResult> rows[] = {
      {"empty 64", measure([&] { do_not_optimize(torch::empty({64})); })},
      {"view 64 as 8x8", measure([&] {
         do_not_optimize(x.view({8, 8}));
       })},
      {"add 64", measure([&] { do_not_optimize(torch::add(x, y)); })},
      {"add_ 64", measure([&] { x.add_(y); })},
  };
  std::ofstream json;
  if (argc > 1) json.open(argv[1]);
  json << "{\"schema\": 1, \"machine\": {\"threads\": " << torch::get_num_threads() << "}, \"results\": [\n";
  const char* separator = "";
  for (const auto& [name, t] : rows) {
    std::printf("%-18s %8.3f us   (least %.3f, p90 %.3f)\n", name, t.median_us, t.min_us, t.p90_us);
    json << separator << "{\"suite\": \"overhead\", \"case\": \"" << name << "\", \"implementation\": \"libtorch "
         << TORCH_VERSION << "\", \"device\": \"cpu\", \"dtype\": \"f32\", \"median_us\": " << t.median_us
         << ", \"min_us\": " << t.min_us << ", \"p90_us\": " << t.p90_us << "}";
    separator = ",\n";
  }
  json << "\n]}\n";
  return argc > 1 && !json ? 1 : 0;
}
