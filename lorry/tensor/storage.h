#pragma once

// Storage: the bytes behind one or more tensors, with the version that counts writes to them. Views share a storage;
// autograd compares versions to notice that a tensor it saved has been overwritten.

#include <atomic>

#include "lorry/base/intrusive_ptr.h"
#include "lorry/base/recycled.h"
#include "lorry/layout/device.h"

namespace lorry {

namespace detail {
/// Writes that many storages have in common, such as an optimizer's steps: one addition counts a version of all that
/// have joined.
class Epoch : public Counted {
 public:
  /// of_gradients: a storage counts its writes while gradients lie in it.
  explicit Epoch(bool of_gradients = false) : of_gradients_(of_gradients) {}
  bool of_gradients() const { return of_gradients_; }
  void written_by(const char* operator_name) {
    count_.fetch_add(1, std::memory_order_relaxed);
    writer_.store(operator_name, std::memory_order_relaxed);
  }
  /// Nobody writes in common any more: the storages may join another.
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
  /// Host memory that copies to and from a GPU can use while the host goes on. Throws OutOfMemory.
  static IntrusivePtr<Storage> allocate_pinned(int64_t bytes);
  /// Memory of the device that moves to whoever touches it. Throws OutOfMemory.
  static IntrusivePtr<Storage> allocate_managed(Device device, int64_t bytes);
  /// Memory of somebody else's; `deleter(context)` is called once when the last view is gone. A read-only storage
  /// refuses in-place operators.
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
  /// The operator of the last write, for the error that names it; null before any.
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
  /// Counts the epoch's writes as its own from now on. False when it has joined another that is not closed. Not while
  /// another thread uses the storage.
  bool join(const IntrusivePtr<detail::Epoch>& epoch);
  /// Counts its own writes alone again. Not while another thread uses the storage.
  void leave();
  bool has_joined(const detail::Epoch& epoch) const { return epoch_.get() == &epoch; }

  /// A number that no other storage of the process has had or will have, at least 1.
  uint64_t id() const;

  /// The owners, without the references that listeners hold to what they were shown (door::Observed): whether memory
  /// may be taken over is decided by these.
  uint32_t users() const { return owners() - observers_.load(std::memory_order_acquire); }
  void add_observer() { observers_.fetch_add(1, std::memory_order_acq_rel); }
  void drop_observer() { observers_.fetch_sub(1, std::memory_order_acq_rel); }

  /// How many parameters have a gradient that lies here.
  int gradients() const { return gradients_.load(std::memory_order_relaxed); }
  void add_gradient() { gradients_.fetch_add(1, std::memory_order_relaxed); }
  /// The last one that goes leaves an epoch of gradients: what an optimizer zeroes from now on lies elsewhere.
  void drop_gradient();

  void destroy();

 private:
  enum class Kind : uint8_t { ordinary, pinned, managed };

  Storage(Device device, void* data, int64_t bytes, Deleter deleter, void* context, bool read_only)
      : data_(data), bytes_(bytes), deleter_(deleter), context_(context), device_(device), read_only_(read_only) {}

  void* data_;
  int64_t bytes_;
  Deleter deleter_;  // null: the device's allocator takes the memory back
  void* context_;
  std::atomic<const char*> last_writer_{nullptr};
  std::atomic<uint32_t> version_{0};
  std::atomic<uint32_t> epoch_seen_{0};  ///< at the last write of its own
  IntrusivePtr<detail::Epoch> epoch_;
  std::atomic<int> gradients_{0};
  std::atomic<uint32_t> observers_{0};
  mutable std::atomic<uint64_t> id_{0};  ///< 0: nobody has asked yet
  Device device_;
  bool read_only_;
  Kind kind_ = Kind::ordinary;
};

}  // namespace lorry
