#pragma once

// Plots as SVG, without another program: areas over time, and the roofline (Williams, Waterman, Patterson, "Roofline:
// an insightful visual performance model for multicore architectures", CACM 2009). They follow the reader's light or
// dark colours.

#include <string>
#include <string_view>
#include <vector>

namespace lorry::profile {

/// Areas on top of each other: columns[i][k] is the height of area k at x[i]; the first is the lowest.
struct StackedAreas {
  std::string title, x_label, y_label;
  std::vector<std::string> names = {};
  std::vector<double> x = {};                     ///< microseconds, rising
  std::vector<std::vector<double>> columns = {};  ///< bytes
};
std::string to_svg(const StackedAreas& plot);

/// Work against what the device can do. Axes are logarithmic.
struct Roofline {
  std::string title = {};
  double bytes_per_s = 0;
  struct Roof {
    std::string name = {};
    double flops_per_s;
  };
  std::vector<Roof> roofs = {};
  struct Dot {
    std::string name = {};
    double flops_per_byte, flops_per_s;
    double share;  ///< of the time, 0 to 1: the dot's area
  };
  std::vector<Dot> dots = {};  ///< those without operations are left out
  bool legend = true;          ///< false: the dots' names are seen only under the pointer
};
std::string to_svg(const Roofline& plot);

/// The text for XML and HTML: &, <, > and both quotes are escaped, and control characters are left out.
std::string xml_text(std::string_view text);

}  // namespace lorry::profile
