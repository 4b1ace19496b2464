// Tensors: making them, looking at them from other sides, and computing with them. Names and rules are PyTorch's.
#include <iostream>

#include "lorry/lorry.h"

using namespace lorry;

int main() {
  const Tensor x = arange(6).reshape({2, 3});
  std::cout << "x = " << x << "\n\n";

  // A view shows the same memory: nothing is copied, and writing through it writes x.
  const Tensor column = x.transpose(0, 1)[1];
  column.fill_(10);
  std::cout << "x after its second column was filled through a view = " << x << "\n\n";

  // Shapes broadcast: sizes are equal or 1, aligned at the last dimension. Types promote: i64 with f32 gives f32.
  const Tensor scaled = x * tensor({0.5, 1.0, 2.0});
  std::cout << "scaled = " << scaled << ", " << name(scaled.dtype()) << "\n\n";

  // Positions can be chosen by numbers or by a condition; that gives a copy.
  std::cout << "above 5: " << scaled.masked_select(scaled.gt(5)) << "\n";
  std::cout << "row means: " << scaled.mean(1) << ", all finite: " << scaled.isfinite().all() << "\n\n";

  // What does not fit is refused by an error that says what would.
  try {
    scaled.matmul(scaled);
  } catch (const ShapeError& error) {
    std::cout << error.what() << "\n";
  }
}
