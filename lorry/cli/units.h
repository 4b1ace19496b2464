#pragma once

// How figures are written (bench/units.h), under the names of this room.

#include "lorry/bench/units.h"

namespace lorry::cli {

using bench::bytes_text;
using bench::duration_text;
using bench::quantity;

}  // namespace lorry::cli
