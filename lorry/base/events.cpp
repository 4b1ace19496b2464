#include "lorry/base/events.h"

#include <mutex>
#include <utility>

namespace lorry::events {
namespace {
std::mutex g_mutex;
Handler& current() {
  static Handler& handler = *new Handler;  // never destroyed: static objects may emit events while the process ends
  return handler;
}
}  // namespace

Handler set_handler(Handler handler) {
  const std::scoped_lock lock(g_mutex);
  detail::handled.store(static_cast<bool>(handler), std::memory_order_relaxed);
  return std::exchange(current(), std::move(handler));
}

void detail::emit(const Event& event) {
  Handler handler;
  {
    const std::scoped_lock lock(g_mutex);
    handler = current();
  }
  if (handler) handler(event);
}

}  // namespace lorry::events
