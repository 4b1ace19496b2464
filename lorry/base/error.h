#pragma once

// The typed errors of Lorry, and the functions that throw them.
//
// A message is one sentence a user can act on:
//   <operator>: <what is wrong>; got <operand: shape dtype device>, ...; expected <rule>; <remedy>
// raise and require add the operator's name: the operator that this thread is running (Running, base/modes.h). So the
// text of a message never contains it. If no operator is running, a message begins with its subject: "safetensors:
// ...". Invariant: nothing in Lorry aborts the process or prints instead of throwing; every failure is one of these
// types.

#include <fmt/core.h>
#if FMT_VERSION >= 110000
#include <fmt/format.h>  // where newer versions have vformat
#endif

#include <stdexcept>
#include <string>
#include <utility>

#include "lorry/base/modes.h"

namespace lorry {

/// Base class of all errors that Lorry throws.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what) : std::runtime_error(what) { t_recorded_errors += t_recording != 0 ? 1 : 0; }
};

/// Sizes, ranks, strides or overlap that the operator does not accept.
class ShapeError : public Error {
  using Error::Error;
};
/// A dtype that the operator does not accept.
class DTypeError : public Error {
  using Error::Error;
};
/// A device that does not exist, or operands on different ones.
class DeviceError : public Error {
  using Error::Error;
};
/// A dimension, an index or a range outside the tensor.
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
/// A function that cannot be recorded or compiled as asked.
class CompileError : public Error {
  using Error::Error;
};
/// A call that is not possible while a stream is captured into a device graph, or a graph that cannot be replayed.
class CaptureError : public Error {
  using Error::Error;
};
/// Another process of a group has failed, does not come, or makes another call; or what connects them has failed.
class ParallelError : public Error {
  using Error::Error;
};
/// An error reported by the CUDA driver or one of its libraries.
class CudaError : public Error {
  using Error::Error;
};

namespace detail {
/// "<name>: <text>", or the text alone if the name is null.
[[gnu::cold]] inline std::string named(const char* name, std::string text) {
  return name == nullptr ? std::move(text) : fmt::format("{}: {}", name, text);
}
}  // namespace detail

/// Throws E with a formatted message. The running operator's name, if there is one, is put in front.
template <class E = Error, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(detail::named(t_operator, fmt::vformat(format, fmt::make_format_args(args...))));
}

/// Throws E with a message that begins with `name`, not with the running operator: for errors of another call, and
/// together with running_or.
template <class E = Error, class... Args>
[[noreturn, gnu::cold, gnu::noinline]] void raise_as(const char* name, fmt::format_string<Args...> format,
                                                     Args&&... args) {
  throw E(detail::named(name, fmt::vformat(format, fmt::make_format_args(args...))));
}

/// Throws E unless the condition holds. Arguments are formatted only on failure, so passing tensors and layouts is
/// free.
template <class E = Error, class... Args>
inline void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    raise<E, Args...>(format, std::forward<Args>(args)...);
}

}  // namespace lorry
