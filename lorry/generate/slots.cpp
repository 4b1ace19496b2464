#include "lorry/generate/slots.h"

#include <algorithm>

#include "lorry/formula/tokens.h"
#include "lorry/ops/ops.h"

namespace lorry::generate {
namespace {

template <class T>
void write(const Tensor& to, const std::vector<T>& values) {
  to.copy_(from_data(values, to.sizes(), kCPU));
}

}  // namespace

Slots::Slots(const SlotSizes& sizes, Device device) : sizes_(sizes) {
  const int64_t n = sizes.slots;
  const auto make = [&](const Dims& dims, DType dtype) { return zeros(dims, {dtype, device}); };
  rows_ = {.tokens = make({n}, kI64),
           .positions = make({n}, kI32),
           .slots = full({n}, -1, {kI32, device}),
           .drawn = make({n}, kI64),
           .uniform = make({n}, kF64),
           .outputs = make({n, sizes.window}, kI64),
           .seen = make({sizes.seen > 0 ? n : 0, sizes.seen}, kBool),
           .limits = make({n}, kI64),
           .keys = make({n, 2}, kI64),
           .stops = make({n, sizes.stops, sizes.stop_length}, kI64)};
  block_table_ = make({n, sizes.max_blocks}, kI32);
  temperature_ = make({n}, kF32), top_k_ = make({n}, kI32), top_p_ = make({n}, kF32), penalty_ = make({n}, kF32);
}

/// Every tensor with a row a slot, but the slots.
std::vector<Tensor> Slots::all() const {
  std::vector<Tensor> all{rows_.tokens, rows_.positions, rows_.drawn, rows_.uniform, rows_.outputs,
                          rows_.limits, rows_.keys,      rows_.stops, block_table_,  temperature_,
                          top_k_,       top_p_,          penalty_};
  if (sizes_.seen > 0) all.push_back(rows_.seen);
  return all;
}

void Slots::join(int64_t slot, const Request& request, int64_t limit, int64_t position) {
  const Sampling& sampling = request.sampling;
  const auto row = [&](const Tensor& x) { return x.select(0, slot); };
  row(temperature_).fill_(sampling.temperature);
  row(top_k_).fill_(std::min<int64_t>(sampling.top_k, INT32_MAX));
  row(top_p_).fill_(sampling.top_p);
  row(penalty_).fill_(sampling.repetition_penalty);
  row(rows_.tokens).fill_(request.tokens.back());
  row(rows_.positions).fill_(position);
  row(rows_.drawn).fill_(request.drawn);
  row(rows_.uniform)
      .fill_(formula::token_uniform(sampling.seed, sampling.stream, static_cast<uint64_t>(request.drawn)));
  row(rows_.limits).fill_(limit);
  write(row(rows_.keys), std::vector{static_cast<int64_t>(sampling.seed), static_cast<int64_t>(sampling.stream)});

  // Draw k is in column k % window; those before the first draw are not read.
  std::vector<int64_t> outputs(static_cast<size_t>(sizes_.window));
  const int64_t prompt = static_cast<int64_t>(request.tokens.size()) - request.drawn;
  for (int64_t k = std::max<int64_t>(0, request.drawn - sizes_.window); k < request.drawn; ++k)
    outputs[static_cast<size_t>(k % sizes_.window)] = request.tokens[static_cast<size_t>(prompt + k)];
  write(row(rows_.outputs), outputs);

  std::vector<int64_t> stops(static_cast<size_t>(sizes_.stops * sizes_.stop_length), -1);
  for (size_t s = 0; s < request.stops.size(); ++s)
    std::ranges::copy_backward(request.stops[s],
                               stops.begin() + static_cast<std::ptrdiff_t>(s + 1) * sizes_.stop_length);
  if (!stops.empty()) write(row(rows_.stops), stops);

  if (sizes_.seen > 0) {
    row(rows_.seen).zero_();
    row(rows_.seen).index_fill_(0, from_data(request.tokens, rows_.seen.device()), true);
  }
  row(rows_.slots).fill_(slot);
}

void Slots::set_blocks(int64_t slot, const std::vector<int32_t>& blocks) {
  std::vector<int32_t> row = blocks;
  row.resize(static_cast<size_t>(sizes_.max_blocks));
  write(block_table_.select(0, slot), row);
}

void Slots::leave(int64_t slot) { rows_.slots.select(0, slot).fill_(-1); }

void Slots::pause() {
  paused_ = rows_.slots.clone();
  rows_.slots.fill_(-1);
}

void Slots::resume() { rows_.slots.copy_(paused_); }

void Slots::move(int64_t from, int64_t to) {
  for (const Tensor& x : all()) x.select(0, to).copy_(x.select(0, from));
  const Tensor was = rows_.slots.select(0, from);
  const Tensor number = minimum(was, full({}, to, was.options()));  // it stays negative if the sequence has ended
  leave(from);
  rows_.slots.select(0, to).copy_(number);  // last, so that no failure leaves two rows of one sequence
}

SequenceRows Slots::sequences(int64_t n) const {
  const auto first = [&](const Tensor& x) { return x.narrow(0, 0, n); };
  return {first(rows_.tokens),  first(rows_.positions), first(rows_.slots), first(rows_.drawn),
          first(rows_.uniform), first(rows_.outputs),   rows_.seen,         first(rows_.limits),
          first(rows_.keys),    first(rows_.stops)};
}

nn::PagedBatch Slots::batch(int64_t n) const {
  const auto first = [&](const Tensor& x) { return x.narrow(0, 0, n); };
  return {first(rows_.tokens), first(rows_.positions), first(rows_.slots), block_table_};
}

void Slots::draw(const Tensor& logits) const {
  const int64_t n = logits.size(0);
  const auto first = [&](const Tensor& x) { return x.narrow(0, 0, n); };
  const SequenceRows rows = sequences(n);
  const Tensor penalised =
      sizes_.seen > 0 ? repetition_penalty(logits, rows.seen, rows.slots, first(penalty_)) : logits;
  advance_sequences(rows, sample_tokens(penalised, first(temperature_), first(top_k_), first(top_p_), rows.uniform));
}

SlotCopy Slots::copy(bool as_is) const {
  const auto to_host = [&](const Tensor& x) { return x.device().is_cpu() && !as_is ? x.clone() : x.to(kCPU, true); };
  return {to_host(rows_.outputs), to_host(rows_.drawn), to_host(rows_.slots)};
}

}  // namespace lorry::generate
