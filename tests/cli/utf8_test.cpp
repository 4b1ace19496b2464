#include "lorry/cli/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace lorry::cli {
namespace {

std::string pass(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  for (const char c : bytes) out += stream.push(static_cast<unsigned char>(c));
  return out + stream.finish();
}

TEST(Utf8Stream, whole_characters_pass_unchanged) {
  for (const char* text :
       {"plain", "caf\xC3\xA9", "\xE2\x82\xAC 5", "\xF0\x9F\x9A\x9A!", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(pass(text), text);
}

TEST(Utf8Stream, a_character_appears_only_when_it_is_complete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(0xAC), "\xE2\x82\xAC");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, what_is_no_character_becomes_the_replacement) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(pass("a\x80"
                 "b"),
            "a" + bad + "b");  // continues nothing
  EXPECT_EQ(pass("\xE2\x82"
                 "b"),
            bad + "b");                                               // cut short by another
  EXPECT_EQ(pass("\xC0\xAF"), bad + bad);                             // overlong
  EXPECT_EQ(pass("\xE0\x80\x80"), bad + bad + bad);                   // overlong
  EXPECT_EQ(pass("\xED\xA0\x80"), bad + bad + bad);                   // a surrogate
  EXPECT_EQ(pass("\xF4\x90\x80\x80"), bad + bad + bad + bad);         // past U+10FFFF
  EXPECT_EQ(pass("\xE2\x82"), bad);                                   // cut short by the end
  EXPECT_EQ(pass("\xE2\xF0\x9F\x9A\x9A"), bad + "\xF0\x9F\x9A\x9A");  // a new one begins inside
}

}  // namespace
}  // namespace lorry::cli
