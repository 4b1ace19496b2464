#pragma once

// Every public operator.

#include "lorry/ops/aliases.h"
#include "lorry/ops/attention.h"
#include "lorry/ops/copy.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dropout.h"
#include "lorry/ops/embedding.h"
#include "lorry/ops/indexing.h"
#include "lorry/ops/joining.h"
#include "lorry/ops/loss.h"
#include "lorry/ops/matmul.h"
#include "lorry/ops/norm.h"
#include "lorry/ops/pointwise.h"
#include "lorry/ops/promotion.h"
#include "lorry/ops/random.h"
#include "lorry/ops/reduce.h"
#include "lorry/ops/rotary.h"
#include "lorry/ops/softmax.h"
#include "lorry/ops/sort.h"
#include "lorry/ops/sum_to_size.h"
#include "lorry/ops/views.h"
