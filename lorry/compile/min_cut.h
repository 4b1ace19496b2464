#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorry::compiler {

/// A network of pipes with capacities, and the cheapest way to part its sink from its source (Ford and Fulkerson,
/// "Maximal flow through a network", 1956; augmented by Dinic's phases, 1970).
class MinCut {
 public:
  static constexpr int64_t kUnlimited = INT64_MAX / 4;

  /// Points: 0 is the source, 1 the sink.
  explicit MinCut(size_t points) : out_(points) {}
  void add(size_t from, size_t to, int64_t capacity);
  /// Of each point, whether it stays with the sink: of all cheapest cuts the one nearest to it.
  std::vector<bool> with_sink();

 private:
  struct Pipe {
    size_t to;
    int64_t left;  ///< of its capacity
  };
  bool find_levels();
  int64_t push(size_t from, int64_t most);

  std::vector<Pipe> pipes_;  ///< each followed by its opposite
  std::vector<std::vector<size_t>> out_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace lorry::compiler
