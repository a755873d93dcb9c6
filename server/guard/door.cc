#include "server/guard/door.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>

namespace semaphored::guard {

Door::Door(const DoorOptions& options, std::function<void(ConnectionPtr)> on_ready)
    : options_(options),
      on_ready_(std::move(on_ready)),
      origins_(options.bounds),
      loop_(options.clock, options.handshake_timeout,
            {[this](ConnectionPtr ready) { on_ready_(std::move(ready)); },
             [this](ConnectionPtr over) { OnOver(std::move(over)); }}) {}

bool Door::HasItsShare(const Origin& origin) const {
  const int64_t most = options_.connections_max;
  return 4 * static_cast<int64_t>(connections_) >= 3 * most && 4 * origin.standing >= most;
}

void Door::Take(int descriptor) {
  Address address = AddressOf(descriptor);
  std::shared_ptr<Origin> origin = origins_.Of(address.origin, options_.clock->Now());
  if (HasItsShare(*origin)) {
    close(descriptor);
    return CountBreach(Breach::kShare, address.text, "");
  }
  // Those that wait come first.
  const int64_t waiting = origin->waiting;
  const bool waits = waiting > 0 || !origin->admissions.Take(options_.clock->Now());
  if (waits && waiting >= options_.bounds.connections_waiting) {
    close(descriptor);
    return CountBreach(Breach::kConnections, address.text, "");
  }
  TlsSocketPtr tls =
      options_.tls == nullptr ? nullptr : options_.tls->Accept(descriptor, options_.protocol);
  if (options_.tls != nullptr && tls == nullptr) {
    close(descriptor);
    return;
  }
  ++connections_;
  auto connection = std::make_unique<Connection>(descriptor, std::move(tls), std::move(address),
                                                 options_.bounds, std::move(origin), waits);
  if (connection->state() == Connection::State::kReady) return on_ready_(std::move(connection));
  loop_.Add(std::move(connection));
}

void Door::OnOver(ConnectionPtr connection) {
  --connections_;
  if (connection->breach() == Breach::kNone) return;
  // One that was not let in has cost nothing, and a client that was stopped takes nothing.
  if (connection->breach() != Breach::kConnections && connection->breach() != Breach::kUnread)
    connection->origin().admissions.OnBreach(options_.clock->Now());
  CountBreach(connection->breach(), connection->address().text, connection->detail());
}

void Door::CountBreach(Breach breach, const std::string& address, const std::string& detail) {
  const auto place = static_cast<size_t>(breach);
  ++closed_[place];
  std::optional<std::string> more;
  {
    const std::lock_guard lock(telling_);
    more = lines_[place].Again(options_.clock->Now());
  }
  if (!more) return;
  spdlog::warn("a connection from {} is closed: {}{}{}{}", address, BreachText(breach),
               detail.empty() ? "" : ": ", detail, *more);
}

}  // namespace semaphored::guard
