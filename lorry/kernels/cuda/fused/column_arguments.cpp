#include "lorry/kernels/cuda/fused/column_arguments.h"

#include <algorithm>

#include "lorry/base/error.h"

namespace lorry::kernels::cuda {

ColumnArgument::ColumnArgument(const MapCall& call, const EmittedColumns& emitted) : inputs_(emitted.inputs) {
  std::vector<uint64_t> strides;
  const auto look = [&](const FusedOperand& x) {
    strides.push_back(static_cast<uint64_t>(x.layout.strides[0]));
    access_masks_.push_back(x.layout.strides[1] != 0 ? static_cast<uint64_t>(emitted.width * size_of(x.dtype) - 1) : 0);
  };
  for (const size_t i : inputs_) look(call.inputs[i]);
  for (const FusedOutput& x : call.outputs) look(x.to);
  if (strides.empty()) strides.push_back(0);
  access_masks_.resize(access_masks_.size() + call.sums.size());  // sums are stored element by element

  const ColumnTiling& tiling = emitted.tiling;
  const size_t count = access_masks_.size() + 2;
  words_ = {static_cast<uint64_t>(tiling.rows), static_cast<uint64_t>(tiling.n), count};
  words_.resize(words_.size() + count);
  for (const MapNumber& number : emitted.numbers)
    words_.push_back(bits_of(call.inputs[number.input].number, call.inputs[number.input].dtype, number.as));
  if (emitted.numbers.empty()) words_.push_back(0);
  words_.insert(words_.end(), strides.begin(), strides.end());
  for (const int64_t x : {int64_t{tiling.lane_bits}, tiling.tiles, tiling.parts})
    words_.push_back(static_cast<uint64_t>(x));
  require<ValueError>(words_.size() <= std::tuple_size_v<ArgumentWords>, "too many operands; got {}", count);
}

bool ColumnArgument::write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs,
                           void* cells, void* tickets) const {
  std::ranges::copy(words_, to.begin());
  uint64_t wrong_bits = 0;
  auto next = to.begin() + kOperandsWord + 1;
  for (size_t k = 0; k < access_masks_.size(); ++k) {
    void* const at = k < inputs_.size() ? inputs[inputs_[k]] : outputs[k - inputs_.size()];
    *next++ = reinterpret_cast<uint64_t>(at);
    wrong_bits |= reinterpret_cast<uint64_t>(at) & access_masks_[k];
  }
  *next++ = reinterpret_cast<uint64_t>(cells);
  *next = reinterpret_cast<uint64_t>(tickets);
  return wrong_bits == 0;
}

}  // namespace lorry::kernels::cuda
