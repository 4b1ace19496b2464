#pragma once

#include <string>
#include <typeinfo>

namespace lorry {

/// The demangled name of a class, for messages.
std::string class_name(const std::type_info& type);

namespace detail {
/// Demangles a name. A name that is not mangled is returned as it is.
std::string demangled(const char* name);
}  // namespace detail

}  // namespace lorry
