#pragma once

// Names beside a final name. A writer stages its work in ".<name>.staged-<n>" and holds a lock on it while it lives, so
// that a later writer can tell the leftovers of a dead process from the work of a living one. Used by file writers
// only.

#include <filesystem>
#include <functional>
#include <string_view>

#include "lorry/io/file.h"

namespace lorry::io {

/// The directory that holds `path` ("." for a bare name).
std::filesystem::path parent_of(const std::filesystem::path& path);

/// `path` without a trailing separator. Throws IoError when it names nothing that could be written ("", "/", "..").
std::filesystem::path writable_name(std::filesystem::path path);

/// True when the name still leads to the open file: another process may have removed it between its creation and its
/// locking.
bool still_named(const Descriptor& open, const std::filesystem::path& name);

/// True when `name` is a staging name of `final_name`.
bool is_staged_name(std::string_view name, std::string_view final_name);

/// Makes and locks a fresh staging file or directory; `staged` receives its name.
Descriptor stage(const std::filesystem::path& path, bool directory, std::filesystem::path& staged);

/// Calls `remove` for every staging entry of `path` whose writer is dead.
void for_each_leftover(const std::filesystem::path& path,
                       const std::function<void(const std::filesystem::path&)>& remove);

}  // namespace lorry::io
