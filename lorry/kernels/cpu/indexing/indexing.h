#pragma once

#include "lorry/kernels/indexing.h"

namespace lorry::kernels::cpu {

inline int64_t wrap(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

/// From a valid index to the offset of its element.
struct Trusted {
  int64_t size, step;

  int64_t operator()(int64_t index) { return wrap(index, size) * step; }
  bool all_valid() const { return true; }
};

/// The same from any index; that of the first element from an invalid one, which is remembered.
template <bool wraps>
struct Checked {
  int64_t size, step;
  bool valid = true;

  int64_t operator()(int64_t index) {
    if constexpr (wraps) index = wrap(index, size);
    const bool inside = static_cast<uint64_t>(index) < static_cast<uint64_t>(size);
    valid &= inside;
    return inside ? index * step : 0;
  }
  bool all_valid() const { return valid; }
};

void take(const TakeArgs& args, Stream);                       // take.cpp
bool take_checked(const TakeArgs& args, int64_t low, Stream);  // take.cpp
void put(const PutArgs& args, Stream);                         // put.cpp
bool put_checked(const PutArgs& args, Stream);                 // put.cpp
int64_t count_nonzero(const Array& x, Stream);                 // nonzero.cpp
void nonzero(const NonzeroArgs& args, Stream);                 // nonzero.cpp

}  // namespace lorry::kernels::cpu
