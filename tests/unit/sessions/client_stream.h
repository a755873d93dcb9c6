// A client's stream, or its call, as Sessions sees it: records what it receives.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/sessions/sessions.h"

namespace semaphored {

class ClientStream : public SessionListener {
 public:
  struct Granted {
    uint64_t tag;
    LeasePtr lease;
    Vouch vouch;
  };

  void OnQueued(uint64_t tag, uint64_t, WaitReason reason, int64_t) override {
    queued.push_back(tag);
    queued_for.push_back(reason);
  }
  void OnGranted(uint64_t tag, const LeasePtr& lease, const std::string&, Vouch vouch) override {
    granted.push_back({tag, lease, vouch});
  }
  void OnRefused(uint64_t tag, Refusal refusal) override {
    refused.emplace_back(tag, std::move(refusal));
  }
  void OnRecalled(uint64_t, const Id&, const std::string&, const RecallNotice& recall) override {
    recalls.push_back(recall);
  }
  void OnEnded(uint64_t, const Id& claim, const std::string&, EndCause cause) override {
    ended.emplace_back(claim, cause);
  }
  void OnOpened(const Id& id, int64_t, Vouch vouch, bool was_resumed,
                const std::vector<HeldLease>& leases) override {
    session = id;
    opened = vouch;
    resumed = was_resumed;
    held = leases;
  }
  void OnSessionEnded(Refusal refusal) override { over.push_back(std::move(refusal)); }
  void OnAssigned(const Assignment& assignment) override { assigned.push_back(assignment); }

  // Of the last refusal; kUnspecified: there was none.
  Reason reason() const {
    return refused.empty() ? Reason::kUnspecified : refused.back().second.reason;
  }

  Id session;
  Vouch opened;
  bool resumed = false;
  std::vector<HeldLease> held;  // Listed when the session was opened.
  std::vector<uint64_t> queued;
  std::vector<WaitReason> queued_for;
  std::vector<Granted> granted;
  std::vector<std::pair<uint64_t, Refusal>> refused;
  std::vector<RecallNotice> recalls;
  std::vector<std::pair<Id, EndCause>> ended;
  std::vector<Assignment> assigned;
  std::vector<Refusal> over;
};

}  // namespace semaphored
