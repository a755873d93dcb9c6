// Consul's sessions that stand for our permits towards foreign clients.
//
// A client that prunes a semaphore takes a holder whose session has ended for dead, so ours must
// not end while a client of ours may count on its lease: they stand on an external node of the
// catalogue, with no health check, neither of an agent nor of a daemon. Any daemon renews all of
// them; only when the last daemon has been gone for longer than their time-to-live (which Consul
// doubles) do they end.
//
// The other way (`sessions=daemon`, the recipe's): each daemon has sessions of its own, on its
// agent, that end with a health check of the daemon; it renews them alone, and destroys them when
// it ends.
//
// A session is good for one place in each semaphore: a permit is counted by entry and session
// within a folder. So there are as many sessions as the most places that any one semaphore has, and
// an acquire makes none.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/consul/client.h"

namespace semaphored::consul {

class Places {
 public:
  // `client` outlives this, and is used by its calls alone. All calls block as long as it does.
  Places(Client* client, const Url& url, NodeRef self);
  // Destroys those that end with the daemon.
  ~Places();
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // The node of the catalogue that the sessions of a store stand on.
  static std::string NodeOf(const Url& url);

  // Makes the node if it is not there, and reads what sessions there are. If they end with the
  // daemon, its check must be there, and one is made, by which other daemons find it.
  absl::Status Start();

  struct Taken {
    NodeRef host;  // Whose they are; if none of the daemon that was asked for can be had, our own.
    std::vector<std::string> sessions;
  };
  // Whose sessions Take gives for a lease of this daemon.
  absl::StatusOr<NodeRef> HostFor(NodeRef host);

  // `count` sessions that are not among `taken`. Makes what is missing. `host`: of which daemon, if
  // they end with one.
  absl::StatusOr<Taken> Take(NodeRef host, size_t count, const std::set<std::string>& taken);

  // It has ended. Where one has others may have, too: they are looked at before the next is taken.
  void Forget(const std::string& session);

  // Renews them all when it is time. A failure goes to the log alone: the next attempt comes well
  // before it matters.
  absl::Status RenewIfDue(SteadyTime now);

 private:
  // The sessions of one daemon, or of all.
  struct Group {
    std::string node;   // Of the catalogue. Empty: the agent's.
    std::string check;  // Empty: none.
    std::set<std::string> sessions;
  };
  struct Listed {
    std::string id;
    std::string node;
  };
  absl::Status Register();
  // What there is now of our own; those of others are looked for when they are next needed.
  absl::Status Refresh();
  NodeRef KeyOf(NodeRef host) const { return url_.ends_with_daemon ? host : NodeRef{}; }
  std::string NameOf(NodeRef key) const;
  absl::StatusOr<std::vector<Listed>> List(NodeRef key);
  // nullptr: that daemon has none.
  absl::StatusOr<Group*> Find(NodeRef key);
  absl::StatusOr<std::string> Make(NodeRef key, const Group& group);

  Client* const client_;
  const Url url_;
  const NodeRef own_;  // The key of those that this daemon renews.
  std::map<std::pair<uint32_t, uint32_t>, Group> groups_;
  bool doubtful_ = false;
  SteadyTime renew_at_{};
};

}  // namespace semaphored::consul
