#pragma once

// A vector with inline storage and a fixed capacity, so that shapes and operand lists need no heap. Exceeding the
// capacity throws ShapeError.

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <type_traits>

#include "lorry/base/error.h"

namespace lorry {

template <class T, int Capacity>
class FixedVector {
 public:
  using value_type = T;

  constexpr FixedVector() = default;
  constexpr FixedVector(std::initializer_list<T> items) { assign(items.begin(), items.end()); }
  /// A single number is a list of one: x.sum(1) and x.sum({1}) are the same call.
  template <class I>
  requires(std::is_integral_v<I>&& std::is_same_v<T, int64_t>) constexpr FixedVector(I single)
      : items_{static_cast<T>(single)}, size_(1) {}
  /// From any range of T (std::vector, std::span, std::array).
  template <class Range>
  requires requires(const Range& r) {
    std::begin(r);
    static_cast<T>(*std::begin(r));
  }
  constexpr FixedVector(const Range& range) { assign(std::begin(range), std::end(range)); }
  static constexpr FixedVector filled(int count, const T& value) {
    FixedVector v;
    v.resize(count, value);
    return v;
  }

  constexpr int size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  static constexpr int capacity() { return Capacity; }
  constexpr T* begin() { return items_; }
  constexpr T* end() { return items_ + size_; }
  constexpr const T* begin() const { return items_; }
  constexpr const T* end() const { return items_ + size_; }
  constexpr T* data() { return items_; }
  constexpr const T* data() const { return items_; }
  constexpr T& operator[](int i) { return items_[i]; }
  constexpr const T& operator[](int i) const { return items_[i]; }
  constexpr T& back() { return items_[size_ - 1]; }
  constexpr const T& back() const { return items_[size_ - 1]; }

  constexpr void push_back(const T& item) {
    reserve_for(size_ + 1);
    items_[size_++] = item;
  }
  constexpr void pop_back() { --size_; }
  constexpr void resize(int count, const T& value = T()) {
    reserve_for(count);
    for (int i = size_; i < count; ++i) items_[i] = value;
    size_ = count;
  }
  constexpr void insert(int at, const T& item) {
    reserve_for(size_ + 1);
    for (int i = size_; i > at; --i) items_[i] = items_[i - 1];
    items_[at] = item;
    ++size_;
  }
  constexpr void erase(int at) {
    for (int i = at; i + 1 < size_; ++i) items_[i] = items_[i + 1];
    --size_;
  }
  constexpr void clear() { size_ = 0; }
  constexpr bool contains(const T& item) const {
    for (const T& t : *this)
      if (t == item) return true;
    return false;
  }

  friend constexpr bool operator==(const FixedVector& a, const FixedVector& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (!(a.items_[i] == b.items_[i])) return false;
    return true;
  }

 private:
  template <class It>
  constexpr void assign(It first, It last) {
    for (; first != last; ++first) push_back(static_cast<T>(*first));
  }
  static constexpr void reserve_for(int count) {
    if (count > Capacity) [[unlikely]]
      raise<ShapeError>("too many dimensions; got {}; expected at most {}", count, Capacity);
  }

  T items_[Capacity] = {};
  int size_ = 0;
};

}  // namespace lorry
