#include "lorry/tensor/storage.h"

#include "lorry/memory/allocate.h"

namespace lorry {

IntrusivePtr<Storage> Storage::allocate(Device device, int64_t bytes) {
  return IntrusivePtr<Storage>(new Storage(device, memory::allocate(device, bytes), bytes, nullptr, nullptr, false));
}

IntrusivePtr<Storage> Storage::allocate_pinned(int64_t bytes) {
  const IntrusivePtr<Storage> storage(
      new Storage(kCPU, memory::allocate_pinned(bytes), bytes, nullptr, nullptr, false));
  storage->kind_ = Kind::pinned;
  return storage;
}

IntrusivePtr<Storage> Storage::allocate_managed(Device device, int64_t bytes) {
  const IntrusivePtr<Storage> storage(
      new Storage(device, memory::allocate_managed(device, bytes), bytes, nullptr, nullptr, false));
  storage->kind_ = Kind::managed;
  return storage;
}

IntrusivePtr<Storage> Storage::foreign(Device device, void* data, int64_t bytes, Deleter deleter, void* context,
                                       bool read_only) {
  return IntrusivePtr<Storage>(
      new Storage(device, data, bytes, deleter == nullptr ? [](void*) {} : deleter, context, read_only));
}

bool Storage::join(const IntrusivePtr<Epoch>& epoch) {
  if (epoch_ == epoch) return true;
  if (epoch_ && !epoch_->closed()) return false;
  // The version goes on from where it stood.
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
  int before = gradients();  // 0 where a gradient got this storage by set_data
  while (before > 0 && !gradients_.compare_exchange_weak(before, before - 1, std::memory_order_relaxed)) {
  }
  if (before <= 1 && epoch_ && epoch_->of_gradients()) leave();
}

void Storage::destroy() {
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
