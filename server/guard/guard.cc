#include "server/guard/guard.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

namespace semaphored::guard {

Guard::Guard(const Options& options, std::function<void(int)> join)
    : options_(options),
      join_(std::move(join)),
      origins_(options.bounds),
      relay_(options.clock, options.handshake_timeout,
             {[](ConnectionPtr) {}, [this](ConnectionPtr over) { OnOver(std::move(over)); }}),
      door_(options.clock, options.handshake_timeout,
            {[this](ConnectionPtr ready) { Admit(std::move(ready)); },
             [this](ConnectionPtr over) { OnOver(std::move(over)); }}) {}

Guard::~Guard() {
  TakeNoMore();
  Stop(Milliseconds(0));
}

bool Guard::HasItsShare(const Origin& origin) const {
  const int64_t most = options_.connections_max;
  return 4 * static_cast<int64_t>(connections_) >= 3 * most && 4 * origin.standing >= most;
}

void Guard::Take(int descriptor) {
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
  SslPtr ssl = options_.tls == nullptr ? nullptr : options_.tls->Accept(descriptor);
  if (options_.tls != nullptr && ssl == nullptr) {
    close(descriptor);
    return;
  }
  ++connections_;
  auto connection = std::make_unique<Connection>(descriptor, std::move(ssl), std::move(address),
                                                 options_.bounds, std::move(origin), waits);
  if (connection->state() == Connection::State::kReady) return Admit(std::move(connection));
  door_.Add(std::move(connection));
}

void Guard::Admit(ConnectionPtr connection) {
  std::string key = peers_.NewKey();
  const int daemon =
      connection->Join(key, peers_.Add(key, connection->address().text, connection->certificate()));
  if (daemon < 0) {
    spdlog::warn("a connection from {} is closed: no pair of sockets can be made",
                 connection->address().text);
    peers_.Remove(key);
    return OnOver(std::move(connection));
  }
  join_(daemon);
  relay_.Add(std::move(connection));
}

void Guard::OnOver(ConnectionPtr connection) {
  --connections_;
  if (!connection->key().empty()) peers_.Remove(connection->key());
  if (connection->breach() == Breach::kNone) return;
  // One that was not let in has cost nothing, and a client that was stopped takes nothing.
  if (connection->breach() != Breach::kConnections && connection->breach() != Breach::kUnread)
    connection->origin().admissions.OnBreach(options_.clock->Now());
  CountBreach(connection->breach(), connection->address().text, connection->detail());
}

void Guard::CountBreach(Breach breach, const std::string& address, const std::string& detail) {
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

void Guard::TakeNoMore() { door_.Stop(Milliseconds(0)); }
void Guard::Stop(Milliseconds patience) { relay_.Stop(patience); }

GuardFigures NoFigures() {
  GuardFigures figures;
  for (size_t i = 1; i < kBreaches; ++i)
    figures.closed.emplace_back(BreachName(static_cast<Breach>(i)), 0);
  return figures;
}

GuardFigures Guard::figures() const {
  GuardFigures figures = NoFigures();
  figures.connections = connections_;
  for (size_t i = 1; i < kBreaches; ++i) figures.closed[i - 1].second = closed_[i];
  return figures;
}

}  // namespace semaphored::guard
