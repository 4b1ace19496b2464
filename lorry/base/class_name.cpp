#include "lorry/base/class_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace lorry {

std::string detail::demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                        std::free);
  return status == 0 ? readable.get() : name;
}

std::string class_name(const std::type_info& type) { return detail::demangled(type.name()); }

}  // namespace lorry
