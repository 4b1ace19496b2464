#pragma once

// The functions of the indexing family, each defined with its kernels.

#include "lorry/kernels/indexing.h"

namespace lorry::kernels::cuda {

void flatten(const Array& out, const IndexTerm* terms, int count, Stream stream);  // take.cu
void take(const TakeArgs& args, Stream stream);                                    // take.cu
void put(const PutArgs& args, Stream stream);                                      // put.cu
bool put_rounds_once(int64_t indices);                                             // put.cu
int64_t count_nonzero(const Array& x, Stream stream);                              // nonzero.cu
void nonzero(const NonzeroArgs& args, Stream stream);                              // nonzero.cu
void repeat_positions(const Array& out, const Array& counts, Stream stream);       // repeat.cu

}  // namespace lorry::kernels::cuda
