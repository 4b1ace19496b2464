#pragma once

// Storage: the memory of one or more tensors, and a version that counts writes to it. Views share a storage. Autograd
// compares versions to detect that a saved tensor has been overwritten.

#include <atomic>

#include "lorry/base/intrusive_ptr.h"
#include "lorry/base/recycled.h"
#include "lorry/layout/device.h"

namespace lorry {

namespace detail {
/// Counts writes that many storages have in common, such as an optimizer's steps: one increment raises the version of
/// all storages that have joined the epoch.
class Epoch : public Counted {
 public:
  /// of_gradients: a storage leaves this epoch when it holds no gradients any more.
  explicit Epoch(bool of_gradients = false) : of_gradients_(of_gradients) {}
  bool of_gradients() const { return of_gradients_; }
  void written_by(const char* operator_name) {
    count_.fetch_add(1, std::memory_order_relaxed);
    writer_.store(operator_name, std::memory_order_relaxed);
  }
  /// There will be no more common writes: the storages may join another epoch.
  void close() { closed_.store(true, std::memory_order_relaxed); }
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  uint32_t count() const { return count_.load(std::memory_order_relaxed); }
  const char* writer() const { return writer_.load(std::memory_order_relaxed); }
  void destroy() { delete this; }

 private:
  std::atomic<uint32_t> count_{0};
  std::atomic<const char*> writer_{nullptr};
  std::atomic<bool> closed_{false};
  const bool of_gradients_;
};
}  // namespace detail

class Storage : public Counted, public detail::Recycled<Storage> {
 public:
  using Deleter = void (*)(void* context);

  /// Memory from the device's allocator. Throws OutOfMemory.
  static IntrusivePtr<Storage> allocate(Device device, int64_t bytes);
  /// Pinned host memory (memory/allocate.h). Throws OutOfMemory.
  static IntrusivePtr<Storage> allocate_pinned(int64_t bytes);
  /// Managed memory, whose pages move between device and host (memory/allocate.h). Throws OutOfMemory.
  static IntrusivePtr<Storage> allocate_managed(Device device, int64_t bytes);
  /// Memory owned by other code. `deleter(context)` is called once, when the storage is destroyed. In-place operators
  /// refuse a read-only storage.
  static IntrusivePtr<Storage> foreign(Device device, void* data, int64_t bytes, Deleter deleter, void* context,
                                       bool read_only = false);

  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool read_only() const { return read_only_; }
  bool pinned() const { return kind_ == Kind::pinned; }
  bool managed() const { return kind_ == Kind::managed; }
  bool foreign() const { return deleter_ != nullptr; }

  uint32_t version() const { return version_.load(std::memory_order_relaxed) + (epoch_ ? epoch_->count() : 0); }
  /// The operator of the last write, for error messages; null if there was none.
  const char* last_writer() const {
    return epoch_ && epoch_->count() != epoch_seen_.load(std::memory_order_relaxed)
               ? epoch_->writer()
               : last_writer_.load(std::memory_order_relaxed);
  }
  void written_by(const char* operator_name) {
    version_.fetch_add(1, std::memory_order_relaxed);
    last_writer_.store(operator_name, std::memory_order_relaxed);
    if (epoch_) epoch_seen_.store(epoch_->count(), std::memory_order_relaxed);
  }
  /// How many writes were counted, and the last writer.
  struct Version {
    uint32_t count, epoch_seen;
    const char* writer;
  };
  Version written() const {
    return {version_.load(std::memory_order_relaxed), epoch_seen_.load(std::memory_order_relaxed),
            last_writer_.load(std::memory_order_relaxed)};
  }
  /// Takes back what was counted since, because the writes that were made count as earlier ones: those of calls that
  /// were deferred.
  void restore(const Version& version) {
    version_.store(version.count, std::memory_order_relaxed);
    epoch_seen_.store(version.epoch_seen, std::memory_order_relaxed);
    last_writer_.store(version.writer, std::memory_order_relaxed);
  }
  /// Joins an epoch: its writes count as writes to this storage from now on. Returns false if the storage is in another
  /// epoch that is not closed. No other thread may use the storage meanwhile.
  bool join(const IntrusivePtr<detail::Epoch>& epoch);
  /// Leaves its epoch. No other thread may use the storage meanwhile.
  void leave();
  bool has_joined(const detail::Epoch& epoch) const { return epoch_.get() == &epoch; }

  /// A number, at least 1, that is unique among all storages the process ever makes.
  uint64_t id() const;

  /// The number of owners without those that listeners hold (door::Observed). Decisions such as whether memory may be
  /// reused depend on this number.
  uint32_t users() const { return owners() - observers_.load(std::memory_order_acquire); }
  void add_observer() { observers_.fetch_add(1, std::memory_order_acq_rel); }
  void drop_observer() { observers_.fetch_sub(1, std::memory_order_acq_rel); }

  /// The number of parameters whose gradient is in this storage.
  int gradients() const { return gradients_.load(std::memory_order_relaxed); }
  void add_gradient() { gradients_.fetch_add(1, std::memory_order_relaxed); }
  /// When the last gradient is dropped, the storage leaves its gradient epoch.
  void drop_gradient();

  void destroy();

 private:
  enum class Kind : uint8_t { ordinary, pinned, managed };

  Storage(Device device, void* data, int64_t bytes, Deleter deleter, void* context, bool read_only)
      : data_(data), bytes_(bytes), deleter_(deleter), context_(context), device_(device), read_only_(read_only) {}

  void* data_;
  int64_t bytes_;
  Deleter deleter_;  // null: the memory is released to the device's allocator
  void* context_;
  std::atomic<const char*> last_writer_{nullptr};
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> epoch_seen_{0};  ///< the epoch's count at the last write that was not the epoch's
  IntrusivePtr<detail::Epoch> epoch_;
  std::atomic<int> gradients_{0};
  std::atomic<uint32_t> observers_{0};
  mutable std::atomic<uint64_t> id_{0};  ///< 0: not assigned yet
  Device device_;
  bool read_only_;
  Kind kind_ = Kind::ordinary;
};

}  // namespace lorry
