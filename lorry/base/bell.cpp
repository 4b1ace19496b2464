#include "lorry/base/bell.h"

#include <mutex>
#include <utility>

namespace lorry::bell {
namespace {
std::mutex g_mutex;
Listener& current() {
  static Listener& listener = *new Listener;  // never destroyed: static objects may ring while the process ends
  return listener;
}
}  // namespace

Listener listen(Listener listener) {
  const std::scoped_lock lock(g_mutex);
  detail::listening.store(static_cast<bool>(listener), std::memory_order_relaxed);
  return std::exchange(current(), std::move(listener));
}

void detail::ring(const Ring& what) {
  Listener listener;
  {
    const std::scoped_lock lock(g_mutex);
    listener = current();
  }
  if (listener) listener(what);
}

}  // namespace lorry::bell
