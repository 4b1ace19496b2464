#pragma once

// What this machine is and what the build found on it, for `lorry info` and for the head of every benchmark report.

#include <nlohmann/json_fwd.hpp>

namespace lorry::bench {

/// {"lorry", "build", "compiler", "system", "cpu", "processors", "threads", "simd", "memory_gib", "libraries": {...},
/// "cuda"}
nlohmann::ordered_json describe_machine();

}  // namespace lorry::bench
