#pragma once

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "lorry/base/events.h"

namespace lorry::test {

/// The warnings of a scope.
class Warnings {
 public:
  Warnings()
      : before_(events::set_handler([this](const events::Event& e) {
          if (e.kind == events::Kind::warning) texts.emplace_back(e.text);
        })) {}
  ~Warnings() { events::set_handler(std::move(before_)); }
  std::string all() const { return fmt::format("{}", fmt::join(texts, "\n")); }
  std::vector<std::string> texts;

 private:
  events::Handler before_;
};

}  // namespace lorry::test
