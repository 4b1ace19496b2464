#pragma once

// Lists of tensors as kernels see them: n entries, each of a few arrays with equally many elements, all dense, and how
// the list reaches a device. A list is made once and kept; when a tensor moves, its address is changed here, and the
// device learns only that.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/layout/device.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels {

/// The most arrays of an entry: parameter, gradient, three states, and a master.
inline constexpr int kMaxArrays = 6;
/// Beyond these an entry does not fit where devices keep it.
inline constexpr uint32_t kMaxWord = (1u << 24) - 1;
inline constexpr int64_t kMaxCount = (int64_t{1} << 40) - 1;

struct ListEntry {
  void* at[kMaxArrays] = {};
  int64_t count = 0;  ///< elements of each array; at most kMaxCount
  uint32_t word = 0;  ///< the kernel's own, such as which hyper-parameters are the entry's; at most kMaxWord
  uint32_t number =
      0;  ///< another, such as a parameter's number that stays the same whatever lists it is in; at most kMaxWord
};

/// What a device keeps of a list.
struct ListOnDevice {
  virtual ~ListOnDevice() = default;
};

class List {
 public:
  /// All entries have arrays of these dtypes, in this order.
  List(Device device, std::span<const DType> dtypes, Strategy strategy = Strategy::automatic);

  void add(const ListEntry& entry) {
    entries_.push_back(entry);
    elements_ += entry.count;
    on_device_.reset();
  }
  void clear() {
    entries_.clear();
    elements_ = 0;
    moved_.clear();
    on_device_.reset();
  }
  /// The array lies somewhere else now.
  void move(size_t entry, int array, void* address) {
    if (entries_[entry].at[array] == address) return;
    entries_[entry].at[array] = address;
    if (!on_device_) return;
    moved_.push_back(static_cast<uint32_t>(entry));
    if (moved_.size() >
        entries_.size() * static_cast<size_t>(arrays_)) {  // nobody has asked for long: forget rather than grow
      on_device_.reset();
      moved_.clear();
    }
  }

  Device device() const { return device_; }
  Strategy strategy() const { return strategy_; }
  int arrays() const { return arrays_; }
  DType dtype(int array) const { return dtypes_[array]; }
  std::span<const ListEntry> entries() const { return entries_; }
  int64_t elements() const { return elements_; }

  // ---- for the device's kernels: what it keeps, and which entries have moved since it learnt them (some perhaps
  // twice) --------------
  std::unique_ptr<ListOnDevice>& on_device() const { return on_device_; }
  std::vector<uint32_t>& moved() const { return moved_; }

 private:
  Device device_;
  Strategy strategy_;
  int arrays_;
  DType dtypes_[kMaxArrays] = {};
  std::vector<ListEntry> entries_;
  int64_t elements_ = 0;
  mutable std::unique_ptr<ListOnDevice> on_device_;
  mutable std::vector<uint32_t> moved_;
};

}  // namespace lorry::kernels
