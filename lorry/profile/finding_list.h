#pragma once

// Collects findings: those of one kind at one place of the program are one.

#include <map>
#include <tuple>

#include "lorry/profile/program_view.h"

namespace lorry::profile {

class FindingList {
 public:
  explicit FindingList(const ProgramView& program) : p_(program) {}

  /// The finding of this kind where the span was called, which counts one more.
  Finding& at(Finding::Kind kind, const SpanRecord& span, int64_t count = 1) {
    Finding& found = found_[{kind, span.line != 0 ? span.line : -1 - span.path}];
    found.kind = kind, found.path = p_.path(span), found.line = p_.line(span);
    found.count += count;
    return found;
  }
  void move_to(std::vector<Finding>& to) {
    for (auto& [key, found] : found_) to.push_back(std::move(found));
  }

 private:
  const ProgramView& p_;
  std::map<std::tuple<Finding::Kind, int32_t>, Finding> found_;
};

}  // namespace lorry::profile
