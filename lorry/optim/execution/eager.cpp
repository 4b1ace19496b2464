// The executions loop and foreach: a rule's program (program.h) over whole parameters at a time, or over as many of
// their elements as a budget of memory lets. All steps of an optimizer's step are prepared, and have all their memory,
// before the first of them writes.

#include "lorry/optim/execution/eager.h"

#include <algorithm>
#include <bit>

#include "lorry/device/device.h"
#include "lorry/formula/quantize.h"
#include "lorry/kernels/backend.h"
#include "lorry/ops/creation.h"

namespace lorry::optim {
namespace {

constexpr int64_t kUnit = formula::kQuantBlock;  // elements: parts of parameters begin at multiples
constexpr int64_t kAligned =
    64;  // elements: buffers of an entry begin at multiples, and so on the boundaries that vectors need
constexpr int64_t kOtherBytes = 4'096;  // of a budget: the step's numbers, and tensors without sizes such as a norm
constexpr size_t kMostArguments = 512;  // entries that fit among a kernel's arguments

int64_t aligned(int64_t count) { return (count + kAligned - 1) / kAligned * kAligned; }

/// The largest size up to `bytes` that allocators hand out as it is: one to two times a power of two, in quarters.
int64_t whole_block(int64_t bytes) {
  if (bytes < 1'024) return bytes / 512 * 512;
  const int64_t quarter = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 4;
  return bytes / quarter * quarter;
}
/// The smallest from `bytes` on.
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

// ---- preparation ----------------------------------------------------------------------------------------------------

EagerStep::EagerStep(const EagerWork& work, std::vector<SteppedParameter> parameters, int64_t budget)
    : work_(work), parameters_(std::move(parameters)) {
  const Running running(work_.where);
  std::erase_if(parameters_, [](const SteppedParameter& x) { return x.entry->count == 0; });
  int64_t all = 0, largest = 0;
  for (const SteppedParameter& x : parameters_) {
    all += aligned(x.entry->count);
    largest = std::max(largest, aligned(x.entry->count));
  }
  const int64_t element_bytes = work_.program.bytes_per_element(),
                most_elements = elements_within(budget, element_bytes);
  require<ValueError>(most_elements > 0,
                      "memory_budget is too small for 256 elements at a time; got {} bytes; expected at least {}",
                      budget, least_budget(element_bytes));
  capacity_ = std::min(work_.is_foreach ? all : largest, most_elements);
  is_whole_ = work_.is_foreach && all <= capacity_;
  for (const int width : work_.program.buffers) {
    buffer_at_.push_back(buffer_bytes_);
    buffer_bytes_ += width;
  }
  require<ValueError>(work_.program.number_count * 8 <= kNumberBytes,
                      "the rule computes with {} numbers for all elements; expected at most {}",
                      work_.program.number_count, kNumberBytes / 8);

  const size_t most = work_.is_foreach ? parameters_.size() : 1;
  parts_.reserve(most);
  const Strategy strategy =
      most <= kMostArguments ? Strategy::automatic : Strategy::kernel_args_32k;  // these need no memory
  const auto make_list = [&](std::initializer_list<DType> dtypes, size_t entries) {
    kernels::List list(work_.device, std::span(dtypes.begin(), dtypes.size()), strategy);
    for (size_t e = 0; e < entries; ++e) list.add({});  // room for them
    list.clear();
    return list;
  };
  const auto list_of = [&](const Instruction& x, size_t entries) {
    if (x.kind != Instruction::Kind::compute) return make_list({kF32, array_dtype(x.state)}, entries);
    DType dtypes[1 + 4] = {x.out.dtype};
    for (int k = 0; k < x.arity; ++k) dtypes[1 + k] = x.in[k].dtype;
    switch (x.arity) {
      case 1:
        return make_list({dtypes[0], dtypes[1]}, entries);
      case 2:
        return make_list({dtypes[0], dtypes[1], dtypes[2]}, entries);
      case 3:
        return make_list({dtypes[0], dtypes[1], dtypes[2], dtypes[3]}, entries);
      default:
        return make_list({dtypes[0], dtypes[1], dtypes[2], dtypes[3], dtypes[4]}, entries);
    }
  };
  for (const Instruction& x : work_.program.numbers) number_lists_.push_back(list_of(x, 1));
  for (const Instruction& x : work_.program.arrays) lists_.push_back(list_of(x, most));
  if (work_.zero_grads) zeros_.emplace(make_list({work_.grad_dtype}, most));
}

/// The next parts to be stepped together: of a loop one, else as many as there is room for. False when all have been
/// stepped.
bool EagerStep::next_parts() {
  parts_.clear();
  int64_t room = capacity_;
  while (next_ < parameters_.size()) {
    const int64_t n = parameters_[next_].entry->count, left = n - first_;
    const bool fits = aligned(left) <= room;
    if (!parts_.empty() && (!work_.is_foreach || (!fits && room < kUnit))) break;
    const int64_t count = fits ? left : room / kUnit * kUnit;
    parts_.push_back({&parameters_[next_], first_, count, capacity_ - room});
    room -= aligned(count);
    first_ += count;
    if (first_ < n) break;
    ++next_, first_ = 0;
  }
  return !parts_.empty();
}

// ---- where things lie -----------------------------------------------------------------------------------------------

DType EagerStep::array_dtype(int state) const { return state < 0 ? work_.dtype : work_.state_dtypes[state]; }

char* EagerStep::buffer(int b, const Part& part) const {
  return buffers_ + capacity_ * buffer_at_[static_cast<size_t>(b)] +
         part.offset * work_.program.buffers[static_cast<size_t>(b)];
}

void* EagerStep::array_at(const Location& place, const Part& part) const {
  const auto of_entry = [&](int array, DType dtype) {
    return static_cast<char*>(part.parameter->entry->at[array]) + part.first * size_of(dtype);
  };
  const auto state = [&](int k) {
    return work_.program.copies[k] >= 0 ? buffer(work_.program.copies[k], part)
                                        : of_entry(2 + k, work_.state_dtypes[k]);
  };
  switch (place.kind) {
    case Location::Kind::param:
      return of_entry(0, work_.dtype);
    case Location::Kind::grad:
      return of_entry(1, work_.grad_dtype);
    case Location::Kind::state:
      return state(place.index);
    case Location::Kind::master:
      return state(work_.states);
    default:
      return buffer(place.index, part);
  }
}

kernels::ListOperand EagerStep::operand(const Location& place, DType compute) const {
  kernels::ListOperand x;
  x.kind = kernels::ListOperand::Kind::values;
  x.dtype = place.dtype;
  switch (place.kind) {
    case Location::Kind::number:
      x.values = numbers_ + 8 * place.index;
      return x;
    case Location::Kind::hyper:
      x.values = work_.hyper + place.index * size_of(place.dtype);
      return x;
    case Location::Kind::setting:
      x.values = work_.settings[static_cast<size_t>(place.index)];
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
    x.whole = static_cast<int64_t>(place.constant);
  else
    x.real = place.constant;
  return x;
}

// ---- copies of arrays -----------------------------------------------------------------------------------------------

/// Calls copy(state, own, bytes) for each contiguous range of array k of a part: in an array of 8 bits codes and scales
/// lie apart.
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
    entry.at[0] = array_at(x.out, part);
    for (int k = 0; k < x.arity; ++k)
      if (x.in[k].is_array()) entry.at[1 + k] = array_at(x.in[k], part);
  } else {
    const bool decompresses = x.kind == Instruction::Kind::decompress;
    entry.at[0] = array_at(decompresses ? x.out : x.in[0], part);
    entry.at[1] = array_at(decompresses ? x.in[0] : x.out, part);
  }
  return entry;
}

/// The lists of the parts, which are new.
void EagerStep::fill_lists() {
  for (size_t i = 0; i < lists_.size(); ++i) {
    lists_[i].clear();
    for (const Part& part : parts_) lists_[i].add(entry_of(work_.program.arrays[i], part));
  }
  if (!zeros_) return;
  zeros_->clear();
  for (const Part& part : parts_)
    zeros_->add({.at = {array_at({.kind = Location::Kind::grad}, part)}, .count = part.count});
}

void EagerStep::prepare(const EagerMemory& memory) {
  if (parameters_.empty()) return;
  numbers_ = static_cast<char*>(memory.numbers.data_ptr());
  for (size_t i = 0; i < number_lists_.size(); ++i) {
    number_lists_[i].clear();
    number_lists_[i].add({.at = {numbers_ + 8 * work_.program.numbers[i].out.index}, .count = 1});
  }
  char* const buffers = static_cast<char*>(memory.buffers.data_ptr());
  const bool moved = buffers != buffers_;
  buffers_ = buffers;
  if (!is_whole_) return;
  if (parts_.empty()) {
    next_parts();
    return fill_lists();
  }
  const auto may_move = [&](const Location& place) { return moved || place.kind == Location::Kind::grad; };
  for (size_t i = 0; i < lists_.size(); ++i) {
    const Instruction& x = work_.program.arrays[i];
    if (!may_move(x.out) && std::ranges::none_of(x.in, may_move)) continue;
    for (size_t p = 0; p < parts_.size(); ++p) {
      const kernels::ListEntry entry = entry_of(x, parts_[p]);
      for (int k = 0; k < lists_[i].arrays(); ++k) lists_[i].move(p, k, entry.at[k]);
    }
  }
  for (size_t p = 0; zeros_ && p < parts_.size(); ++p)
    zeros_->move(p, 0, array_at({.kind = Location::Kind::grad}, parts_[p]));
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
    compression.first_element = parts_[0].first;  // the others begin where their parameters do
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
  if (is_whole_) return run_parts();
  next_ = 0, first_ = 0;
  while (next_parts()) {
    fill_lists();
    run_parts();
  }
}

}  // namespace lorry::optim
