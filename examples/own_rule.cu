// Compiled by nvcc, the rule of own_rule.h has fused kernels for GPUs.
#include "examples/own_rule.cpp"
