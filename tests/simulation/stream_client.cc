#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/simulation/clients.h"

namespace semaphored::simulation {

// The one loop: begins what there is to begin, and looks after what is under way.
void StreamClient::Work() {
  NewStage();
  if (session_.empty()) {
    if (around_->winding_down && !opening_ && !needed()) {
      if (stands_by()) Later(kSecond, [this] { Work(); });
      return;
    }
    ttl_ms_ = random().Between(1500, 5000);
    Open();
    return;
  }
  if (!opened_here_) return Open();
  if (world().now() > answered_at_us_ + ttl_ms_ * kMillisecond * 2 / 3) return Reconnect();
  Ping();
  if (!closing_) Act();
  if (random().Chance(0.02)) return Reconnect();
  Later(std::min(ttl_ms_ / 3, random().Between(100, 1500)) * kMillisecond, [this] { Work(); });
}

void StreamClient::Reconnect() {
  Disconnect();
  opened_here_ = false;
  NewStage();
  Later(random().Between(1, 300) * kMillisecond, [this] { Work(); });
}

void StreamClient::Open() {
  opening_ = true;
  opened_here_ = false;
  answered_at_us_ = world().now();
  if (ConnectAnywhere()) {
    OpenParams params = OpenWith();
    params.client_id = client_id_;
    params.ttl_ms = ttl_ms_;
    params.resume = session_;
    params.holder = client_id_;
    open_tag_ = Send([params](Connection& c, uint64_t tag) { c.Open(tag, params); });
  }
  Later(random().Between(300, 3000) * kMillisecond, [this] { Work(); });
}

void StreamClient::OnOpened(const Reply& reply) {
  if (session_.empty()) {
    session_ = reply.claim;
    epoch_ = 0;
    deadline_us_ = 0;
  }
  Trace(absl::StrCat(reply.resumed ? "resumes" : "opens", " its session ",
                     session_.Hex().substr(0, 6), ", epoch ", reply.epoch));
  opening_ = false;
  opened_here_ = true;
  closing_ = false;
  Prolong(reply);
  if (reply.resumed) Keep(reply.claims);
  for (size_t i = 0; i < reply.claims.size(); ++i) {
    const auto belief = beliefs_.find(reply.claims[i]);
    if (belief != beliefs_.end()) BoundByRecall(reply, reply.recalls[i], &belief->second);
  }
  SendAgain();
  NewStage();
  Later(10 * kMillisecond, [this] { Work(); });
}

// An answer about the session holds for all its leases.
void StreamClient::Prolong(const Reply& reply) {
  answered_at_us_ = world().now();
  if (reply.epoch < epoch_) return;
  epoch_ = reply.epoch;
  deadline_us_ = std::max(deadline_us_, DeadlineUs(reply));
  for (auto& [claim, belief] : beliefs_)
    belief.deadline_us = std::min(deadline_us_, belief.recall_us);
}

void StreamClient::Ping() {
  Send([](Connection& c, uint64_t tag) { c.Ping(tag); });
}

void StreamClient::Close() {
  closing_ = true;
  beliefs_.clear();
  checks().IsGone(client_id_);
  Trace("closes its session");
  close_tag_ = Send([](Connection& c, uint64_t tag) { c.Close(tag); });
}

// The session is no more: a new life begins, in which nothing of the old one is asked for again.
void StreamClient::LoseSession() {
  beliefs_.clear();
  Forget();
  checks().IsGone(client_id_);
  session_ = Id{};
  opening_ = opened_here_ = closing_ = false;
  Disconnect();
  NewClientId();
  NewStage();
  if (!around_->winding_down || stands_by())
    Later(random().Between(1, 1000) * kMillisecond, [this] { Work(); });
}

void StreamClient::Crash() {
  Trace("crashes");
  LoseSession();
}

bool StreamClient::HandleSession(const Reply& reply) {
  switch (reply.kind) {
    case Reply::Kind::kOpened:
      if (reply.tag == open_tag_) OnOpened(reply);
      return true;
    case Reply::Kind::kAlive:
      if (opened_here_) Prolong(reply);
      return true;
    case Reply::Kind::kSessionEnded:
      Trace(absl::StrCat("is told that its session has ended: ",
                         std::string(ReasonName(reply.reason))));
      if (reply.code == absl::StatusCode::kNotFound) {
        LoseSession();
      } else {
        Reconnect();
      }
      return true;
    case Reply::Kind::kDone:
      if (reply.tag == close_tag_) LoseSession();
      return true;
    case Reply::Kind::kRecalled:
      OnRecalled(reply);
      return false;
    default:
      return false;
  }
}

void StreamClient::OnRecalled(const Reply& reply) {
  const auto belief = beliefs_.find(reply.claim);
  if (belief == beliefs_.end()) return;
  BoundByRecall(reply, reply.recalls[0], &belief->second);
  // Some acknowledge at once, some late, and some never.
  if (random().Chance(0.4)) return;
  Later(random().Between(0, 1500) * kMillisecond,
        [this, claim = reply.claim, recall = reply.recalls[0].id] {
          if (open_here())
            Send([claim, recall](Connection& c, uint64_t) { c.Acknowledge(claim, recall); });
        });
}

}  // namespace semaphored::simulation
