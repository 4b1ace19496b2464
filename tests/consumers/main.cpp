// A program outside the tree: prints the type to which two others promote, so that the library is truly linked.
#include <cstdio>
#include <string>

#include "lorry/device/cpu/team.h"
#include "lorry/layout/dtype.h"

int main() { std::printf("%s on %d threads\n", std::string(lorry::name(lorry::promote(lorry::kF16, lorry::kBF16))).c_str(), lorry::cpu::threads()); }
