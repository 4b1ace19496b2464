#pragma once

// How much memory the system allows this process: limited by the machine's memory, by the control groups of the process
// (versions 1 and 2, all levels of their paths), and by its resource limits. A process that uses more is killed, and
// malloc and mmap do not fail before that.

#include <cstdint>
#include <string>

namespace lorry::memory {

/// The most bytes that this process may use. Reads /proc and /sys below `root`; only tests pass `root`.
int64_t process_memory_limit(const std::string& root = "");

/// The number of bytes that the process may still allocate and use, given that it has reserved `reserved` bytes without
/// necessarily having used them yet. File pages that the kernel can drop count as free, and so does free swap that the
/// process may use.
int64_t process_memory_available(int64_t reserved, const std::string& root = "");

/// The bytes of this process that are in memory (its resident set). 0 where /proc cannot be read.
int64_t process_memory_resident(const std::string& root = "");

}  // namespace lorry::memory
