#include "lorry/bench/result.h"

#include <nlohmann/json.hpp>

#include "lorry/bench/machine.h"

namespace lorry::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

/// A field of a result in a report. bench/schema.py reads the first two columns of each row, so rows must keep this
/// form.
struct Field {
  const char* name;
  const char* meaning;
  /// null if it does not apply; no function for fields that only the scripts of bench/ write
  Json (*value)(const Result&);
};

template <auto kMember>
Json member(const Result& result) {
  const auto& value = result.*kMember;
  if constexpr (requires { value.has_value(); })
    return value ? Json(*value) : Json();
  else
    return value;
}
template <auto kMember>
Json time(const Result& result) {
  return result.time.*kMember;
}
using Time = profile::BenchmarkResult;

constexpr Field kFields[] = {
    // clang-format off
    {"suite", "the suite that has the case", member<&Result::suite>},
    {"case", "what is measured", member<&Result::name>},
    {"implementation", "`lorry`, or a peer with its version", member<&Result::implementation>},
    {"device", "`cpu` or `cuda:N`", [](const Result& r) -> Json { return to_string(r.device); }},
    {"dtype", "of the tensors", member<&Result::dtype>},
    {"median_us", "microseconds a call: median over the samples", time<&Time::median_us>},
    {"min_us", "least", time<&Time::min_us>},
    {"p90_us", "90th percentile", time<&Time::p90_us>},
    {"submit_us", "median until the host had enqueued the call, on a GPU", [](const Result& r) -> Json {
       return r.device.is_cpu() || r.time.submit_us == 0 ? Json() : Json(r.time.submit_us); }},
    {"bytes", "read and written by a call", member<&Result::bytes>},
    {"gb_per_s", "10^9 bytes a second", [](const Result& r) -> Json { return r.bytes ? Json(r.gb_per_s()) : Json(); }},
    {"flops", "floating-point operations of a call", member<&Result::flops>},
    {"tflop_per_s", "10^12 of them a second", [](const Result& r) -> Json {
       return r.flops ? Json(r.tflop_per_s()) : Json(); }},
    {"tokens_per_s", "tokens trained on a second", member<&Result::tokens_per_s>},
    {"ratio_to_ceiling", "of what this machine was measured to reach: a copy of as many bytes, or the best product",
     member<&Result::ratio_to_ceiling>},
    {"peak_bytes", "reserved from the device at most, cached blocks included", member<&Result::peak_bytes>},
    {"extra_bytes", "allocated by a call beyond what it finds, at most", member<&Result::extra_bytes>},
    {"launches", "kernels that a call launches", member<&Result::launches>},
    {"state_bytes", "of an optimizer's states and masters", member<&Result::state_bytes>},
    {"counted_bytes", "what the optimizer's memory report expects as extra_bytes", member<&Result::counted_bytes>},
    {"recordings", "that a compiled function made; of a peer, the graphs that it compiled",
     member<&Result::recordings>},
    {"variants", "of these, those with other operators or other kinds of operands: sizes alone make none",
     member<&Result::variants>},
    {"latency_us", "median of a call that is waited for", member<&Result::latency_us>},
    {"rows_per_s", "of batches, a second, if calls are not waited for", member<&Result::rows_per_s>},
    {"graph_bytes", "of device graphs and their pool", member<&Result::graph_bytes>},
    {"capture_s", "seconds to warm up, compile, measure and capture, of all sizes", member<&Result::capture_s>},
    {"compared_with", "another call that was measured in turn: without a stage, or not compiled",
     member<&Result::compared_with>},
    {"difference_us", "how much longer than that the call takes: median over pairs of samples",
     member<&Result::difference_us>},
    {"difference_low_us", "the true median is at least this, with 95 % confidence",
     member<&Result::difference_low_us>},
    {"difference_high_us", "and at most this", member<&Result::difference_high_us>},
    {"family", "of operators", nullptr},
    {"speedups", "a peer's time over Lorry's in rounds of both in turn: [low, median, high] of each run", nullptr},
    {"first_ms", "milliseconds of a peer's first call, which may compile", nullptr},
    {"steps", "of a training run", nullptr},
    {"validation_loss", "of a training run at its end, in nats per token", nullptr},
    // clang-format on
};

Json to_json(const Result& result) {
  Json json;
  for (const Field& field : kFields)
    if (field.value != nullptr)
      if (Json value = field.value(result); !value.is_null()) json[field.name] = std::move(value);
  return json;
}

}  // namespace

int report_schema() { return kSchema; }

Json report(const std::vector<Result>& results) {
  Json rows = Json::array();
  for (const Result& result : results) rows.push_back(to_json(result));
  return {{"schema", kSchema}, {"machine", describe_machine()}, {"results", rows}};
}

}  // namespace lorry::bench
