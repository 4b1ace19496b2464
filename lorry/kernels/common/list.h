#pragma once

// Lists of tensors for kernels: n entries, each with a few dense arrays of equal length. A list is made once and
// reused. If a tensor moves, only its address changes here, and only that entry is sent to the device again.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lorry/device/choices.h"
#include "lorry/layout/device.h"
#include "lorry/layout/dtype.h"

namespace lorry::kernels {

/// The maximum number of arrays per entry: parameter, gradient, three states, and a master.
inline constexpr int kMaxArrays = 6;
/// Limits of an entry's fields; they are stored in this many bits on devices.
inline constexpr uint32_t kMaxWord = (1u << 24) - 1;
inline constexpr int64_t kMaxCount = (int64_t{1} << 40) - 1;

struct ListEntry {
  void* at[kMaxArrays] = {};
  int64_t count = 0;  ///< elements of each array; at most kMaxCount
  uint32_t word = 0;  ///< defined by the kernel, for example the number of the entry's hyper block; at most kMaxWord
  /// also defined by the kernel, for example a parameter's number, which is the same in all lists; at most kMaxWord
  uint32_t number = 0;
};

/// A device's cached form of a list.
struct ListOnDevice {
  virtual ~ListOnDevice() = default;
};

class List {
 public:
  /// dtypes: of the arrays of every entry, in order.
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
  /// Changes the address of an array.
  void move(size_t entry, int array, void* address) {
    if (entries_[entry].at[array] == address) return;
    entries_[entry].at[array] = address;
    if (!on_device_) return;
    moved_.push_back(static_cast<uint32_t>(entry));
    // Drop the cache if the list has not been used for long.
    if (moved_.size() > entries_.size() * static_cast<size_t>(arrays_)) {
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

  // ---- for the kernels of a device ---------------------------------------------------------------------------------
  /// Device cache, and entries moved since the last upload (may repeat).
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
