#pragma once

// The sources of the lessons as texts; cmake/embed_lessons.cmake writes the definition.

#include <span>
#include <string_view>

namespace lorry::bench::lessons {

struct EmbeddedSource {
  std::string_view file, text;
};
std::span<const EmbeddedSource> embedded_sources();

}  // namespace lorry::bench::lessons
