// The announcement of waits, with waits that are made up: no device is needed.

#include "lorry/base/waits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lorry::waits {
namespace {

using Clock = std::chrono::steady_clock;

struct Told {
  events::Kind kind;
  std::string source, text;
  Wait wait;
  std::chrono::nanoseconds took;
  Clock::time_point begin;
};

class Waits : public ::testing::Test {
 protected:
  Waits()
      : before_(events::set_handler([this](const events::Event& e) {
          told_.push_back({e.kind, std::string(e.source), std::string(e.text), e.wait, e.took, e.begin});
        })) {}
  ~Waits() override { events::set_handler(before_); }

  /// A wait that takes a while.
  void wait() {
    const auto start = Clock::now();
    while (Clock::now() - start < std::chrono::microseconds(50)) {
    }
    ++waited_;
    took_ += Clock::now() - start;
  }
  void around_wait() {
    around("waited", [&] { wait(); });
  }

  std::vector<Told> told_;
  int waited_ = 0;
  std::chrono::nanoseconds took_{};
  events::Handler before_;
};

TEST_F(Waits, are_told_when_they_are_over_with_kind_beginning_and_length) {
  const auto before = Clock::now();
  around("waited", [&] {
    EXPECT_TRUE(told_.empty());
    wait();
  });
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].kind, events::Kind::synchronisation);
  EXPECT_EQ(told_[0].source, "synchronize");
  EXPECT_EQ(told_[0].text, "waited");
  EXPECT_EQ(told_[0].wait, Wait::asked);
  EXPECT_GE(told_[0].took, took_);
  EXPECT_GE(told_[0].begin, before);
  EXPECT_LE(told_[0].begin + told_[0].took, Clock::now());
}

TEST_F(Waits, that_fail_have_taken_time_too) {
  const auto fail = [&] {
    wait();
    throw std::runtime_error("a fault");
  };
  EXPECT_THROW(around("waited", fail), std::runtime_error);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_GE(told_[0].took, took_);
}

TEST_F(Waits, without_a_handler_or_a_rule_are_only_waited_for) {
  events::set_handler({});
  EXPECT_FALSE(heard());
  around_wait();
  EXPECT_EQ(waited_, 1);
}

TEST_F(Waits, have_the_reason_that_the_outermost_caller_gives) {
  {
    const Running running("nonzero");
    around_wait();
    const Reason outer(Wait::size);
    const Reason inner(Wait::to_host);
    around_wait();
    const Reason none(Wait::none);
    around_wait();
    const Reason memory(Wait::memory);
    around_wait();
    const Reason full(Wait::out_of_memory);
    const Reason memory_again(Wait::memory);
    around_wait();
  }
  around_wait();
  std::vector<Wait> kinds;
  for (const Told& each : told_) kinds.push_back(each.wait);
  EXPECT_EQ(kinds,
            (std::vector<Wait>{Wait::other, Wait::size, Wait::size, Wait::memory, Wait::out_of_memory, Wait::asked}));
  EXPECT_EQ(told_[0].source, "nonzero");
}

TEST_F(Waits, that_are_forbidden_are_not_waited_for) {
  const RuleScope rule({.policy = Policy::forbid});
  const Running running("item");
  const Reason reason(Wait::value);
  try {
    around_wait();
    FAIL() << "nothing was thrown";
  } catch (const SynchronisationError& error) {
    const std::string what = error.what();
    EXPECT_TRUE(
        what.starts_with("item: the host would wait for the device to read an element's value, and forbid_sync "
                         "forbids that"))
        << what;
    EXPECT_NE(what.find("compute on with the tensor"), std::string::npos) << what;
  }
  EXPECT_EQ(waited_, 0);
  EXPECT_TRUE(told_.empty());
}

TEST_F(Waits, that_were_asked_for_or_are_made_once_are_allowed) {
  const RuleScope rule({.policy = Policy::forbid});
  around_wait();
  {
    const Reason once(Wait::setup);
    around_wait();
  }
  EXPECT_EQ(waited_, 2);
  const RuleScope all({.policy = Policy::forbid, .asked_too = true});
  EXPECT_THROW(around_wait(), SynchronisationError);
}

TEST_F(Waits, that_must_not_fail_are_waited_for_and_a_warning_comes_before) {
  const RuleScope rule({.policy = Policy::forbid});
  const Running running("item");
  around_noexcept("waited", [&] {
    EXPECT_EQ(told_.size(), 1u);
    wait();
  });
  EXPECT_EQ(waited_, 1);
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[0].kind, events::Kind::warning);
  EXPECT_EQ(told_[0].source, "item");
  EXPECT_EQ(told_[1].kind, events::Kind::synchronisation);
}

TEST_F(Waits, that_are_warned_about_are_told_before_and_after) {
  const RuleScope rule({.policy = Policy::warn});
  const Running running("unique");
  const Reason reason(Wait::size);
  around("waited", [&] {
    ASSERT_EQ(told_.size(), 1u);
    wait();
  });
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[0].kind, events::Kind::warning);
  EXPECT_TRUE(told_[0].text.starts_with("the host waits for the device to learn the size of a result"))
      << told_[0].text;
  EXPECT_EQ(told_[0].took.count(), 0);
  EXPECT_EQ(told_[1].kind, events::Kind::synchronisation);
  EXPECT_EQ(told_[1].wait, Wait::size);
  EXPECT_GE(told_[1].took, took_);
}

TEST_F(Waits, rules_nest_and_belong_to_their_thread) {
  const RuleScope forbidden({.policy = Policy::forbid});
  const Running running("item");
  {
    const RuleScope allowed({});
    around_wait();
    EXPECT_EQ(waited_, 1);
  }
  EXPECT_THROW(around_wait(), SynchronisationError);
  std::thread([&] { around_wait(); }).join();
  EXPECT_EQ(waited_, 2);
}

TEST_F(Waits, under_a_lock_are_told_together_when_it_is_free) {
  const RuleScope rule({.policy = Policy::warn});
  const Running running("add");
  const Reason reason(Wait::memory);
  {
    const Deferred outer;
    {
      const Deferred inner;
      around_wait();
    }
    around_wait();
    EXPECT_TRUE(told_.empty());
  }
  ASSERT_EQ(told_.size(), 2u);
  EXPECT_EQ(told_[1].wait, Wait::memory);
  EXPECT_GE(told_[1].took, took_);
  told_.clear();
  { const Deferred nothing_is_waited_for; }
  EXPECT_TRUE(told_.empty());
}

TEST_F(Waits, a_handler_that_throws_harms_no_wait) {
  events::set_handler([](const events::Event&) { throw std::runtime_error("no"); });
  around_wait();
  around_noexcept("waited", [&] { wait(); });
  EXPECT_EQ(waited_, 2);
}

TEST(WaitKinds, all_have_a_name_a_purpose_and_a_remedy) {
  std::vector<std::string> names;
  for (int kind = 1; kind <= static_cast<int>(Wait::other); ++kind) {
    const auto wait = static_cast<Wait>(kind);
    names.emplace_back(name(wait));
    EXPECT_NE(names.back(), "none") << kind;
    EXPECT_STRNE(purpose(wait), purpose(Wait::none));
    EXPECT_STRNE(remedy(wait), remedy(Wait::none));
  }
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::unique(names).begin(), names.end());
}

TEST_F(Waits, are_followed_by_the_check_whether_anybody_is_told_or_not) {
  set_check([] { throw std::runtime_error("nothing came"); });
  EXPECT_THROW(around_wait(), std::runtime_error);
  EXPECT_EQ(told_.size(), 1u) << "the wait is told all the same";
  const events::Handler own = events::set_handler(nullptr);
  EXPECT_THROW(around_wait(), std::runtime_error);
  around_noexcept("waited", [&] { wait(); });
  set_check(nullptr);
  around_wait();
  events::set_handler(own);
  EXPECT_EQ(waited_, 4);
}

}  // namespace
}  // namespace lorry::waits
