// Who hears of launches. The launches are made up: no GPU is needed.

#include "lorry/device/launches.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace lorry::device {
namespace {

Launch a_launch(Launch::Kind kind = Launch::Kind::kernel) { return {.kind = kind, .function = "f"}; }

/// Writes its letter for each launch, and then launches itself if it is told to.
struct Writer final : LaunchObserver {
  Writer(std::string& text, char letter, bool launches = false) : text(text), letter(letter), launches(launches) {}
  void launched(const Launch&) noexcept override {
    text += letter;
    if (launches) announce(a_launch());
  }
  std::string& text;
  const char letter;
  const bool launches;
};

TEST(Launches, observers_hear_of_them_from_the_innermost_outwards_while_their_scopes_last) {
  std::string heard;
  Writer a(heard, 'a'), b(heard, 'b');
  EXPECT_FALSE(launches_observed());
  announce(a_launch());
  {
    const ObserveLaunches outer(a);
    announce(a_launch());
    {
      const ObserveLaunches inner(b);
      announce(a_launch());
    }
    EXPECT_TRUE(launches_observed());
    announce(a_launch());
  }
  EXPECT_FALSE(launches_observed());
  announce(a_launch());
  EXPECT_EQ(heard, "abaa");
}

TEST(Launches, what_an_observer_launches_is_not_observed) {
  std::string heard;
  Writer a(heard, 'a'), b(heard, 'b', true);
  const ObserveLaunches outer(a), inner(b);
  announce(a_launch());
  announce(a_launch());
  EXPECT_EQ(heard, "baba");
}

TEST(Launches, other_threads_are_not_observed) {
  std::string heard;
  Writer a(heard, 'a');
  const ObserveLaunches scope(a);
  std::thread([] { announce(a_launch()); }).join();
  EXPECT_EQ(heard, "");
}

TEST(Launches, hidden_ones_are_not_told) {
  const LaunchCount count;
  {
    const HideLaunches hidden;
    EXPECT_FALSE(launches_observed());
    announce(a_launch());
  }
  announce(a_launch());
  EXPECT_EQ(count.kernels(), 1);
}

TEST(Launches, a_count_is_of_kernels_alone) {
  const LaunchCount outer;
  announce(a_launch());
  {
    const LaunchCount inner;
    announce(a_launch());
    announce(a_launch(Launch::Kind::copy));
    announce(a_launch(Launch::Kind::library));
    announce(a_launch(Launch::Kind::fill));
    EXPECT_EQ(inner.kernels(), 1);
  }
  announce(a_launch());
  EXPECT_EQ(outer.kernels(), 3);
}

}  // namespace
}  // namespace lorry::device
