#pragma once

// A recording made by hand: what a trace must survive, without a GPU. Two threads; two streams of a GPU whose kernels
// overlap, one of them with itself; a second GPU; a copy and a fill; a replayed graph; clocks that differ; arrows;
// memory of two allocators; and names that need care in JSON.

#include "lorry/profile/recording.h"

namespace lorry::profile {

/// A name with quotes, a backslash, control characters, UTF-8 of two to four bytes, and bytes that are not UTF-8.
inline constexpr const char* kStrangeName = "a\"b\\c\n\t\x01\x7f \xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x9a \xff\xc3(";
/// The same as UTF-8: U+FFFD in place of each byte that is not.
inline constexpr const char* kStrangeNameInUtf8 =
    "a\"b\\c\n\t\x01\x7f \xc3\xa9 \xe2\x82\xac \xf0\x9f\x9a\x9a \xef\xbf\xbd\xef\xbf\xbd(";

Recording sample_recording();

}  // namespace lorry::profile
