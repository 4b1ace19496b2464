#pragma once

// Curves and bars as the text of an SVG, through gnuplot where it is installed. A plot is an extra: without gnuplot
// nothing is drawn, and the caller says so.

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lorry::bench {

struct Curve {
  std::string title;
  std::vector<std::pair<double, double>> points;
  bool marks = false;  ///< few points, each worth seeing
};

bool can_plot();

/// Lines over a common x axis. Nothing when gnuplot is missing or fails.
std::optional<std::string> plot_curves(const std::string& title, const std::string& x, const std::string& y,
                                       const std::vector<Curve>& curves);

/// One horizontal bar a name.
std::optional<std::string> plot_bars(const std::string& title, const std::string& unit,
                                     const std::vector<std::pair<std::string, double>>& bars);

/// A value a group; those that are missing leave a gap.
struct Series {
  std::string title;
  std::vector<std::optional<double>> values;
};

/// Bars side by side in each group, on a logarithmic axis, and `line` as a mark across each group.
std::optional<std::string> plot_groups(const std::string& title, const std::string& unit,
                                       const std::vector<std::string>& groups, const std::vector<Series>& bars,
                                       const Series& line);

}  // namespace lorry::bench
