#include "lorry/profile/session.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "lorry/lorry.h"
#include "lorry/profile/chrome_trace.h"

namespace lorry {
namespace {

TEST(Session, debug) {
  const Tensor x = randn({64}, {}), y = randn({64}, {});
  profile::Session session;
  {
    const Scope outer("step");
    const Tensor z = x.add(y).mul(x);
    z.sum();
  }
  const profile::Recording r = session.stop();
  fmt::print("{}\n", profile::chrome_trace(r));
}

}  // namespace
}  // namespace lorry
