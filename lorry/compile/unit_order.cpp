#include "lorry/compile/unit_order.h"

#include <algorithm>
#include <utility>

namespace lorry::compiler {

void UnitOrder::add_need(int u, int maker) {
  if (std::ranges::find(unit(u).needs, maker) != unit(u).needs.end()) return;
  unit(u).needs.push_back(maker);
  unit(maker).users.push_back(u);
  unit(u).rank = std::max(unit(u).rank, unit(maker).rank + 1);
  std::vector<int> raised{u};
  while (!raised.empty()) {
    const int above = raised.back();
    raised.pop_back();
    for (const int user : unit(above).users) {
      if (unit(user).rank > unit(above).rank) continue;
      unit(user).rank = unit(above).rank + 1;
      raised.push_back(user);
    }
  }
}

bool UnitOrder::depends(int u, int on) {
  std::vector<int> left{u};
  ++search_;
  while (!left.empty()) {
    const int at = left.back();
    left.pop_back();
    if (at == on) return true;
    if (unit(at).rank <= unit(on).rank || unit(at).searched == search_) continue;
    unit(at).searched = search_;
    left.insert(left.end(), unit(at).needs.begin(), unit(at).needs.end());
  }
  return false;
}

bool UnitOrder::depends_through_another(int u, int on) {
  return std::ranges::any_of(unit(u).needs, [&](int need) { return need != on && depends(need, on); });
}

void UnitOrder::merge(int u, int other) {
  const Unit from = std::exchange(unit(other), Unit());
  std::erase(unit(u).needs, other);
  std::erase(unit(u).users, other);
  for (const int need : from.needs) {
    std::erase(unit(need).users, other);
    if (need != u) add_need(u, need);
  }
  for (const int user : from.users) {
    std::erase(unit(user).needs, other);
    if (user != u) add_need(user, u);
  }
}

}  // namespace lorry::compiler
