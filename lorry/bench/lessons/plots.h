#pragma once

// The plots of the page: SVG inside HTML, drawn here so that the page needs no other program. Colours are CSS
// variables of the page.

#include <string>
#include <string_view>
#include <vector>

#include "lorry/bench/lessons.h"

namespace lorry::bench::lessons {

/// Text for HTML and XML: & < > " and ' are escaped, and control characters become spaces.
std::string escaped(std::string_view text);

/// A horizontal bar for the time of each way. The axis is logarithmic if the times differ by more than a factor of 20.
std::string bars_of(const Comparison& comparison);

/// The roofline of the device (Williams, Waterman, Patterson 2009): attainable FLOP/s over FLOPs a byte, a line for
/// each dtype, with the ways of the lessons that have both as points. Empty if no ceiling was measured.
std::string roofline_of(const Ceilings& ceilings, const std::vector<Lesson>& lessons);

}  // namespace lorry::bench::lessons
