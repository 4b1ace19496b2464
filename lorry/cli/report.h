#pragma once

// The figures of a command as JSON (--json FILE).

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lorry::cli {

/// Writes `figures` to `path` as write_file does. Throws IoError.
void write_json(const std::string& path, const nlohmann::ordered_json& figures);

}  // namespace lorry::cli
