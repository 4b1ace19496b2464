// The suites `operators`, single calls of every family, and `attention`: beside a copy of as many bytes or the best
// product, and rounds of them for a program that measures another library in turn.

#include "lorry/bench/operators.h"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/bench/operator_cases.h"
#include "lorry/ops/ops.h"
#include "lorry/profile/benchmark.h"
#include "lorry/profile/ceilings.h"

namespace lorry::bench {

using Json = nlohmann::ordered_json;

std::string count_text(int64_t elements) {
  return elements % (1 << 20) == 0 ? fmt::format("{} M", elements >> 20) : fmt::format("{}", elements);
}

Tensor operand(const Dims& sizes, DType dtype) {
  if (dtype == kBool) return rand(sizes).gt(0.5);
  if (!is_floating(dtype)) return randint(1, 9, sizes, {.dtype = dtype});
  return rand(sizes).mul(0.8).add(0.1).to(dtype);
}

void add_case(OperatorCases& cases, const std::string& name, DType dtype, double bytes, std::function<Call()> make,
              double flops) {
  cases.push_back({name, dtype, bytes, flops, std::move(make)});
}

void add_case(OperatorCases& cases, const std::string& name, const Dims& sizes, DType dtype, double passes,
              Tensor (*call)(const Tensor& x)) {
  double bytes = passes * size_of(dtype);
  for (const int64_t n : sizes) bytes *= static_cast<double>(n);
  add_case(cases, name, dtype, bytes,
           [=]() -> Call { return [=, x = operand(sizes, dtype)] { profile::do_not_optimize(call(x)); }; });
}

OperatorCases operator_cases() {
  OperatorCases cases;
  for (const auto add : {add_pointwise_cases, add_reduction_cases, add_row_cases, add_sorting_cases, add_indexing_cases,
                         add_copy_cases, add_product_cases, add_training_cases})
    add(cases);
  return cases;
}

namespace {

/// Without what is the same for every case.
Result result_of(const std::string& suite, const OperatorCase& x, const profile::BenchmarkResult& time) {
  return {.suite = suite,
          .name = x.name,
          .time = time,
          .dtype = std::string(name(x.dtype)),
          .bytes = x.bytes > 0 ? std::optional(static_cast<int64_t>(x.bytes)) : std::nullopt,
          .flops = x.flops > 0 ? std::optional(x.flops) : std::nullopt};
}

/// How near a call comes to what bounds it.
std::optional<double> ratio_to_ceiling(const OperatorCase& x, double median_us, profile::CopyRate& copies) {
  if (x.flops > 0) {
    const auto& rates = profile::ceilings(default_device()).matmul_flops_per_s;
    const auto rate = rates.find(x.dtype);
    return rate != rates.end() ? std::optional(1e6 * x.flops / median_us / rate->second) : std::nullopt;
  }
  // Smaller calls are bound by what it costs to make them.
  constexpr double kBoundByMemory = 1 << 20;
  if (x.bytes < kBoundByMemory) return std::nullopt;
  return x.bytes / median_us / copies.of(static_cast<int64_t>(x.bytes));
}

std::vector<Result> measure(const std::string& suite, const OperatorCases& cases, const Filter& filter) {
  std::vector<Result> results;
  profile::CopyRate copies(default_device());
  for (const OperatorCase& x : cases) {
    if (!filter(x.name)) continue;
    const Call call = x.make();
    results.push_back(
        result_of(suite, x, profile::benchmark(call, {.warmup_s = 0.1, .total_s = 0.4, .device = default_device()})));
    results.back().ratio_to_ceiling = ratio_to_ceiling(x, results.back().time.median_us, copies);
  }
  return results;
}

}  // namespace

std::vector<Result> operators_suite(const Filter& filter) { return measure("operators", operator_cases(), filter); }
std::vector<Result> attention_suite(const Filter& filter) { return measure("attention", attention_cases(), filter); }

void operator_rounds(const std::string& suite, const Filter& filter, std::istream& in, std::ostream& out) {
  OperatorCases cases = suite == "attention" ? attention_cases() : operator_cases();
  std::erase_if(cases, [&](const OperatorCase& x) { return !filter(x.name); });
  Json names = Json::array();
  for (const OperatorCase& x : cases) names.push_back(x.name);
  out << names.dump() << std::endl;
  profile::CopyRate copies(default_device());
  const OperatorCase* current = nullptr;
  Call call;
  for (std::string line; std::getline(in, line);) {
    const auto found = std::ranges::find(cases, line, &OperatorCase::name);
    require<ValueError>(found != cases.end(), "bench: there is no case '{}'", line);
    const bool is_first = current != &*found;
    if (is_first) {
      call = nullptr;  // its inputs go first
      call = found->make();
      current = &*found;
    }
    const double warmup_s = is_first ? 0.1 : 0.02, total_s = default_device().is_cpu() ? 0.1 : 0.05;
    const auto time = profile::benchmark(
        call, {.warmup_s = warmup_s, .total_s = total_s, .min_samples = 3, .device = default_device()});
    Json reply = {{"median_us", time.median_us}, {"dtype", name(found->dtype)}};
    if (found->bytes > 0) reply["bytes"] = found->bytes;
    if (const auto ratio = is_first ? ratio_to_ceiling(*found, time.median_us, copies) : std::nullopt)
      reply["ceiling_us"] = time.median_us * *ratio;
    out << reply.dump() << std::endl;
  }
}

}  // namespace lorry::bench
