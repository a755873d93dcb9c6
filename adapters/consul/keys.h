// Where what is in Consul. Under the prefix of the store:
//
//   <name>/.lock                the record that foreign clients share (lock_record.h)
//   <name>/<session>            a contender: ours ("a place") or a foreign one
//   .semaphored/d/<name>!       all that we know of the semaphore (document.h), but for
//   .semaphored/w/<name>!<page>  the waiters who are far from their turn,
//   .semaphored/t/<name>!<id>   its tickets,
//   .semaphored/p/<name>!<id>   and their payloads
//   .semaphored/s/<id>          a session of a client
//   .semaphored/i/<id>/<name>!  that this session may have claims there
//   .semaphored/q/<client>/…    the rows of its requests (request_book.h)
//   .semaphored/l/<node>/<lane> how many commits the lane has made
//   .semaphored/n/<node id>, h/<number>  a node, and its heartbeats
//   .semaphored/number          the highest number that a node was ever given
//   .semaphored/version         of all of this (kStoreVersion)
//   .semaphored/m/<node>/<name>!  word for a node that the semaphore has changed
//
// No name begins with '.', and none has a '!', so neither can be taken for another. What is under
// .semaphored has no session and lies outside of the folders that foreign clients look into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "adapters/types.h"

namespace semaphored::consul {

// Of all that is under a prefix (common/store_version.h). The first daemon writes it.
inline constexpr uint64_t kStoreVersion = 1;

class Keys {
 public:
  static constexpr char kFloor[] = "floor";

  explicit Keys(const std::string& prefix)
      : prefix_(prefix + "/"), own_(prefix_ + ".semaphored/") {}

  const std::string& prefix() const { return prefix_; }
  std::string Folder(const std::string& name) const { return prefix_ + name + "/"; }
  std::string Lock(const std::string& name) const { return Folder(name) + ".lock"; }
  std::string Documents() const { return own_ + "d/"; }
  std::string Document(const std::string& name) const { return Documents() + name + "!"; }
  std::string Tickets(const std::string& name) const { return own_ + "t/" + name + "!"; }
  std::string Ticket(const std::string& name, const Id& id) const {
    return Tickets(name) + id.Hex();
  }
  std::string Payloads(const std::string& name) const { return own_ + "p/" + name + "!"; }
  std::string Payload(const std::string& name, const Id& id) const {
    return Payloads(name) + id.Hex();
  }
  std::string Pages() const { return own_ + "w/"; }
  std::string Pages(const std::string& name) const { return Pages() + name + "!"; }
  std::string Page(const std::string& name, uint64_t number) const;
  std::string Sessions() const { return own_ + "s/"; }
  std::string Session(const Id& id) const { return Sessions() + id.Hex(); }
  std::string Index(const Id& id) const { return own_ + "i/" + id.Hex() + "/"; }
  std::string Index(const Id& id, const std::string& name) const { return Index(id) + name + "!"; }
  std::string Requests() const { return own_ + "q/"; }
  // All requests of a client. Its name is escaped.
  std::string Client(const std::string& client_id) const;
  // What the keys of all one-shot requests begin with.
  std::string OneShots() const;
  std::string RequestFloor(const std::string& client_id) const {
    return Client(client_id) + kFloor;
  }
  std::string RequestBlock(const std::string& client_id, uint64_t block) const;
  std::string Lanes(uint32_t node) const { return own_ + "l/" + std::to_string(node) + "/"; }
  std::string Lane(uint32_t node, uint32_t lane) const {
    return Lanes(node) + std::to_string(lane);
  }
  std::string Nodes() const { return own_ + "n/"; }
  std::string Node(const std::string& node_id) const;
  std::string HighestNode() const { return own_ + "number"; }
  std::string Version() const { return own_ + "version"; }
  std::string Heartbeats() const { return own_ + "h/"; }
  std::string Heartbeat(uint32_t node) const { return Heartbeats() + std::to_string(node); }
  std::string Notices(uint32_t node) const { return own_ + "m/" + std::to_string(node) + "/"; }
  // Is always there, so that there is something to watch.
  std::string NoticeBox(uint32_t node) const { return Notices(node) + ".box"; }
  std::string Notices(uint32_t node, const std::string& name) const {
    return Notices(node) + name + "!";
  }

  // The semaphore that a document is of, an entry of an index or a word for a node is about;
  // `under`: what its key begins with. nullopt: it is none.
  static std::optional<std::string> NameIn(std::string_view key, std::string_view under);
  // The ticket that a key under Tickets or Payloads is about.
  static std::optional<Id> IdIn(std::string_view key, std::string_view under);
  // The semaphore of whose waiters this is a page.
  std::optional<std::string> NameOfPage(std::string_view key) const;
  // The number at the end of a key of requests, or of a page.
  static std::optional<uint64_t> BlockIn(std::string_view key, std::string_view under);
  // The semaphore whose record this is.
  std::optional<std::string> NameOfLock(std::string_view key) const;

 private:
  const std::string prefix_;
  const std::string own_;
};

}  // namespace semaphored::consul
