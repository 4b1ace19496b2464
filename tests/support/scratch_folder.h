#pragma once

// A folder of its own for each test, removed with everything in it.

#include <stdlib.h>

#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>

namespace lorry::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    // mkdtemp(3) replaces the last six letters.
    std::string path = (std::filesystem::temp_directory_path() / "lorry-test-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("cannot make a scratch folder");
    root_ = path;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::permissions(root_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(root_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return root_ / name; }
  const std::filesystem::path& root() const { return root_; }

  /// The names in a directory (the scratch folder itself by default), hidden ones included.
  std::set<std::string> names(const std::string& below = "") const {
    std::set<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(root_ / below))
      found.insert(entry.path().filename().string());
    return found;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace lorry::test
