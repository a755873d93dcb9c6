#include "server/guard/guard.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace semaphored::guard {

Guard::Guard(const DoorOptions& options, std::function<void(int)> join)
    : join_(std::move(join)),
      relay_(options.clock, options.handshake_timeout,
             {[](ConnectionPtr) {}, [this](ConnectionPtr over) { OnOver(std::move(over)); }}),
      door_(options, [this](ConnectionPtr ready) { Admit(std::move(ready)); }) {}

Guard::~Guard() {
  TakeNoMore();
  Stop(Milliseconds(0));
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
  if (!connection->key().empty()) peers_.Remove(connection->key());
  door_.OnOver(std::move(connection));
}

GuardFigures NoFigures() {
  GuardFigures figures;
  for (size_t i = 1; i < kBreaches; ++i)
    figures.closed.emplace_back(BreachName(static_cast<Breach>(i)), 0);
  return figures;
}

GuardFigures Guard::figures() const {
  GuardFigures figures = NoFigures();
  figures.connections = door_.connections();
  for (size_t i = 1; i < kBreaches; ++i)
    figures.closed[i - 1].second = door_.closed(static_cast<Breach>(i));
  return figures;
}

}  // namespace semaphored::guard
