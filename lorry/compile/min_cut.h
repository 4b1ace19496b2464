#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorry::compiler {

/// Computes a minimum cut between source and sink in a network of pipes with capacities (Ford and Fulkerson, "Maximal
/// flow through a network", 1956; augmented in Dinic's phases, 1970).
class MinCut {
 public:
  static constexpr int64_t kUnlimited = INT64_MAX / 4;

  /// Points: 0 is the source, 1 the sink.
  explicit MinCut(size_t points) : out_(points) {}
  void add(size_t from, size_t to, int64_t capacity);
  /// Per point: true if on the sink side, for the minimum cut nearest the sink.
  std::vector<bool> on_sink_side();

 private:
  struct Pipe {
    size_t to;
    int64_t left;  ///< remaining capacity
  };
  bool find_levels();
  int64_t push(size_t from, int64_t most);

  std::vector<Pipe> pipes_;  ///< each pipe is followed by its reverse
  std::vector<std::vector<size_t>> out_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace lorry::compiler
