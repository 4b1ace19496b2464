#include "lorry/bench/lossy_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace lorry::bench {
namespace {

using Json = nlohmann::ordered_json;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json layer(const profile::LayerLoss& x) {
  return {{"name", x.name},
          {"original_bytes", x.original_bytes},
          {"compressed_bytes", x.compressed_bytes},
          {"loss", number(x.loss)},
          {"added", number(x.added)}};
}

}  // namespace

Json to_json(const profile::TensorLoss& x) {
  return {{"name", x.name},
          {"scheme", x.scheme},
          {"elements", x.elements},
          {"original_bytes", x.original_bytes},
          {"compressed_bytes", x.compressed_bytes},
          {"rate", number(x.rate())},
          {"smallest", number(x.smallest)},
          {"largest", number(x.largest)},
          {"max_error", number(x.max_error)},
          {"rms_error", number(x.rms_error)},
          {"snr_db", number(x.snr_db)},
          {"cosine", number(x.cosine)}};
}

Json to_json(const profile::ModelLoss& loss) {
  Json tensors = Json::array();
  for (const profile::TensorLoss& x : loss.tensors) tensors.push_back(to_json(x));
  return {{"tensors", tensors}, {"total", to_json(loss.total)}};
}

Json to_json(const profile::LossByLayer& loss) {
  Json layers = Json::array();
  for (const profile::LayerLoss& x : loss.layers) layers.push_back(layer(x));
  return {{"scheme", loss.scheme}, {"loss", number(loss.loss)}, {"layers", layers}, {"all", layer(loss.all)}};
}

}  // namespace lorry::bench
