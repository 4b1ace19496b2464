#pragma once

// A model that writes bytes may stop in the middle of a character. Utf8Stream passes on complete characters only, so
// that a terminal never gets half a character.

#include <string>

namespace lorry::cli {

class Utf8Stream {
 public:
  /// Adds a byte and returns what can be printed now: nothing while a character is incomplete, U+FFFD for bytes that
  /// cannot begin or continue a character (RFC 3629: no overlong forms, no surrogates).
  std::string push(unsigned char byte);
  /// The rest at the end: U+FFFD for an incomplete character.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace lorry::cli
