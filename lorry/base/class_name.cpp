#include "lorry/base/class_name.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace lorry {

std::string class_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                    std::free);
  return status == 0 ? name.get() : type.name();
}

}  // namespace lorry
