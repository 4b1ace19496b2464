#pragma once

// Every pointwise formula: what the rows of pointwise.def name.

#include "lorry/formula/activations.h"
#include "lorry/formula/arithmetic.h"
#include "lorry/formula/comparison.h"
#include "lorry/formula/elementary.h"
