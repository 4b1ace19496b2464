#include "lorry/cli/case_filter.h"

#include <fmt/core.h>

#include <algorithm>

#include "lorry/base/error.h"
#include "lorry/cli/checks.h"

namespace lorry::cli {

bool CaseFilter::operator()(const std::string& name) {
  if (known_.insert(name).second) quoted_.push_back(fmt::format("'{}'", name));
  return name.find(part_) != std::string::npos;
}

void CaseFilter::refuse() const {
  if (quoted_.empty()) raise<ValueError>("bench: there are no cases");
  constexpr size_t kMost = 20;
  std::vector<std::string> names(quoted_.begin(), quoted_.begin() + std::min(quoted_.size(), kMost));
  if (quoted_.size() > kMost) names.push_back(fmt::format("{} more", quoted_.size() - kMost));
  raise<ValueError>("bench: no case contains '{}'; expected a part of {}", part_, listed(names));
}

}  // namespace lorry::cli
