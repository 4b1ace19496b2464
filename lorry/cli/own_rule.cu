// Under nvcc the same has fused kernels for a GPU.

#include "lorry/cli/own_rule.cpp"
