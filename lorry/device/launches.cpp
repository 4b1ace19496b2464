#include "lorry/device/launches.h"

#include <utility>

namespace lorry::device {

void announce(const Launch& launch) noexcept {
  ObserveLaunches* const innermost = std::exchange(detail::t_launch_observers, nullptr);
  for (const ObserveLaunches* scope = innermost; scope != nullptr; scope = scope->outer_)
    scope->observer_.launched(launch);
  detail::t_launch_observers = innermost;
}

}  // namespace lorry::device
