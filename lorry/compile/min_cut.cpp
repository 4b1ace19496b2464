#include "lorry/compile/min_cut.h"

#include <algorithm>

namespace lorry::compiler {

void MinCut::add(size_t from, size_t to, int64_t capacity) {
  out_[from].push_back(pipes_.size());
  pipes_.push_back({to, capacity});
  out_[to].push_back(pipes_.size());
  pipes_.push_back({from, 0});
}

bool MinCut::find_levels() {
  level_.assign(out_.size(), -1);
  level_[0] = 0;
  std::vector<size_t> open = {0};
  for (size_t i = 0; i < open.size(); ++i)
    for (const size_t p : out_[open[i]])
      if (const Pipe& pipe = pipes_[p]; pipe.left > 0 && level_[pipe.to] < 0) {
        level_[pipe.to] = level_[open[i]] + 1;
        open.push_back(pipe.to);
      }
  return level_[1] >= 0;
}

/// Pushes up to `most` from a point to the sink along pipes to the next level. Iterative, because chains of operators
/// may be long.
int64_t MinCut::push(size_t from, int64_t most) {
  std::vector<size_t> path;  // a list of pipes
  for (size_t at = from; at != 1;) {
    size_t& next = next_[at];
    while (next < out_[at].size()) {
      const Pipe& pipe = pipes_[out_[at][next]];
      if (pipe.left > 0 && level_[pipe.to] == level_[at] + 1) break;
      ++next;
    }
    if (next < out_[at].size()) {
      path.push_back(out_[at][next]);
      at = pipes_[path.back()].to;
    } else if (path.empty()) {
      return 0;
    } else {  // a dead end
      level_[at] = -1;
      at = pipes_[path.back() ^ 1].to;
      path.pop_back();
    }
  }
  for (const size_t p : path) most = std::min(most, pipes_[p].left);
  for (const size_t p : path) pipes_[p].left -= most, pipes_[p ^ 1].left += most;
  return most;
}

std::vector<bool> MinCut::on_sink_side() {
  while (find_levels()) {
    next_.assign(out_.size(), 0);
    while (push(0, kUnlimited) > 0) {
    }
  }
  std::vector<bool> reaches(out_.size(), false);
  reaches[1] = true;
  std::vector<size_t> open = {1};
  for (size_t i = 0; i < open.size(); ++i)
    for (const size_t p : out_[open[i]])
      if (const size_t from = pipes_[p].to; pipes_[p ^ 1].left > 0 && !reaches[from]) {
        reaches[from] = true;
        open.push_back(from);
      }
  return reaches;
}

}  // namespace lorry::compiler
