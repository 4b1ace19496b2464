#pragma once

// Tables of kernels whose functions are all made in one way, from their types. A table's functions are its first
// members, those of nested tables included. Slot<k> converts to any kernel function and makes function k.

#include <cstddef>
#include <utility>

namespace lorry::kernels {

/// The number of functions with which a table begins.
template <class Table, template <size_t> class Slot, size_t count = 0>
constexpr size_t function_count() {
  constexpr bool kMore = []<size_t... k>(std::index_sequence<k...>) {
    return requires { Table{Slot<k>{}...}; };
  }
  (std::make_index_sequence<count + 1>());
  if constexpr (kMore)
    return function_count<Table, Slot, count + 1>();
  else
    return count;
}

/// The table with these functions; other members have their defaults.
template <class Table, template <size_t> class Slot>
constexpr Table filled() {
  return []<size_t... k>(std::index_sequence<k...>) { return Table{Slot<k>{}...}; }
  (std::make_index_sequence<function_count<Table, Slot>()>());
}

}  // namespace lorry::kernels
