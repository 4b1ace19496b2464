#pragma once

// Functions of tensors as compile and replay call them: any arguments that are tensors, vectors of tensors or numbers,
// as a list of tensors and a key; any result made of tensors, as a list.

#include <array>
#include <bit>
#include <cstddef>
#include <memory_resource>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lorry/tensor/tensor.h"

namespace lorry::detail {

template <class T>
inline constexpr bool kUnknown = false;

/// Distinguishes types: 1 and true are different arguments.
template <class T>
consteval uint64_t type_tag() {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : std::string_view(__PRETTY_FUNCTION__)) hash = (hash ^ static_cast<uint64_t>(c)) * 0x100000001b3;
  return hash;
}

/// The arguments of a call: its tensors and its key. Those of small calls need no memory from the heap.
struct Arguments {
  std::array<std::byte, 512> buffer;
  std::pmr::monotonic_buffer_resource memory{buffer.data(), buffer.size()};
  std::pmr::vector<Tensor> tensors{&memory};
  std::pmr::vector<uint64_t> key{&memory};

  explicit Arguments(size_t count) {
    tensors.reserve(count);
    key.reserve(1 + 2 * count);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void add(const Tensor& x) {
    key.push_back(x.defined());
    if (x.defined()) tensors.push_back(x);
  }
  void add(const std::vector<Tensor>& list) {
    key.push_back(list.size());
    for (const Tensor& x : list) add(x);
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(T x) {
    key.push_back(type_tag<T>());
    if constexpr (std::is_floating_point_v<T>)
      key.push_back(std::bit_cast<uint64_t>(static_cast<double>(x)));
    else
      key.push_back(static_cast<uint64_t>(x));
  }
};

/// Converts a function's result to a list and back.
template <class R>
struct Results {
  static_assert(kUnknown<R>, "such a function returns nothing, a Tensor, or a pair, tuple, array or vector of them");
};
template <>
struct Results<Tensor> {
  static std::vector<Tensor> list(Tensor x) { return {std::move(x)}; }
  static Tensor from(std::vector<Tensor> all) { return std::move(all[0]); }
};
template <>
struct Results<std::vector<Tensor>> {
  static std::vector<Tensor> list(std::vector<Tensor> x) { return x; }
  static std::vector<Tensor> from(std::vector<Tensor> all) { return all; }
};
template <class R, size_t... k>
struct TupleResults {
  static_assert((std::is_same_v<std::tuple_element_t<k, R>, Tensor> && ...), "such a function returns tensors");
  static std::vector<Tensor> list(R x) { return {std::get<k>(std::move(x))...}; }
  static R from(std::vector<Tensor> all) { return R{std::move(all[k])...}; }
};
template <class R, size_t... k>
TupleResults<R, k...> tuple_results(std::index_sequence<k...>);
template <class R>
requires requires { std::tuple_size<R>::value; }
struct Results<R> : decltype(tuple_results<R>(std::make_index_sequence<std::tuple_size_v<R>>())) {};

}  // namespace lorry::detail
