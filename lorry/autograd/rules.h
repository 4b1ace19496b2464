#pragma once

// The rules, a list a family. rules.cpp puts them into one table indexed by operator.

#include <span>

#include "lorry/autograd/call.h"

namespace lorry::autograd {

}  // namespace lorry::autograd
