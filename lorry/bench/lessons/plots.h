#pragma once

// The plots of the page: SVG inside HTML, drawn here so that the page needs no other program. Colours are CSS
// variables of the page.

#include <string>
#include <vector>

#include "lorry/bench/lessons.h"

namespace lorry::bench::lessons {

/// A horizontal bar for the time of each way. The axis is logarithmic if the times differ by more than a factor of 20.
std::string bars_of(const Comparison& comparison);

/// The roofline of the device (profile/svg.h), with a line for each dtype and the ways of the lessons that count bytes
/// and operations as dots. Empty if no ceiling was measured.
std::string roofline_of(const Ceilings& ceilings, const std::vector<Lesson>& lessons);

}  // namespace lorry::bench::lessons
