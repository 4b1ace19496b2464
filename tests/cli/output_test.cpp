#include "lorry/cli/output.h"

#include <gtest/gtest.h>

#include "lorry/base/error.h"
#include "tests/support/message.h"

namespace lorry::cli {
namespace {

TEST(Output, text_is_folded_between_words) {
  EXPECT_EQ(folded("one two three", 100, 2), "one two three");
  EXPECT_EQ(folded("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(folded("one  two\nthree four", 10, 0), "one  two\nthree four") << "a line that ends begins anew";
  EXPECT_EQ(folded("incomprehensible word", 5, 1), "incomprehensible\n word");
  EXPECT_EQ(folded("ends\n", 80, 2), "ends\n");
  EXPECT_EQ(folded("", 80, 2), "");
}

TEST(Output, a_stream_that_takes_nothing_is_an_error_that_says_why) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  std::setvbuf(full, nullptr, _IONBF, 0);
  EXPECT_EQ(test::message<IoError>([&] { write(full, "text"); }),
            "cannot write standard error: No space left on device");
  std::fclose(full);
}

}  // namespace
}  // namespace lorry::cli
