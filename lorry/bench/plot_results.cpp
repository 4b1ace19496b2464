#include "lorry/bench/plot_results.h"

#include <algorithm>
#include <cstdlib>

#include "lorry/bench/plot.h"

namespace lorry::bench {
namespace {

/// Curves over the batch, for results whose names end with one.
std::vector<Curve> batch_curves(const std::vector<Result>& results) {
  constexpr std::string_view kBatch = ", batch ";
  std::vector<Curve> curves;
  for (const Result& result : results) {
    const size_t at = result.name.rfind(kBatch);
    const std::string batch = at == std::string::npos ? "" : result.name.substr(at + kBatch.size());
    if (batch.empty() || batch.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string title = fmt::format("{}: {}", result.name.substr(0, at), result.implementation);
    auto curve = std::ranges::find(curves, title, &Curve::title);
    if (curve == curves.end()) curve = curves.insert(curves.end(), {.title = title, .points = {}, .marks = true});
    curve->points.emplace_back(std::atof(batch.c_str()), result.time.median_us);
  }
  std::erase_if(curves, [](const Curve& c) { return c.points.size() < 2; });
  return curves;
}

}  // namespace

std::optional<std::string> plot_results(const std::vector<Result>& results) {
  std::vector<std::string> models;
  for (const Result& result : results)
    if (!result.model.empty() && std::ranges::find(models, result.model) == models.end())
      models.push_back(result.model);
  if (const std::vector<Curve> curves = batch_curves(results); models.empty() && !curves.empty())
    return plot_curves("lorry bench", "batch", "us, median", curves);
  if (models.empty()) {
    std::vector<std::pair<std::string, double>> bars;
    for (const Result& result : results) {
      const std::string by = result.implementation == "lorry" ? "" : ", " + result.implementation;
      bars.emplace_back(result.suite + ": " + result.name + by, result.time.median_us);
    }
    return plot_bars("lorry bench", "us, median", bars);
  }
  std::vector<Series> bars;
  Series copies{.title = "bytes of the first at a copy's rate",
                .values = std::vector<std::optional<double>>(models.size())};
  for (const Result& result : results) {
    if (result.model.empty()) continue;
    const std::string label = result.name.substr(result.model.size() + 1);
    auto series = std::ranges::find(bars, label, &Series::title);
    if (series == bars.end())
      series = bars.insert(bars.end(), {.title = label, .values = std::vector<std::optional<double>>(models.size())});
    const size_t at = static_cast<size_t>(std::ranges::find(models, result.model) - models.begin());
    series->values[at] = result.time.median_us;
    if (result.ratio_to_ceiling && !copies.values[at])
      copies.values[at] = result.time.median_us * *result.ratio_to_ceiling;
  }
  if (models.size() > 1)
    std::erase_if(bars, [](const Series& s) {
      return std::ranges::count_if(s.values, [](const auto& v) { return v.has_value(); }) < 2;
    });
  return plot_groups("lorry bench", "us, median", models, bars, copies);
}

}  // namespace lorry::bench
