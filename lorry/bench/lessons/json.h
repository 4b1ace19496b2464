#pragma once

// The results of lessons as JSON: the schema of `lorry lessons --json`.
//
//   {"schema": 1, "machine": describe_machine(), "device", "seconds_per_way",
//    "ceilings": {"copy_bytes_per_s", "call_us", "flops_per_s": {dtype: rate},
//                 "error",                                               if one is missing
//                 "to_device_bytes_per_s", "to_host_bytes_per_s"},       on a GPU
//    "lessons": [{"number", "title", "teaches", "seconds",
//                 "error",                                               if it ended early
//                 "comparisons": [{"title", "given", "slow", "good", "ratio", "verdict", "why",
//                                  "ways": [{"name", "code", "median_us", "min_us", "p90_us", "spread", "samples",
//                                            "calls", "bytes", "flops", "dtype", "bound", "bound_us",   if known
//                                            "figures": [{"name", "value", "unit"}]}]}],                if it has some
//                 "tried": [{"what", "code", "outcome"}], "notes": [...], "absent": [...]}]}
//
// "slow" and "good" are names of ways; ratio = median_us of the slow way / median_us of the good one. "bound" says
// which ceiling the way meets first ("memory", "arithmetic" or "calls"), "bound_us" the least time at that ceiling.

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "lorry/bench/lessons.h"

namespace lorry::bench::lessons {

nlohmann::ordered_json to_json(const std::vector<Lesson>& lessons, const Ceilings& ceilings, const Settings& settings);

}  // namespace lorry::bench::lessons
