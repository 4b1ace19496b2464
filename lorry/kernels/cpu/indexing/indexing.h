#pragma once

#include "lorry/kernels/indexing.h"

namespace lorry::kernels::cpu {

inline int64_t wrap(int64_t index, int64_t size) { return index < 0 ? index + size : index; }

void take(const TakeArgs& args, Stream);                       // take.cpp
bool take_checked(const TakeArgs& args, int64_t low, Stream);  // take.cpp
void put(const PutArgs& args, Stream);                         // put.cpp
int64_t count_nonzero(const Array& x, Stream);                 // nonzero.cpp
void nonzero(const NonzeroArgs& args, Stream);                 // nonzero.cpp

}  // namespace lorry::kernels::cpu
