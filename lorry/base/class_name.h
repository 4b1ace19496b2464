#pragma once

#include <string>
#include <typeinfo>

namespace lorry {

/// The name of a class as a program writes it, for messages.
std::string class_name(const std::type_info& type);

namespace detail {
/// What a mangled name stands for; the name itself where it is none.
std::string demangled(const char* name);
}  // namespace detail

}  // namespace lorry
