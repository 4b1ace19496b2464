#include "lorry/kernels/cuda/fused/map_arguments.h"

#include <algorithm>
#include <cstring>

#include "lorry/kernels/cuda/common/strided_indexer.h"

namespace lorry::kernels::cuda {
namespace {

/// Whether every group of `width` elements lies within the innermost dimension and is aligned if the first one is.
bool has_groups(const Iteration& it, int layout, DType dtype, int width) {
  if (it.rank > 1 && it.sizes[0] % width != 0) return false;
  for (int d = 1; d < it.rank && it.strides[layout][0] == 1; ++d)
    if (it.strides[layout][d] * size_of(dtype) % std::min<int64_t>(16, width * size_of(dtype)) != 0) return false;
  return true;
}

template <class Division>
void append(std::vector<uint64_t>& words, std::span<const int64_t> divisors) {
  const std::vector<Division> steps(divisors.begin(), divisors.end());
  const size_t bytes = steps.size() * sizeof(Division), at = words.size();
  words.resize(at + (bytes + 7) / 8);
  std::memcpy(words.data() + at, steps.data(), bytes);
}

}  // namespace

MapArgument::MapArgument(const MapCall& call, const Walk& walk, const EmittedMap& emitted) : inputs_(emitted.inputs) {
  const Iteration& it = walk.iteration;
  const size_t count = inputs_.size() + call.outputs.size();
  const int64_t elements = it.numel();
  words_ = {static_cast<uint64_t>(elements), 0, count};
  words_.resize(first_address + count);
  for (const MapNumber& number : emitted.numbers)
    words_.push_back(bits_of(call.inputs[number.input].number, call.inputs[number.input].dtype, number.as));
  if (emitted.numbers.empty()) words_.push_back(0);
  for (int k = 0; k < it.operands; ++k)
    for (int d = 0; d < it.rank; ++d) words_.push_back(static_cast<uint64_t>(it.strides[k][d]));
  const std::span<const int64_t> sizes(it.sizes, static_cast<size_t>(it.rank));
  if (emitted.wide)
    append<WideDivider>(words_, sizes);
  else
    append<Divider>(words_, sizes);

  const auto look = [&](int layout, DType dtype) {
    vectors_ &= has_groups(it, layout, dtype, emitted.width);
    const int64_t bytes = std::min<int64_t>(16, emitted.width * size_of(dtype));
    access_masks_.push_back(it.strides[layout][0] == 1 ? static_cast<uint64_t>(bytes - 1) : 0);
  };
  for (const size_t i : inputs_) look(walk.of_input[i], call.inputs[i].dtype);
  for (size_t o = 0; o < call.outputs.size(); ++o) look(walk.of_output[o], call.outputs[o].to.dtype);
  require<ValueError>(words_.size() <= std::tuple_size_v<ArgumentWords>, "too many operands; got {}", count);
  const int64_t tile = int64_t{kMapBlock} * emitted.groups * emitted.width;
  blocks_ = static_cast<unsigned>((elements + tile - 1) / tile);
}

void MapArgument::write(ArgumentWords& to, std::span<void* const> inputs, std::span<void* const> outputs) const {
  std::ranges::copy(words_, to.begin());
  uint64_t wrong_bits = 0;
  for (size_t k = 0; k < access_masks_.size(); ++k) {
    void* const at = k < inputs_.size() ? inputs[inputs_[k]] : outputs[k - inputs_.size()];
    to[first_address + k] = reinterpret_cast<uint64_t>(at);
    wrong_bits |= reinterpret_cast<uint64_t>(at) & access_masks_[k];
  }
  to[vectors] = vectors_ && wrong_bits == 0;
}

}  // namespace lorry::kernels::cuda
