#pragma once

// What `lorry generate --save` writes, so that `--resume` can go on: texts over bytes and how they are drawn, as JSON.

#include <string>
#include <vector>

#include "lorry/generate/request.h"

namespace lorry::cli {

/// Texts that are written side by side. All have the same stop.
struct Texts {
  std::string stop;  ///< "" for none
  std::vector<generate::Request> requests;
  std::vector<bool> ended;  ///< by the stop: nothing more is drawn
};

/// The bytes of a text as tokens.
std::vector<int64_t> byte_tokens(const std::string& text);

void save_texts(const std::string& path, const Texts& texts);
/// Throws IoError if the file cannot be read, and FormatError that names it for what save_texts does not write.
Texts load_texts(const std::string& path);

}  // namespace lorry::cli
