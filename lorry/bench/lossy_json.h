#pragma once

// What compression costs (profile/lossy.h) as JSON. Figures that are not finite are null.

#include <nlohmann/json_fwd.hpp>

#include "lorry/profile/lossy.h"

namespace lorry::bench {

/// {"name", "scheme", "elements", "original_bytes", "compressed_bytes", "rate", "smallest", "largest", "max_error",
/// "rms_error", "snr_db", "cosine"}
nlohmann::ordered_json to_json(const profile::TensorLoss& loss);
/// {"tensors": [...], "total": {...}}
nlohmann::ordered_json to_json(const profile::ModelLoss& loss);
/// {"scheme", "loss", "layers": [{"name", "original_bytes", "compressed_bytes", "loss", "added"}, ...], "all": {...}}
nlohmann::ordered_json to_json(const profile::LossByLayer& loss);

}  // namespace lorry::bench
