// What calls cost on this machine: profile::benchmark warms up, synchronises and takes the median of many samples.
#include <cstdio>

#include "lorry/lorry.h"

using namespace lorry;

void print(const char* name, const profile::BenchmarkResult& cost, double bytes) {
  std::printf("%-24s %9.2f us, least %9.2f, spread %3.0f %%, %6.1f GB/s\n", name, cost.median_us, cost.min_us,
              100 * cost.spread, bytes / cost.median_us / 1e3);
}

int main() {
  constexpr int64_t n = 1 << 18;  // a megabyte of floats
  const profile::BenchmarkOptions brief{.warmup_s = 0.05, .total_s = 0.2};

  const Tensor x = randn({n}), y = randn({n});
  print("add", profile::benchmark([&] { profile::do_not_optimize(x.add(y)); }, brief), 3.0 * 4 * n);

  // The same operands again and again come from a cache. Inputs that take turns do not.
  profile::Rotation inputs([] { return std::pair(randn({n}), randn({n})); }, 3 * 4 * n);
  const auto add_next = [&] {
    const auto& [a, b] = inputs.next();
    profile::do_not_optimize(a.add(b));
  };
  print("add beyond the caches", profile::benchmark(add_next, brief), 3.0 * 4 * n);

  // A call that changes its input gets a new one each time; making it is not timed.
  const Tensor unsorted = randn({1 << 14});
  print("sort of a fresh copy",
        profile::benchmark([&] { return unsorted.clone(); }, [](Tensor& copy) { copy.copy_(std::get<0>(copy.sort())); },
                           brief),
        3.0 * 4 * (1 << 14));
}
