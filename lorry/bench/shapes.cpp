#include "lorry/bench/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lorry/base/error.h"
#include "lorry/bench/shapes_text.h"

namespace lorry::bench {

std::vector<Dims> ModelShapes::shapes() const {
  std::vector<Dims> all;
  for (const auto& [count, shape] : runs) all.insert(all.end(), static_cast<size_t>(count), shape);
  return all;
}

int64_t ModelShapes::tensors() const {
  int64_t sum = 0;
  for (const auto& [count, shape] : runs) sum += count;
  return sum;
}

int64_t ModelShapes::elements() const {
  int64_t sum = 0;
  for (const auto& [count, shape] : runs) {
    int64_t product = count;
    for (const int64_t size : shape) product *= size;
    sum += product;
  }
  return sum;
}

const std::vector<ModelShapes>& model_shapes() {
  static const std::vector<ModelShapes> kModels = [] {
    const auto file = nlohmann::ordered_json::parse(kShapesText);
    std::vector<ModelShapes> models;
    for (const auto& [name, runs] : file.items()) {
      ModelShapes& model = models.emplace_back(ModelShapes{.name = name, .runs = {}});
      for (const auto& run : runs) {
        Dims shape;
        for (const auto& size : run[1]) shape.push_back(size.get<int64_t>());
        model.runs.emplace_back(run[0].get<int64_t>(), shape);
      }
    }
    return models;
  }();
  return kModels;
}

const ModelShapes& model_shapes(std::string_view name) {
  const auto& models = model_shapes();
  const auto found = std::ranges::find(models, name, &ModelShapes::name);
  if (found != models.end()) return *found;
  std::vector<std::string> names;
  for (const ModelShapes& model : models) names.push_back(model.name);
  raise<ValueError>("model_shapes: unknown model; got '{}'; expected one of {}", name, fmt::join(names, ", "));
}

}  // namespace lorry::bench
