#pragma once

// Which cases of a bench --filter chooses.

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace lorry::cli {

class CaseFilter {
 public:
  /// Chooses the cases whose name contains `part`.
  explicit CaseFilter(std::string part) : part_(std::move(part)) {}

  /// Whether the case is chosen. Keeps its name for refuse().
  bool operator()(const std::string& name);
  /// For when no case was chosen. Throws ValueError that lists the first 20 of the names that were asked about.
  [[noreturn]] void refuse() const;

 private:
  std::string part_;
  std::vector<std::string> quoted_;  ///< each name once, in the order of the first questions
  std::set<std::string> known_;
};

}  // namespace lorry::cli
