#pragma once

// Collects findings: those of one kind at one place of the program are one.

#include <map>
#include <string>
#include <tuple>

#include "lorry/profile/program_view.h"

namespace lorry::profile {

/// "block*.mlp" of "block3.mlp": layers of a model are one place. Of a path that has none, that path.
inline std::string without_numbers(const std::string& path) {
  std::string made;
  for (const char c : path)
    if (c < '0' || c > '9')
      made += c;
    else if (made.empty() || made.back() != '*')
      made += '*';
  return made;
}

class FindingList {
 public:
  explicit FindingList(const ProgramView& program) : p_(program) {}

  /// The finding of this kind where the span was called, which counts one more.
  Finding& at(Finding::Kind kind, const SpanRecord& span, int64_t count = 1) {
    Finding& found = found_[{kind, p_.line(span) + "\n" + without_numbers(p_.path(span))}];
    found.kind = kind, found.line = p_.line(span);
    if (found.count == 0)
      found.path = p_.path(span);
    else if (found.path != p_.path(span))
      found.path = without_numbers(p_.path(span));
    found.count += count;
    return found;
  }
  void move_to(std::vector<Finding>& to) {
    for (auto& [key, found] : found_) to.push_back(std::move(found));
  }

 private:
  const ProgramView& p_;
  std::map<std::tuple<Finding::Kind, std::string>, Finding> found_;
};

}  // namespace lorry::profile
