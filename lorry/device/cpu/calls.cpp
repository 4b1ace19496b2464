#include "lorry/device/cpu/calls.h"

#include <cstddef>
#include <cstring>

#include "lorry/base/modes.h"

namespace lorry::cpu {
namespace {

class HostWrite final : public Call {
 public:
  HostWrite(void* to, int64_t bytes)
      : to_(to), bytes_(static_cast<const std::byte*>(to), static_cast<const std::byte*>(to) + bytes) {}
  void run() const override { std::memcpy(to_, bytes_.data(), bytes_.size()); }
  void addresses(AddressVisitor& visitor) const override { visitor(to_); }

 private:
  void* to_;
  std::vector<std::byte> bytes_;
};

}  // namespace

void Calls::add_host_writes() {
  for (const auto& [data, bytes] : std::exchange(host_writes_, {}))
    add(std::make_unique<HostWrite>(data, bytes), bytes);
}

void Calls::append(std::unique_ptr<Call> call) {
  call->operator_name = t_operator;
  calls_.push_back(std::move(call));
}

void Calls::run() const {
  const char* const before = t_operator;
  struct Restore {
    const char* before;
    ~Restore() { t_operator = before; }
  } restore{before};
  for (const auto& call : calls_) {
    t_operator = call->operator_name;
    call->run();
  }
}

}  // namespace lorry::cpu
