// Compiled once for each instruction set: LORRY_SIMD. The compiler vectorises the loops.

#include "lorry/kernels/cpu/sort/key_runs.h"

namespace lorry::kernels::cpu::LORRY_SIMD {
namespace {

template <class T>
void bounds(const KeyRow<T>& row, int64_t begin, int64_t end, KeyOf<T>& least, KeyOf<T>& greatest) {
  KeyOf<T> low = row.key(begin), high = low;
  for (int64_t i = begin + 1; i < end; ++i) {
    const KeyOf<T> key = row.key(i);
    low = key < low ? key : low;
    high = key > high ? key : high;
  }
  least = low;
  greatest = high;
}

template <class T>
void pack(uint64_t* items, const KeyRow<T>& row, const Packing& packing, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) items[i] = packing.item(row.key(i), i);
}

template <class T>
void repack(uint64_t* items, const KeyRow<T>& row, const Packing& packing, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t index = packing.index(items[i]);
    items[i] = packing.item(row.key(index), index);
  }
}

template <class T>
void search(Search<T>& given) {
  using Key = KeyOf<T>;
  constexpr int64_t kStep = Search<T>::kStep;
  Search<T> s = given;
  while (s.at < s.end && s.count + kStep <= s.room) {
    const int64_t step = s.end - s.at < kStep ? s.end - s.at : kStep;
    Key keys[kStep], least = ~Key(0);
    for (int64_t j = 0; j < step; ++j) {
      keys[j] = s.row.key(s.at + j);
      least = keys[j] < least ? keys[j] : least;
    }
    if (least <= s.last) {
      for (int64_t j = 0; j < step; ++j) {
        s.found[s.count] = candidate(keys[j], s.at + j);
        s.count += keys[j] <= s.last;  // without a branch, which would be mispredicted often
      }
    }
    s.at += step;
  }
  given.at = s.at;
  given.count = s.count;
}

template <class... T>
void fill(KeyTableOf<T...>& table) {
  ((static_cast<KeyRuns<T>&>(table) = {bounds<T>, pack<T>, repack<T>, search<T>}), ...);
}

}  // namespace

void fill_key_table(KeyTable& table) { fill(table); }

}  // namespace lorry::kernels::cpu::LORRY_SIMD
