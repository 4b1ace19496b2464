#include "lorry/optim/execution/eager.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "lorry/device/device.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/backend.h"

namespace lorry::optim {
namespace {

constexpr int64_t kUnit = formula::kQuantBlock;  // elements: parts of parameters begin at multiples
constexpr int64_t kAligned = 64;                 // elements: parts begin at multiples of it in the buffers
constexpr int64_t kOtherBytes = 4'096;  // of a budget, for numbers: the step's own, and 0-d tensors such as a norm
constexpr size_t kMostArguments = 512;  // entries that fit into a kernel's arguments

/// The largest size up to `bytes` that allocators do not round up: a power of two plus zero to three quarters of it.
int64_t whole_block(int64_t bytes) {
  if (bytes < 1'024) return bytes / 512 * 512;
  const int64_t quarter = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 4;
  return bytes / quarter * quarter;
}
/// The smallest such size from `bytes` on.
int64_t enclosing_block(int64_t bytes) {
  if (bytes <= 1'024) return (bytes + 511) / 512 * 512;
  const int64_t quarter = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes - 1))) / 4;
  return (bytes + quarter - 1) / quarter * quarter;
}

}  // namespace

int64_t elements_within(int64_t budget, int64_t bytes_per_element) {
  if (budget == 0 || bytes_per_element == 0) return INT64_MAX;
  return whole_block(std::max<int64_t>(budget - kOtherBytes, 0)) / bytes_per_element / kUnit * kUnit;
}

int64_t least_budget(int64_t bytes_per_element) { return kOtherBytes + enclosing_block(kUnit * bytes_per_element); }

int64_t room_for(int64_t count) { return (count + kAligned - 1) / kAligned * kAligned; }

// ---- preparation ----------------------------------------------------------------------------------------------------

EagerStep::EagerStep(const EagerWork& work, std::vector<SteppedParameter> parameters, int64_t budget, int64_t wanted,
                     size_t most_parts)
    : work_(work),
      parameters_(std::move(parameters)),
      // Lists pass as kernel arguments: these need no device memory.
      strategy_(most_parts <= kMostArguments ? Strategy::automatic : Strategy::kernel_args_32k) {
  const Running running(work_.where);
  for (const int width : work_.program.buffers) {
    buffer_starts_.push_back(element_bytes_);
    element_bytes_ += width;
  }
  const int64_t most_elements = elements_within(budget, element_bytes_);
  require<ValueError>(most_elements > 0,
                      "memory_budget is too small for 256 elements at a time; got {} bytes; expected at least {}",
                      budget, least_budget(element_bytes_));
  capacity_ = std::min(wanted, most_elements);
  require<ValueError>(work_.program.number_count * 8 <= kNumberBytes,
                      "the rule computes with {} numbers for all elements; expected at most {}",
                      work_.program.number_count, kNumberBytes / 8);
  parts_.reserve(most_parts);
  for (const Instruction& x : work_.program.numbers) number_lists_.push_back(empty_list(x, 1));
  for (const Instruction& x : work_.program.arrays) lists_.push_back(empty_list(x, most_parts));
  if (work_.zero_grads) zeros_.emplace(empty_list(std::span(&work_.grad_dtype, 1), most_parts));
}

/// An empty list for an instruction, with host memory for its entries.
kernels::List EagerStep::empty_list(const Instruction& x, size_t entries) const {
  if (x.kind != Instruction::Kind::compute) {
    const DType dtypes[] = {kF32, array_dtype(x.state)};
    return empty_list(dtypes, entries);
  }
  DType dtypes[1 + 4] = {x.out.dtype};
  for (int k = 0; k < x.arity; ++k) dtypes[1 + k] = x.in[k].dtype;
  return empty_list(std::span(dtypes, static_cast<size_t>(1 + x.arity)), entries);
}

kernels::List EagerStep::empty_list(std::span<const DType> dtypes, size_t entries) const {
  kernels::List list(work_.device, dtypes, strategy_);
  for (size_t e = 0; e < entries; ++e) list.add({});
  list.clear();
  return list;
}

// ---- addresses ------------------------------------------------------------------------------------------------------

DType EagerStep::array_dtype(int state) const { return state < 0 ? work_.dtype : work_.state_dtypes[state]; }

char* EagerStep::buffer(int b, const Part& part) const {
  return buffers_ + capacity_ * buffer_starts_[static_cast<size_t>(b)] +
         part.offset * work_.program.buffers[static_cast<size_t>(b)];
}

void* EagerStep::address_of(const Location& location, const Part& part) const {
  const auto of_entry = [&](int array, DType dtype) {
    return static_cast<char*>(part.parameter->entry->at[array]) + part.first * size_of(dtype);
  };
  const auto state = [&](int k) {
    return work_.program.copies[k] >= 0 ? buffer(work_.program.copies[k], part)
                                        : of_entry(2 + k, work_.state_dtypes[k]);
  };
  switch (location.kind) {
    case Location::Kind::param:
      return of_entry(0, work_.dtype);
    case Location::Kind::grad:
      return of_entry(1, work_.grad_dtype);
    case Location::Kind::state:
      return state(location.index);
    case Location::Kind::master:
      return state(work_.states);
    default:
      return buffer(location.index, part);
  }
}

kernels::ListOperand EagerStep::operand(const Location& location, DType compute) const {
  kernels::ListOperand x;
  x.kind = kernels::ListOperand::Kind::values;
  x.dtype = location.dtype;
  switch (location.kind) {
    case Location::Kind::number:
      x.values = numbers_ + 8 * location.index;
      return x;
    case Location::Kind::hyper:
      x.values =
          std::visit([&](const auto& numbers) -> const void* { return &numbers[static_cast<size_t>(location.index)]; },
                     work_.hyper);
      return x;
    case Location::Kind::setting:
      x.values = work_.settings[static_cast<size_t>(location.index)];
      return x;
    case Location::Kind::factor:
      x.values = grad_factor_;
      return x;
    case Location::Kind::constant:
      break;
    default:
      return {};  // an array
  }
  x.kind = kernels::ListOperand::Kind::number;
  x.dtype = compute == kI64 ? kI64 : kF64;
  if (compute == kI64)
    x.whole = static_cast<int64_t>(location.constant);
  else
    x.real = location.constant;
  return x;
}

// ---- copies of states -----------------------------------------------------------------------------------------------

/// Calls copy(state, whole, own, bytes) for each contiguous range of state k of a part, which lies at `whole`; `own` is
/// its address in a buffer. The codes and the scales of an 8-bit state are two ranges.
template <class F>
void EagerStep::for_ranges(int k, const Part& part, const F& copy) const {
  const Tensor& state = part.parameter->states[k];
  char *const whole = static_cast<char*>(state.data_ptr()), *const own = buffer(work_.program.copies[k], part);
  const DType dtype = work_.state_dtypes[k];
  if (dtype != kU8) return copy(state, whole + part.first * size_of(dtype), own, part.count * size_of(dtype));
  copy(state, whole + part.first, own, part.count);
  copy(state, whole + formula::quant_scales_at(part.parameter->entry->count) + 4 * (part.first / kUnit),
       own + formula::quant_scales_at(part.count), 4 * formula::quant_blocks(part.count));
}

void EagerStep::copy_states(bool to_device) const {
  for (int k = 0; k <= work_.states; ++k) {
    if (work_.program.copies[k] < 0) continue;
    for (const Part& part : parts_)
      for_ranges(k, part, [&](const Tensor& state, char* whole, char* own, int64_t bytes) {
        if (to_device)
          device::copy(own, work_.device, whole, state.device(), bytes, stream_);
        else
          device::copy(whole, state.device(), own, work_.device, bytes, stream_);
        if (state.device() != work_.device) state.record_stream(stream_);
      });
  }
}

// ---- the step -------------------------------------------------------------------------------------------------------

void EagerStep::compute(const Instruction& x, const kernels::List& list, bool always) const {
  kernels::ListPointwiseCall call{.op = x.op,
                                  .compute = x.compute,
                                  .arity = x.arity,
                                  .list = list,
                                  .in = {},
                                  .unless_nan = always ? nullptr : grad_factor_};
  for (int k = 0; k < x.arity; ++k) call.in[k] = operand(x.in[k], x.compute);
  const kernels::ForeachKernels& kernels = *kernels::backend(work_.device).foreach;
  (x.blends ? kernels.blend : kernels.pointwise)(call, stream_);
}

kernels::ListEntry EagerStep::entry_of(const Instruction& x, const Part& part) const {
  kernels::ListEntry entry{.count = part.count, .number = part.parameter->number};
  if (x.kind == Instruction::Kind::compute) {
    entry.at[0] = address_of(x.out, part);
    for (int k = 0; k < x.arity; ++k)
      if (x.in[k].is_array()) entry.at[1 + k] = address_of(x.in[k], part);
  } else {
    const bool decompresses = x.kind == Instruction::Kind::decompress;
    entry.at[0] = address_of(decompresses ? x.out : x.in[0], part);
    entry.at[1] = address_of(decompresses ? x.in[0] : x.out, part);
  }
  return entry;
}

void EagerStep::fill_lists() {
  for (size_t i = 0; i < lists_.size(); ++i) {
    lists_[i].clear();
    for (const Part& part : parts_) lists_[i].add(entry_of(work_.program.arrays[i], part));
  }
  if (!zeros_) return;
  zeros_->clear();
  for (const Part& part : parts_)
    zeros_->add({.at = {address_of({.kind = Location::Kind::grad}, part)}, .count = part.count});
}

void EagerStep::patch_lists(bool buffers_moved) {
  const auto may_move = [&](const Location& x) { return buffers_moved || x.kind == Location::Kind::grad; };
  for (size_t i = 0; i < lists_.size(); ++i) {
    const Instruction& x = work_.program.arrays[i];
    if (!may_move(x.out) && std::ranges::none_of(x.in, may_move)) continue;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const kernels::ListEntry entry = entry_of(x, parts_[p]);
      for (int k = 0; k < lists_[i].arrays(); ++k) lists_[i].move(p, k, entry.at[k]);
    }
  }
  for (size_t p = 0; zeros_ && p < parts_.size(); ++p)
    zeros_->move(p, 0, address_of({.kind = Location::Kind::grad}, parts_[p]));
}

void EagerStep::prepare(const StepBuffers& buffers) {
  if (parameters_.empty()) return;
  numbers_ = static_cast<char*>(buffers.numbers.data_ptr());
  for (size_t i = 0; i < number_lists_.size(); ++i) {
    number_lists_[i].clear();
    number_lists_[i].add({.at = {numbers_ + 8 * work_.program.numbers[i].out.index}, .count = 1});
  }
  auto* const arrays = static_cast<char*>(buffers.arrays.data_ptr());
  const bool moved = std::exchange(buffers_, arrays) != arrays;
  prepare_lists(moved);
}

void EagerStep::run_parts() const {
  copy_states(true);
  for (size_t i = 0; i < lists_.size(); ++i) {
    const Instruction& x = work_.program.arrays[i];
    if (x.kind == Instruction::Kind::compute) {
      compute(x, lists_[i], false);
      continue;
    }
    const kernels::OptimKernels& kernels = *kernels::backend(work_.device).optim;
    Compression compression = work_.compression;
    compression.first_element = parts_[0].first;  // only the first part may begin inside its parameter
    kernels::CompressedCall call = compression.call(lists_[i], x.state);
    if (x.kind == Instruction::Kind::compress) call.grad_factor = grad_factor_;
    (x.kind == Instruction::Kind::decompress ? kernels.decompress : kernels.compress)(call, stream_);
  }
  copy_states(false);
  if (!zeros_) return;
  const double zero = 0;
  kernels::backend(work_.device).foreach->fill(*zeros_, &zero, kF64, stream_);
}

void EagerStep::run(const double* grad_factor, const Stream& stream) {
  if (parameters_.empty()) return;
  grad_factor_ = grad_factor, stream_ = stream;
  for (size_t i = 0; i < number_lists_.size(); ++i) compute(work_.program.numbers[i], number_lists_[i], true);
  run_elements();
}

}  // namespace lorry::optim
