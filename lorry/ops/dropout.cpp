#include "lorry/ops/dropout.h"

#include "lorry/ops/array.h"
#include "lorry/ops/creation.h"
#include "lorry/ops/dispatch/door.h"
#include "lorry/ops/random_sequence.h"

namespace lorry {

Tensor dropout(const Tensor& x, double p, bool training, Generator* generator) {
  const Running running("dropout");
  require_defined(x, "x");
  require<ValueError>(p >= 0 && p <= 1, "p is no probability; got {}; expected 0 to 1", p);
  require<DTypeError>(is_floating(x.dtype()), "the input is not floating; got {}; expected one of {}", x,
                      kFloatingNames);
  if (!training || p == 0) return x;
  const double keep = 1 - p, scale = p < 1 ? 1 / keep : 0;
  const formula::RandomKey key = detail::next_key(generator, x.device());
  return door::call(
      Op::dropout, {&x},
      [&] {
        const Tensor from = x.contiguous();
        const std::array<Tensor, 2> out{empty(x.sizes(), x.options()), empty(x.sizes(), {kBool, x.device()})};
        backend(x).random->dropout(array(out[0]), array(out[1]), array(from), key, keep, scale,
                                   current_stream(x.device()));
        return out;
      },
      p, scale, key)[0];
}

}  // namespace lorry
