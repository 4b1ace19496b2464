// The cases of `lorry bench overhead` in libtorch, called from C++ without gradients:
//
//   T=$(python -c 'import os, torch; print(os.path.dirname(torch.__file__))')
//   g++ -O3 -std=c++20 -I. -I$T/include -I$T/include/torch/csrc/api/include bench/peers/overhead_torch.cpp \
//     -o build/overhead_torch \
//     -L$T/lib -Wl,-rpath,$T/lib -Wl,--no-as-needed -ltorch_cpu -lc10
//   build/overhead_torch [FILE.json]
//
// Same harness and schema as `lorry bench --json`.
#include <torch/torch.h>
#include <torch/version.h>

#include <cstdio>
#include <fstream>
#include <functional>

#include "lorry/cli/measure.h"

int main(int argc, char** argv) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({64}), y = torch::ones({64});
  const std::pair<const char*, lorry::cli::Timing> rows[] = {
      {"empty 64", lorry::cli::measure([&] { lorry::cli::keep(torch::empty({64})); })},
      {"view 64 as 8x8", lorry::cli::measure([&] {
         lorry::cli::keep(x.view({8, 8}));
       })},
      {"add 64", lorry::cli::measure([&] { lorry::cli::keep(torch::add(x, y)); })},
      {"add_ 64", lorry::cli::measure([&] { x.add_(y); })},
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
