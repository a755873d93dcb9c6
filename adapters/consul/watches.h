// Questions that Consul answers when something has changed (blocking queries), several at once.
// Used by one thread at a time, but for Wake().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/common/http.h"
#include "adapters/consul/client.h"

namespace semaphored::consul {

class Watches {
 public:
  explicit Watches(const Url& url);
  ~Watches();
  Watches(const Watches&) = delete;
  Watches& operator=(const Watches&) = delete;

  struct Change {
    std::string id;
    std::string body;  // Of GET; empty if nothing is there.
  };
  struct Heard {
    std::vector<Change> changes;
    // The watches that could not ask, and ask again since then: their next change shows what
    // happened meanwhile.
    std::vector<std::string> interrupted;
    absl::Status status;  // Why, if any could not.
  };

  // Asks for `target` from now on, under this name; the first answer comes at once. Nothing happens
  // if the name is asked for already.
  void Add(const std::string& id, const HttpTarget& target);
  void Remove(const std::string& id);
  bool Has(const std::string& id) const { return watches_.contains(id); }
  size_t size() const { return watches_.size(); }
  std::vector<std::string> Ids() const;

  // Waits for a change, until `deadline` or Wake(). A deadline in the past: only takes what is
  // there.
  Heard Wait(SteadyTime deadline);
  // Ends a Wait that waits, this one or the next. Any thread.
  void Wake();

 private:
  struct Watch;

  void Ask(Watch* watch);
  void Finish(Watch* watch, HttpAnswer answer);
  // When the next of those that were refused asks again; max: none.
  SteadyTime AskPaused(SteadyTime now);

  const Url url_;
  HttpPool pool_;
  std::map<std::string, std::unique_ptr<Watch>> watches_;
  Heard heard_;  // Since the last Wait.
  std::atomic<bool> woken_{false};
};

}  // namespace semaphored::consul
