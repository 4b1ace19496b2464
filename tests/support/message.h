#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace lorry::test {

/// The text of the E that `body` throws; anything else fails the test.
template <class E, class F>
std::string message(F&& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another type of error: " << other.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lorry::test
