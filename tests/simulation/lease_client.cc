#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/clients.h"

namespace semaphored::simulation {
namespace {
// An answer that has not come by then is asked for elsewhere.
constexpr int64_t kPatienceUs = 4 * kSecond;
}  // namespace

void LeaseClient::Think() {
  stage_ = Stage::kIdle;
  NewStage();
  Disconnect();
  if (around_->winding_down) return;
  Later(random().Between(1, 1500) * kMillisecond, [this] {
    if (!around_->winding_down) NewRequest();
  });
}

void LeaseClient::NewRequest() {
  stage_ = Stage::kAsking;
  recall_ = 0;
  params_ = RandomAcquire(*around_, client_id_, ++sequence_);
  checks().Wants(client_id_, params_.requester.sequence, params_.ttl_ms);
  const int64_t wait_ms = params_.wait_ms < 0 ? 20'000 : params_.wait_ms;
  give_up_at_us_ = world().now() + wait_ms * kMillisecond + random().Between(5, 20) * kSecond;
  Trace(absl::StrCat("asks for ", params_.permits, " of ", params_.semaphore, ", request ",
                     params_.requester.sequence, ", wait ", params_.wait_ms, ", ttl ",
                     params_.ttl_ms));
  Ask();
}

void LeaseClient::Ask() {
  NewStage();
  if (world().now() > give_up_at_us_) {
    Trace("gives up");
    return Finish();
  }
  if (!ConnectAnywhere()) return AskAgainSoon();
  const AcquireParams params = params_;
  asked_at_us_ = world().now();
  if (holds_) {
    const bool release = params_.priority > 0;
    call_ = Send([params, release](Connection& c, uint64_t tag) {
      c.Hold(tag, params, release, params.ttl_ms / 3);
    });
  } else {
    call_ = Send([params](Connection& c, uint64_t tag) { c.Acquire(tag, params); });
  }
  const int64_t wait_ms = params_.wait_ms < 0 ? 20'000 : params_.wait_ms;
  // Now and then somebody is impatient: the same request again, over another connection.
  const int64_t patience_us = random().Chance(0.1) ? random().Between(1, 2000) * kMillisecond
                                                   : kPatienceUs + wait_ms * kMillisecond;
  Later(patience_us, [this] { Ask(); });
}

void LeaseClient::AskAgainSoon() {
  NewStage();
  Disconnect();
  Later(random().Between(20, 500) * kMillisecond, [this] { Ask(); });
}

void LeaseClient::Handle(const Reply& reply) {
  const bool expected = reply.tag == call_;
  switch (reply.kind) {
    case Reply::Kind::kGranted:
      if (expected && stage_ == Stage::kAsking) OnGranted(reply);
      return;
    case Reply::Kind::kAlive:
      if (stage_ == Stage::kHolding) OnAlive(reply);
      return;
    case Reply::Kind::kRefused:
      if (!expected) return;
      if (IsForLater(reply)) return HandleBroken();
      if (stage_ == Stage::kHolding) return Lost();
      if (reply.reason == Reason::kFull) {
        checks().WasRefused(client_id_, params_.semaphore, params_.permits, asked_at_us_);
      }
      Trace(absl::StrCat("is refused: ", std::string(ReasonName(reply.reason))));
      return Finish();
    case Reply::Kind::kEnded:
      if (stage_ == Stage::kHolding) Lost();
      return;
    case Reply::Kind::kRecalled:
      if (stage_ != Stage::kHolding) return;
      BoundByRecall(reply, reply.recalls[0], &beliefs_[claim_]);
      if (random().Chance(0.5)) ReleaseAll();
      return;
    case Reply::Kind::kReleased:
      if (!expected || stage_ != Stage::kReleasing) return;
      CheckReleased(reply);
      if (release_.slots.empty() || reply.released == 0) return Finish();
      // Some were given back: the rest is held on, if there still is time.
      stage_ = Stage::kHolding;
      KeepAlive();
      return;
    default:
      return;
  }
}

void LeaseClient::HandleBroken() {
  if (stage_ == Stage::kAsking) return AskAgainSoon();
  if (stage_ == Stage::kHolding) {
    NewStage();
    Disconnect();
    Later(random().Between(1, 50) * kMillisecond, [this] { KeepAlive(); });
    return;
  }
  if (stage_ == Stage::kReleasing) {
    NewStage();
    Disconnect();
    Later(random().Between(20, 500) * kMillisecond, [this] { SendRelease(); });
  }
}

// ---- holding ----

void LeaseClient::OnGranted(const Reply& reply) {
  claim_ = reply.claim;
  Belief belief{reply.semaphore, reply.slots, reply.token, 0, 0};
  slots_left_ = reply.slots.size();
  checks().WasGranted(client_id_, params_.requester.sequence, claim_, belief);
  beliefs_[claim_] = belief;
  Believe(reply);
  Trace(absl::StrCat("holds ", claim_.Hex().substr(0, 6), " of ", reply.semaphore, ", token ",
                     reply.token, ", for ",
                     (beliefs_[claim_].deadline_us - clock_.NowUs()) / kMillisecond, " ms, epoch ",
                     reply.epoch));
  stage_ = Stage::kHolding;
  NewStage();
  // When it has done its work.
  const bool crashes = random().Chance(0.02);
  Later(random().Between(1, 6000) * kMillisecond, [this, crashes] {
    if (crashes) return Crash();
    if (params_.permits > 1 && beliefs_.contains(claim_) && random().Chance(0.3))
      return ReleaseSome();
    ReleaseAll();
  });
  if (!holds_) {
    Disconnect();
    Later(params_.ttl_ms * kMillisecond / 3, [this] { KeepAlive(); });
  }
}

void LeaseClient::Believe(const Reply& reply) {
  const auto found = beliefs_.find(claim_);
  if (found == beliefs_.end()) return;
  Belief& belief = found->second;
  if (reply.epoch < belief.epoch) return;
  belief.epoch = reply.epoch;
  belief.deadline_us = std::min(std::max(belief.deadline_us, DeadlineUs(reply)), belief.recall_us);
  for (const RecallNotice& recall : reply.recalls) {
    BoundByRecall(reply, recall, &belief);
    if (random().Chance(0.5)) recall_ = recall.id;
  }
}

void LeaseClient::OnAlive(const Reply& reply) {
  Believe(reply);
  if (reply.claim.empty()) return;  // A beat: the next one comes by itself.
  NewStage();
  Disconnect();
  if (random().Chance(0.25)) return ReleaseAll();
  Later(params_.ttl_ms * kMillisecond / 3, [this] { KeepAlive(); });
}

// Renew, here or elsewhere, until it is answered or the time is up.
void LeaseClient::KeepAlive() {
  NewStage();
  const auto found = beliefs_.find(claim_);
  if (found == beliefs_.end()) return Lost();
  if (clock_.NowUs() >= found->second.deadline_us) {
    Trace("has lost its lease: its time is up");
    return ReleaseAll();
  }
  if (!ConnectAnywhere()) {
    Later(100 * kMillisecond, [this] { KeepAlive(); });
    return;
  }
  call_ = Send([semaphore = params_.semaphore, claim = claim_, recall = recall_](
                   Connection& c, uint64_t tag) { c.Renew(tag, semaphore, claim, recall); });
  Later(params_.ttl_ms * kMillisecond / 5, [this] { KeepAlive(); });
}

void LeaseClient::Lost() {
  Trace("was told that its lease is lost");
  beliefs_.clear();
  Finish();
}

// ---- giving back ----

void LeaseClient::ReleaseSome() {
  Belief& belief = beliefs_[claim_];
  release_ = {};
  release_.slots = {belief.slots.back()};
  belief.slots.pop_back();
  if (belief.slots.empty()) return ReleaseAll();
  slots_left_ = belief.slots.size();
  release_.requester = {client_id_, ++sequence_};
  stage_ = Stage::kReleasing;
  SendRelease();
}

void LeaseClient::ReleaseAll() {
  beliefs_.erase(claim_);  // The work has stopped before it is given back.
  release_ = {};
  release_.requester = {client_id_, ++sequence_};
  stage_ = Stage::kReleasing;
  give_up_at_us_ = world().now() + 30 * kSecond;
  SendRelease();
}

// What it asked for, unless the lease has ended before; and as the engine has it.
void LeaseClient::CheckReleased(const Reply& reply) {
  if (reply.released == 0) return;
  const uint64_t sequence = release_.requester.sequence;
  checks().counts().WasReleased(client_id_, sequence, reply.released, reply.remaining);
  const auto left = static_cast<uint32_t>(slots_left_);
  const bool all = release_.slots.empty();
  if (reply.remaining == (all ? 0 : left) && reply.released == (all ? left : release_.slots.size()))
    return;
  throw Violation{absl::StrCat(client_id_, " has returned ", reply.released, " and has ",
                               reply.remaining, " left, by request ", sequence)};
}

void LeaseClient::SendRelease() {
  NewStage();
  if (world().now() > give_up_at_us_ && beliefs_.empty()) return Finish();
  release_.semaphore = params_.semaphore;
  release_.claim = claim_;
  if (ConnectAnywhere()) {
    call_ = Send([release = release_](Connection& c, uint64_t tag) { c.Release(tag, release); });
  }
  Later(random().Between(200, 2000) * kMillisecond, [this] { SendRelease(); });
}

void LeaseClient::Finish() {
  beliefs_.clear();
  checks().IsGone(client_id_);
  Think();
}

void LeaseClient::Crash() {
  Trace("crashes");
  beliefs_.clear();
  checks().IsGone(client_id_);
  NewClientId();
  Think();
}

}  // namespace semaphored::simulation
