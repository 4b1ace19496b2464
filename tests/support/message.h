#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

#include "lorry/tensor/tensor.h"

namespace lorry::test {

/// A text as the CPU would have said it: expected messages name no other device.
inline std::string as_on_the_cpu(std::string text) {
  const std::string device = to_string(default_device());
  for (size_t at = 0; device != "cpu" && (at = text.find(device, at)) != std::string::npos; at += 3)
    text.replace(at, device.size(), "cpu");
  return text;
}

/// The text of the E that `body` throws; anything else fails the test.
template <class E, class F>
std::string message(F&& body) {
  try {
    body();
  } catch (const E& error) {
    return as_on_the_cpu(error.what());
  } catch (const std::exception& other) {
    ADD_FAILURE() << "another type of error: " << other.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lorry::test
