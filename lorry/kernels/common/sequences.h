#pragma once

// One step of a sequence that is being generated, the same for all devices.

#include "lorry/formula/tokens.h"
#include "lorry/kernels/tokens.h"

namespace lorry::kernels {

/// Elements of an array: of a vector by their number, of a matrix by row and column.
template <class T>
struct Elements {
  T* data;
  int64_t step, column_step;  ///< elements from row to row, and from column to column

  explicit Elements(const Array& x)
      : data(x.as<T>()), step(x.stride(0)), column_step(x.layout.rank > 1 ? x.stride(1) : 0) {}
  LORRY_INLINE T& operator[](int64_t row) const { return data[row * step]; }
  LORRY_INLINE T& operator()(int64_t row, int64_t column) const { return data[row * step + column * column_step]; }
};

/// The tensors of SequenceAdvance as kernels read them.
struct SequenceStep {
  Elements<const int64_t> next;
  Elements<int64_t> tokens;
  Elements<int32_t> positions, slots;
  Elements<int64_t> drawn;
  Elements<double> uniform;
  Elements<int64_t> outputs;
  Elements<bool> seen;
  Elements<const int64_t> limits, keys, stops;
  int64_t window, stop_count, stop_length, stop_step;
  int64_t sequences, vocab;  ///< of `seen`

  explicit SequenceStep(const SequenceAdvance& x)
      : next(x.next),
        tokens(x.tokens),
        positions(x.positions),
        slots(x.slots),
        drawn(x.drawn),
        uniform(x.uniform),
        outputs(x.outputs),
        seen(x.seen),
        limits(x.limits),
        keys(x.keys),
        stops(x.stops),
        window(x.outputs.size(1)),
        stop_count(x.stops.size(1)),
        stop_length(x.stops.size(2)),
        stop_step(x.stops.stride(2)),
        sequences(x.seen.size(0)),
        vocab(x.seen.size(1)) {}
  void addresses(auto& visit) const {
    visit(next.data, tokens.data, positions.data, slots.data, drawn.data, uniform.data, outputs.data, seen.data,
          limits.data, keys.data, stops.data);
  }

  LORRY_INLINE bool is_padding(int64_t row) const { return slots[row] < 0; }
  LORRY_INLINE bool marks_seen() const { return vocab > 0; }

  /// Whether the tokens drawn so far, `count` of them, end with run s of the row's stops.
  LORRY_INLINE bool ends_with(int64_t row, int64_t s, int64_t count) const {
    if (stop_length == 0) return false;
    const int64_t* const run = &stops(row, s);
    for (int64_t j = 1; j <= stop_length; ++j) {
      const int64_t wanted = run[(stop_length - j) * stop_step];
      if (wanted < 0) return j > 1;
      if (j > count || outputs(row, (count - j) % window) != wanted) return false;
    }
    return true;
  }

  /// Takes up the token drawn in a row that is no padding. Its token and slot exist in `seen`, if that is not empty.
  LORRY_INLINE void advance(int64_t row) const {
    const int64_t token = next[row], before = drawn[row], count = before + 1;
    outputs(row, before % window) = token;
    tokens[row] = token;
    drawn[row] = count;
    if (marks_seen()) seen(slots[row], token) = true;
    uniform[row] = formula::token_uniform(static_cast<uint64_t>(keys(row, 0)), static_cast<uint64_t>(keys(row, 1)),
                                          static_cast<uint64_t>(count));
    bool ends = count >= limits[row];
    for (int64_t s = 0; s < stop_count && !ends; ++s) ends = ends_with(row, s, count);
    positions[row] = ends ? 0 : positions[row] + 1;
    if (ends) slots[row] = -1;
  }
};

}  // namespace lorry::kernels
