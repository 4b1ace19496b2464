#include "lorry/bench/lessons/plots.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "lorry/base/units.h"
#include "lorry/profile/svg.h"

namespace lorry::bench::lessons {
namespace {

/// Beyond this factor between the times, bars on a linear axis cannot be told apart.
constexpr double kLinear = 20;

/// Maps the logarithm of a value to a position.
struct LogScale {
  double low, high;  ///< powers of ten
  double from, to;   ///< positions
  double operator()(double value) const { return from + (std::log10(value) - low) / (high - low) * (to - from); }
};

LogScale log_scale(double least, double most, double from, double to) {
  const double low = std::floor(std::log10(least)), high = std::max(low + 1, std::ceil(std::log10(most)));
  return {low, high, from, to};
}

std::string label(double x, double y, std::string_view text, const char* kind) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", kind, x, y, profile::xml_text(text));
}

constexpr double kRow = 42, kBar = 14;

/// A way's name, its time, and below them its bar; share: of the width, 0 to 1.
std::string bar(const Comparison& comparison, size_t i, double share) {
  const Way& way = comparison.ways[i];
  const double y = static_cast<double>(i) * kRow;
  const char* kind = i == 0 ? "bar first" : i == comparison.good ? "bar good" : "bar";
  return label(0, y + 14, way.name, "way") +
         fmt::format("<text class=\"time\" x=\"100%\" y=\"{:.1f}\">{}</text>", y + 14,
                     duration_text(way.time.median_us)) +
         fmt::format("<rect class=\"{}\" x=\"0\" y=\"{:.1f}\" width=\"{:.2f}%\" height=\"{}\" rx=\"2\"/>", kind, y + 20,
                     100 * std::max(0.003, share), kBar);
}

}  // namespace

std::string bars_of(const Comparison& comparison) {
  double least = comparison.ways[0].time.median_us, most = least;
  for (const Way& way : comparison.ways)
    least = std::min(least, way.time.median_us), most = std::max(most, way.time.median_us);
  const bool logarithmic = least > 0 && most / least > kLinear;
  const LogScale scale = log_scale(logarithmic ? least / 1.01 : 1, logarithmic ? most : 10, 0, 1);
  const double bottom = static_cast<double>(comparison.ways.size()) * kRow;
  // Without a viewBox: bars take their share of the width that there is, and text keeps its size.
  std::string out = fmt::format("<svg class=\"bars\" width=\"100%\" height=\"{:.0f}\" role=\"img\" aria-label=\"{}\">",
                                bottom + (logarithmic ? 20 : 0), profile::xml_text("Times of: " + comparison.title));
  for (size_t i = 0; i < comparison.ways.size(); ++i) {
    const double us = comparison.ways[i].time.median_us;
    out += bar(comparison, i, logarithmic ? scale(us) : most > 0 ? us / most : 0);
  }
  if (logarithmic)
    for (double power = scale.low; power <= scale.high; ++power) {
      const char* kind = power == scale.low ? "way" : power == scale.high ? "time" : "tick";
      out += fmt::format("<text class=\"axis {}\" x=\"{:.2f}%\" y=\"{:.0f}\">{}</text>", kind,
                         100 * scale(std::pow(10, power)), bottom + 12, duration_text(std::pow(10, power)));
    }
  return out + "</svg>\n";
}

std::string roofline_of(const Ceilings& ceilings, const std::vector<Lesson>& lessons) {
  if (ceilings.copy_bytes <= 0 || ceilings.flops.empty()) return "";
  profile::Roofline plot{.title = "Roofline of this device", .bytes_per_s = 1e6 * ceilings.copy_bytes, .legend = false};
  for (const auto& [dtype, rate] : ceilings.flops) plot.roofs.push_back({dtype, 1e6 * rate});
  for (const Lesson& lesson : lessons)
    for (const Comparison& comparison : lesson.comparisons)
      for (const Way& way : comparison.ways) {
        if (way.work.flops <= 0 || way.work.bytes <= 0 || way.time.median_us <= 0) continue;
        const double rate = 1e6 * way.work.flops / way.time.median_us;
        plot.dots.push_back({fmt::format("lesson {}, {}: {}, {} {}", lesson.number, comparison.title, way.name,
                                         quantity(rate, "FLOP/s"), way.work.dtype),
                             way.work.flops / way.work.bytes, rate, 0});
      }
  return profile::to_svg(plot);
}

}  // namespace lorry::bench::lessons
