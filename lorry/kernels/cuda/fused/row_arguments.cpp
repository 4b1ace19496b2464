#include "lorry/kernels/cuda/fused/row_arguments.h"

#include <algorithm>
#include <bit>

#include "lorry/base/error.h"

namespace lorry::kernels::cuda {

RowArgument::RowArgument(const RowCall& call, const EmittedRows& emitted)
    : inputs_(emitted.inputs), access_masks_(emitted.access_masks) {
  words_ = {static_cast<uint64_t>(call.rows), static_cast<uint64_t>(call.n), access_masks_.size()};
  words_.resize(words_.size() + access_masks_.size());
  for (const EmittedRows::Number& x : emitted.numbers) {
    if (x.input >= 0) {
      const RowInput& input = call.inputs[static_cast<size_t>(x.input)];
      words_.push_back(bits_of(input.number, input.dtype, x.as));
    } else {
      words_.push_back(std::bit_cast<uint64_t>(x.step < 0 ? 1.0 / static_cast<double>(call.n)
                                                          : call.steps[static_cast<size_t>(x.step)].parameter));
    }
  }
  if (emitted.numbers.empty()) words_.push_back(0);
  words_.push_back(static_cast<uint64_t>(emitted.plan.lanes));
  require<ValueError>(words_.size() <= std::tuple_size_v<ArgumentWords>, "too many operands; got {}",
                      access_masks_.size());
}

bool RowArgument::write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs) const {
  std::ranges::copy(words_, to.begin());
  uint64_t wrong_bits = 0;
  for (size_t k = 0; k < access_masks_.size(); ++k) {
    void* const at = k < inputs_.size() ? inputs[inputs_[k]] : outputs[k - inputs_.size()];
    to[kOperandsWord + 1 + k] = reinterpret_cast<uint64_t>(at);
    wrong_bits |= reinterpret_cast<uint64_t>(at) & access_masks_[k];
  }
  return wrong_bits == 0;
}

}  // namespace lorry::kernels::cuda
