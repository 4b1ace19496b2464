// Under nvcc the same has fused kernels for a GPU.

#include "lorry/bench/own_rule.cpp"
