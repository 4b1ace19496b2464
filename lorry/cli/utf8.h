#pragma once

// A model that writes bytes may stop in the middle of a character. Utf8Stream passes on whole characters only, so that
// a terminal never sees half of one.

#include <string>

namespace lorry::cli {

class Utf8Stream {
 public:
  /// Takes the next byte and returns what can be printed now: nothing while a character is incomplete, and U+FFFD for
  /// bytes that no character begins or continues with (RFC 3629: no overlong forms, no surrogates).
  std::string push(unsigned char byte);
  /// What is left at the end: U+FFFD for a character that was never completed.
  std::string finish();

 private:
  std::string pending_;
};

}  // namespace lorry::cli
