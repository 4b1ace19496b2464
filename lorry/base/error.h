#pragma once

// The typed errors of Lorry, and the functions that throw them.
//
// A message is one sentence a user can act on:
//   <operator>: <what is wrong>; got <operand: shape dtype device>, ...; expected <rule>; <remedy>
// raise and require write the operator: the one that this thread runs (Running, base/modes.h). No message spells it.
// Where no operator runs, a message begins with what it is about: "safetensors: ...".
// Invariant: nothing in Lorry aborts the process or prints instead of throwing; every failure is one of these types.

#include <fmt/core.h>
#if FMT_VERSION >= 110000
#include <fmt/format.h>  // where newer versions have vformat
#endif

#include <stdexcept>
#include <string>
#include <utility>

#include "lorry/base/modes.h"

namespace lorry {

/// What every error of Lorry is.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes, ranks, strides or overlap that the operator does not take.
class ShapeError : public Error {
  using Error::Error;
};
/// A dtype that the operator does not take.
class DTypeError : public Error {
  using Error::Error;
};
/// A device that does not exist, or operands on different ones.
class DeviceError : public Error {
  using Error::Error;
};
/// A dimension, an index or a range outside what the tensor has.
class IndexError : public Error {
  using Error::Error;
};
/// A value outside its domain: a probability of 2, a negative learning rate.
class ValueError : public Error {
  using Error::Error;
};
/// A gradient that cannot be computed: freed, overwritten, or never recorded.
class GradError : public Error {
  using Error::Error;
};
/// The device or the system has no more memory. The next call works.
class OutOfMemory : public Error {
  using Error::Error;
};
/// A file whose contents break its format.
class FormatError : public Error {
  using Error::Error;
};
/// The operating system refused: a path that is missing or unreadable, a full disk.
class IoError : public Error {
  using Error::Error;
};
class CompileError : public Error {
  using Error::Error;
};
class CaptureError : public Error {
  using Error::Error;
};
/// What the CUDA driver or one of its libraries reported.
class CudaError : public Error {
  using Error::Error;
};

namespace detail {
/// "<name>: <text>", or the text alone where the name is null.
[[gnu::cold]] inline std::string named(const char* name, std::string text) {
  return name == nullptr ? std::move(text) : fmt::format("{}: {}", name, text);
}
}  // namespace detail

/// Throws E with a formatted message, which begins with the running operator where there is one.
template <class E = Error, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(detail::named(t_operator, fmt::vformat(format, fmt::make_format_args(args...))));
}

/// Throws E with a message that begins with `name`, whatever runs: for reports about another call, and with running_or.
template <class E = Error, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void raise_as(const char* name, fmt::format_string<Args...> format,
                                                     Args&&... args) {
  throw E(detail::named(name, fmt::vformat(format, fmt::make_format_args(args...))));
}

/// Throws E unless the condition holds. Arguments are only formatted on failure, so tensors and layouts cost nothing
/// here.
template <class E = Error, class... Args>
inline void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    raise<E, Args...>(format, std::forward<Args>(args)...);
}

}  // namespace lorry
