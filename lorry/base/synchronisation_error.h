#pragma once

#include "lorry/base/error.h"

namespace lorry {

/// A wait for a GPU that profile::forbid_sync forbids. Nothing was waited for; the call had no effect.
class SynchronisationError : public Error {
  using Error::Error;
};

}  // namespace lorry
