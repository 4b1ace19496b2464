#pragma once

// What the system lets this process use: the machine's memory, the control groups that the process is in (versions 1
// and 2, every level of their paths), and its resource limits. A process that touches more than that is killed; malloc
// and mmap do not say so before.

#include <cstdint>
#include <string>

namespace lorry::memory {

/// Bytes that this process may use at most. Reads /proc and /sys below `root`, which only tests name.
int64_t process_memory_limit(const std::string& root = "");

/// Bytes that the process may still touch, when it holds `reserved` bytes that it may not have touched yet. File pages
/// that the kernel can drop count as free, and so does free swap where the process may use it.
int64_t process_memory_available(int64_t reserved, const std::string& root = "");

}  // namespace lorry::memory
