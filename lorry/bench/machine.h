#pragma once

// A description of this machine and of the libraries found, for `lorry info` and the head of benchmark reports.

#include <nlohmann/json_fwd.hpp>

namespace lorry::bench {

/// {"lorry", "build", "compiler", "system", "cpu", "processors", "threads", "simd", "memory_gib", "libraries": {...},
/// "programs": {...}, "gpus"}; with a GPU also "driver": {"version", "cuda", "runtime"}. Creates no context.
nlohmann::ordered_json describe_machine();

}  // namespace lorry::bench
