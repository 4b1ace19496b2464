#pragma once

// Curves and bars as SVG text, drawn by gnuplot. Plots are optional: without gnuplot nothing is drawn, and the caller
// says so.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lorry::bench {

struct Curve {
  std::string title;
  std::vector<std::pair<double, double>> points;
  bool marks = false;  ///< marks each point
};

bool can_plot();

/// Lines over a common x axis. None if gnuplot is missing or fails.
std::optional<std::string> plot_curves(const std::string& title, const std::string& x, const std::string& y,
                                       const std::vector<Curve>& curves);

/// One horizontal bar per name.
std::optional<std::string> plot_bars(const std::string& title, const std::string& unit,
                                     const std::vector<std::pair<std::string, double>>& bars);

/// One value per group; missing values leave a gap.
struct Series {
  std::string title;
  std::vector<std::optional<double>> values;
};

/// Bars next to each other in each group, on a logarithmic axis; `line` is a mark across each group.
std::optional<std::string> plot_groups(const std::string& title, const std::string& unit,
                                       const std::vector<std::string>& groups, const std::vector<Series>& bars,
                                       const Series& line);

}  // namespace lorry::bench
