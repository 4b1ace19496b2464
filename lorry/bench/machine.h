#pragma once

// A description of this machine and of the libraries found, for `lorry info` and the head of benchmark reports.

#include <nlohmann/json_fwd.hpp>

namespace lorry::bench {

/// {"lorry", "build", "compiler", "system", "cpu", "processors", "threads", "simd", "memory_gib", "libraries": {...},
/// "cuda"}
nlohmann::ordered_json describe_machine();

}  // namespace lorry::bench
