// Compiled by nvcc, the same source has fused kernels for a GPU.

#include "lorry/bench/own_rule.cpp"
