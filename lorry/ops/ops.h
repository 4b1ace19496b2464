#pragma once

// Every public operator.

#include "lorry/ops/creation.h"
