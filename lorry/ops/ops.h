#pragma once

// Every public operator.

#include "lorry/ops/copy.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/promotion.h"
