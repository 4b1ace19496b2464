#pragma once

// The text of a tensor's values, as PyTorch writes it: aligned columns, scientific notation when the magnitudes are far
// apart, three elements at either end of every dimension when there are more than a thousand. operator<< adds the rest
// (to_string.cpp).

#include <string>

#include "lorry/tensor/tensor.h"

namespace lorry {

inline constexpr int kPrintPrecision = 4;     ///< digits after the point
inline constexpr int kPrintThreshold = 1000;  ///< more elements are summarised
inline constexpr int kPrintEdge = 3;          ///< elements kept at either end
inline constexpr int kPrintWidth = 80;        ///< columns of a line

/// "[[1., 2.], [3., 4.]]" over several lines; lines after the first are indented to follow `indent` columns.
std::string values_text(const Tensor& x, int indent);

}  // namespace lorry
