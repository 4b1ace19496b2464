#include "lorry/tensor/storage.h"

#include "lorry/memory/allocate.h"
#include "lorry/tensor/facts.h"

namespace lorry {
namespace {

IntrusivePtr<Storage> born(Storage* made) {
  IntrusivePtr<Storage> storage(made);
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact(
        {.fact = Fact::born, .storage = made->id(), .bytes = made->bytes(), .device = made->device()});
  return storage;
}

}  // namespace

uint64_t Storage::id() const {
  static constinit std::atomic<uint64_t> last{0};
  uint64_t id = id_.load(std::memory_order_relaxed);
  if (id != 0) return id;
  const uint64_t next = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return id_.compare_exchange_strong(id, next, std::memory_order_relaxed) ? next : id;
}

IntrusivePtr<Storage> Storage::allocate(Device device, int64_t bytes) {
  return born(new Storage(device, memory::allocate(device, bytes), bytes, nullptr, nullptr, false));
}

IntrusivePtr<Storage> Storage::allocate_pinned(int64_t bytes) {
  auto* storage = new Storage(kCPU, memory::allocate_pinned(bytes), bytes, nullptr, nullptr, false);
  storage->kind_ = Kind::pinned;
  return born(storage);
}

IntrusivePtr<Storage> Storage::allocate_managed(Device device, int64_t bytes) {
  auto* storage = new Storage(device, memory::allocate_managed(device, bytes), bytes, nullptr, nullptr, false);
  storage->kind_ = Kind::managed;
  return born(storage);
}

IntrusivePtr<Storage> Storage::foreign(Device device, void* data, int64_t bytes, Deleter deleter, void* context,
                                       bool read_only) {
  return born(new Storage(device, data, bytes, deleter == nullptr ? [](void*) {} : deleter, context, read_only));
}

bool Storage::join(const IntrusivePtr<detail::Epoch>& epoch) {
  if (epoch_ == epoch) return true;
  if (epoch_ && !epoch_->closed()) return false;
  // The sum, the storage's version, does not change.
  last_writer_.store(last_writer(), std::memory_order_relaxed);
  version_.store(version() - epoch->count(), std::memory_order_relaxed);
  epoch_seen_.store(epoch->count(), std::memory_order_relaxed);
  epoch_ = epoch;
  return true;
}

void Storage::leave() {
  if (!epoch_) return;
  last_writer_.store(last_writer(), std::memory_order_relaxed);
  version_.store(version(), std::memory_order_relaxed);
  epoch_ = nullptr;
}

void Storage::drop_gradient() {
  int before = gradients();  // may be 0: set_data can give this storage to a gradient without counting it
  while (before > 0 && !gradients_.compare_exchange_weak(before, before - 1, std::memory_order_relaxed)) {
  }
  if (before <= 1 && epoch_ && epoch_->of_gradients()) leave();
}

void Storage::destroy() {
  if (detail::facts_heard()) [[unlikely]]
    detail::announce_fact({.fact = Fact::died, .storage = id(), .bytes = bytes_, .device = device_});
  if (deleter_ != nullptr) {
    deleter_(context_);
  } else if (pinned()) {
    memory::release_pinned(data_, bytes_);
  } else if (managed()) {
    memory::release_managed(device_, data_, bytes_);
  } else {
    memory::release(device_, data_, bytes_);
  }
  delete this;
}

}  // namespace lorry
