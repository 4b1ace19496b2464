#include "lorry/base/scope.h"

namespace lorry {

std::string Scope::path() {
  std::string path;
  const Describe* inner = nullptr;
  for (const Scope* scope = t_innermost; scope != nullptr; scope = scope->outer_) {
    if (scope->describe_ != nullptr && inner != nullptr && *inner == scope->describe_) continue;
    const std::string name = scope->name();
    if (scope->describe_ != nullptr) inner = &scope->describe_;
    if (name.empty()) continue;
    path = path.empty() ? name : name + "/" + path;
  }
  return path;
}

}  // namespace lorry
