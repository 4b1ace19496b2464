#pragma once

// What the files of this folder give to the table of kernels. fill_rules adds one share of the rules (optim.cu).

#include "lorry/kernels/optim.h"

namespace lorry::kernels::cuda {

inline constexpr int kRuleShares = 8;
template <int kShare>
void fill_rules(OptimKernels& kernels);

void decompress(const CompressedCall& call, const Stream& stream);
void compress(const CompressedCall& call, const Stream& stream);
bool prepare_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream);
void step_recorded(const RecordedRule& rule, RecordedBlocks blocks, const StepCall& call, const Stream& stream);

}  // namespace lorry::kernels::cuda
