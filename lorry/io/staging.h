#pragma once

// Temporary names. A writer works in ".<name>.staged-<n>" and holds a lock on it, so that a later writer can
// distinguish the leftovers of a dead process from the work of a running one. Used by file writers only.

#include <filesystem>
#include <functional>
#include <string_view>

#include "lorry/io/file.h"

namespace lorry::io {

/// The directory that contains `path` ("." for a bare name).
std::filesystem::path parent_of(const std::filesystem::path& path);

/// `path` without a trailing separator. Throws IoError for a name that cannot be written ("", "/", "..").
std::filesystem::path writable_name(std::filesystem::path path);

/// Whether the name still refers to the open file: another process may have removed it between its creation and its
/// locking.
bool still_named(const Descriptor& open, const std::filesystem::path& name);

/// Whether `name` is a temporary name of `final_name`.
bool is_staged_name(std::string_view name, std::string_view final_name);

/// Creates and locks a new temporary file or directory; its name is stored in `staged`.
Descriptor stage(const std::filesystem::path& path, bool directory, std::filesystem::path& staged);

/// Calls `remove` for every temporary entry of `path` whose writer is dead.
void for_each_leftover(const std::filesystem::path& path,
                       const std::function<void(const std::filesystem::path&)>& remove);

}  // namespace lorry::io
