#pragma once

// The domains of optimizers' options.

#include <cmath>

#include "lorry/base/error.h"

namespace lorry::optim {

/// Checks options of one optimizer and names it in what it throws: ValueError.
class Domain {
 public:
  explicit Domain(const char* where) : where_(where) {}

  void not_negative(const char* what, double value) const {
    require<ValueError>(value >= 0 && std::isfinite(value),
                        "{}: {} is out of range; got {}; expected a finite number >= 0", where_, what, value);
  }
  void positive(const char* what, double value) const {
    require<ValueError>(value > 0 && std::isfinite(value),
                        "{}: {} is out of range; got {}; expected a finite number > 0", where_, what, value);
  }
  /// A share such as beta: [0, 1).
  void below_one(const char* what, double value) const {
    require<ValueError>(value >= 0 && value < 1, "{}: {} is out of range; got {}; expected 0 <= {} < 1", where_, what,
                        value, what);
  }
  void between(const char* what, double least, double value, double most) const {
    require<ValueError>(value >= least && value <= most, "{}: {} is out of range; got {}; expected {} <= {} <= {}",
                        where_, what, value, least, what, most);
  }
  void finite(const char* what, double value) const {
    require<ValueError>(std::isfinite(value), "{}: {} is out of range; got {}; expected a finite number", where_, what,
                        value);
  }

 private:
  const char* where_;
};

}  // namespace lorry::optim
