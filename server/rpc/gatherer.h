// Takes one look at the daemon for the exporter, which shows its figures.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/figures/metrics.h"
#include "server/lanes/membership.h"
#include "server/rpc/host.h"
#include "server/rpc/security.h"
#include "server/rpc/server.h"
#include "server/sessions/sessions.h"

namespace semaphored {

class Gatherer {
 public:
  // All outlive it. The server serves. `spans`: any thread's; empty: there are none.
  Gatherer(Server* server, Host* host, Sessions* sessions, const Membership* membership,
           const Security* security, std::string store_file,
           std::function<SpanFigures()> spans = {})
      : server_(server),
        host_(host),
        sessions_(sessions),
        membership_(membership),
        security_(security),
        store_file_(std::move(store_file)),
        spans_(std::move(spans)) {}

  // Blocks for at most three seconds: one for the engine's list, if one is due (otherwise, and if the engine does not
  // answer, the last list is shown with its age), and two for the reactor. Any thread but the reactor's; several at the
  // same time.
  DaemonFigures Gather() const;

 private:
  // False: not in time.
  bool AskReactor(DaemonFigures* figures) const;
  void RefreshList() const;
  // Of what the ledger keeps. `figures`: with what the reactor has said.
  std::vector<LimitFigures> LedgerLimits(const DaemonFigures& figures) const;

  Server* server_;
  Host* host_;
  Sessions* sessions_;
  const Membership* membership_;
  const Security* security_;
  const std::string store_file_;  // Empty: the engine is elsewhere.
  const std::function<SpanFigures()> spans_;
};

}  // namespace semaphored
