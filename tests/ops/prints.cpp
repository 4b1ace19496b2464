// Prints a tensor, its sizes, dtype and device. Linked with lorry::ops alone.
#include <iostream>

#include "lorry/ops/creation.h"

int main() {
  const lorry::Tensor x = lorry::ones({1, 2});
  std::cout << x << " " << x.sizes() << " " << x.dtype() << " " << x.device() << "\n";
}
