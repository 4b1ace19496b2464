#pragma once

// Which units need the results of which, while units are being made and merged.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorry::compiler {

/// Units have numbers from 0. Nothing may be added that would make a unit need itself.
class UnitOrder {
 public:
  void add_unit() { units_.emplace_back(); }
  void add_need(int unit, int maker);
  /// Whether a unit needs, directly or through others, the results of another. A unit depends on itself.
  bool depends(int unit, int on);
  /// The same, but through a third unit.
  bool depends_through_another(int unit, int on);
  /// Gives a unit the needs of another and those who need it. The other has none afterwards.
  void merge(int unit, int other);
  const std::vector<int>& needs(int unit) const { return units_[static_cast<size_t>(unit)].needs; }

 private:
  struct Unit {
    std::vector<int> needs, users;
    int rank = 0;           ///< greater than that of every unit it needs
    uint32_t searched = 0;  ///< the last search that visited it
  };
  Unit& unit(int u) { return units_[static_cast<size_t>(u)]; }

  std::vector<Unit> units_;
  uint32_t search_ = 0;
};

}  // namespace lorry::compiler
