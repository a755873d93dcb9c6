// The session's own rules: connecting, resuming, pings, deadlines. Operations are in
// session_operations.cc.
#include "client/semaphore/session_machine.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// So many that what is vouched for outlasts an outage of two thirds of it, with time to spare for
// a holder that wants to stop its work first.
constexpr int kPingsInPace = 8;
constexpr milliseconds kBackoffFirst(50);
constexpr milliseconds kBackoffMost(2'000);
// For one endpoint to answer `open`, before the next one is tried: between these, a quarter of the
// TTL.
// However little a daemon vouches for, it is not asked more often than three times in this.
constexpr milliseconds kVouchedLeast{300};
constexpr milliseconds kOpenTimeoutLeast(500);
constexpr milliseconds kOpenTimeoutMost(3'000);
// Taken for the TTL until the daemon has told it.
constexpr milliseconds kTtlAssumed(30'000);

LossCause CauseOf(v1::EndCause cause) {
  switch (cause) {
    case v1::END_CAUSE_EXPIRED:
      return LossCause::kExpired;
    case v1::END_CAUSE_RELEASED:  // by somebody else who knew the lease id
    case v1::END_CAUSE_REVOKED:
      return LossCause::kRevoked;
    case v1::END_CAUSE_RECALLED:
      return LossCause::kRecalled;
    case v1::END_CAUSE_DESTROYED:
      return LossCause::kDestroyed;
    case v1::END_CAUSE_DISCONNECTED:
      return LossCause::kDisconnected;
    case v1::END_CAUSE_ENGINE_LOST:
      return LossCause::kEngineLost;
    case v1::END_CAUSE_MOVED:
      return LossCause::kMoved;
    default:
      return LossCause::kUnknown;
  }
}

// The session of before does not help who is not let in: whoever waits is told why.
bool IsRefusedIdentity(absl::StatusCode code) {
  return code == absl::StatusCode::kUnauthenticated || code == absl::StatusCode::kPermissionDenied;
}

// Errors that another attempt, or another endpoint, would not mend.
bool IsFinal(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

}  // namespace

SessionMachine::SessionMachine(const ClientOptions& options,
                               std::function<std::string()> make_client_id)
    : options_(options),
      make_client_id_(std::move(make_client_id)),
      backoff_(kBackoffFirst, kBackoffMost),
      ttl_(options.ttl > milliseconds(0) ? options.ttl : kTtlAssumed) {}

// ---- connecting ----

void SessionMachine::WantStream(TimePoint now) {
  if (phase_ != Phase::kIdle) return;
  phase_ = Phase::kWaiting;
  connect_at_ = now;
  disconnected_since_ = now;
}

bool SessionMachine::StartConnecting(std::size_t* endpoint, TimePoint now) {
  if (phase_ != Phase::kWaiting || now < connect_at_) return false;
  phase_ = Phase::kOpening;
  *endpoint = endpoint_;
  open_sent_at_ = kNever;
  AwaitOpened(now);
  return true;
}

void SessionMachine::AwaitOpened(TimePoint now) {
  open_deadline_ = now + std::clamp(ttl_ / 4, kOpenTimeoutLeast, kOpenTimeoutMost);
}

void SessionMachine::FillOpen(v1::SessionRequest* message, TimePoint now) {
  // Without a session there is nothing that the daemon should remember of this client: a new id
  // begins anew.
  if (session_id_.empty()) ForgetSession();
  v1::OpenSession* open = message->mutable_open();
  open->set_client_id(client_id_);
  listed_.clear();
  open->set_ttl_ms(
      static_cast<std::uint32_t>(std::min<std::int64_t>(options_.ttl.count(), UINT32_MAX)));
  open->set_resume_session_id(session_id_);
  open->set_holder(options_.holder);
  open->set_release_on_disconnect(options_.release_on_disconnect);
  open_sent_at_ = now;
}

void SessionMachine::Disconnect(const absl::Status& why, TimePoint now) {
  if (phase_ == Phase::kOpen) {
    disconnected_since_ = now;
    attempts_in_round_ = 0;
  }
  last_error_ = why;
  pings_.clear();
  ping_due_ = kNever;
  endpoint_ = (endpoint_ + 1) % options_.endpoints.size();
  ++attempts_in_round_;
  connect_at_ = now;
  if (attempts_in_round_ >= options_.endpoints.size()) {
    attempts_in_round_ = 0;
    connect_at_ += backoff_.Next();
    if (!ever_connected_) GiveUpNotWaiting(now);
  }
  phase_ = Phase::kWaiting;  // the next Tick sees whether anybody still wants a stream
}

void SessionMachine::DropStream(const absl::Status& why, TimePoint now) {
  effects_.drop_stream = true;
  Disconnect(why, now);
}

void SessionMachine::OnStreamEnd(const absl::Status& status, TimePoint now) {
  Tick(now);
  if (phase_ != Phase::kOpening && phase_ != Phase::kOpen) return;
  if (close_sent_) {
    Finish(status);
    return;
  }
  const bool session_is_gone = !session_id_.empty() && status.code() == absl::StatusCode::kNotFound;
  if (session_is_gone) {
    LoseSession(now);
  } else if (IsFinal(status.code()) &&
             (session_id_.empty() || phase_ == Phase::kOpen || IsRefusedIdentity(status.code()))) {
    FailAcquires(status);
  }
  Disconnect(status.ok() ? absl::UnavailableError("the daemon ended the session's stream") : status,
             now);
  if (session_is_gone && phase_ == Phase::kWaiting) {
    // This endpoint answers: the new session is opened here.
    endpoint_ = (endpoint_ + options_.endpoints.size() - 1) % options_.endpoints.size();
    connect_at_ = now;
  }
}

void SessionMachine::Close(TimePoint now) {
  if (closing_) return;
  closing_ = true;
  FailAcquires(absl::CancelledError("the client was destroyed"));
  close_deadline_ = now + options_.release_timeout;
  const bool daemon_may_hold = !leases_.empty() || !operations_.empty();
  if (phase_ != Phase::kOpen && !daemon_may_hold) {
    effects_.drop_stream = phase_ == Phase::kOpening;
    phase_ = Phase::kClosed;
  }
}

void SessionMachine::Finish(const absl::Status& status) {
  for (auto& [number, operation] : operations_) {
    if (operation.kind == Kind::kRelease) FinishRelease(operation, status);
  }
  operations_.clear();
  phase_ = Phase::kClosed;
}

// ---- messages ----

bool SessionMachine::NextMessage(v1::SessionRequest* message, TimePoint now) {
  message->Clear();
  if (phase_ == Phase::kOpening && open_sent_at_ == kNever) {
    FillOpen(message, now);
    return true;
  }
  if (phase_ != Phase::kOpen || close_sent_) return false;
  FillCommands(message, now);
  if (closing_) {
    close_sent_ = to_send_.empty();
    message->set_close(close_sent_);
  }
  if (now >= ping_due_) {
    message->mutable_ping()->set_ping_id(++last_ping_id_);
    pings_.emplace_back(last_ping_id_, now);
    ping_due_ = now + Pace() / kPingsInPace;
  }
  return message->commands_size() > 0 || message->has_ping() || message->close();
}

void SessionMachine::OnMessage(const v1::SessionResponse& message, TimePoint now) {
  // First what the time has decided: an answer that comes too late must not bring back what was
  // lost.
  Tick(now);
  if (phase_ == Phase::kOpening && message.has_opened()) {
    for (const v1::Lease& lease : message.opened().leases()) listed_.insert(lease.lease_id());
    if (message.opened().more()) return AwaitOpened(now);  // The next page.
    OnOpened(message.opened(), now);
  }
  if (phase_ != Phase::kOpen) return;
  if (message.has_pong()) OnPong(message.pong());
  for (const v1::SessionResult& result : message.results()) OnResult(result, now);
  for (const v1::SessionEvent& event : message.events()) OnEvent(event, now);
}

void SessionMachine::OnOpened(const v1::SessionOpened& opened, TimePoint now) {
  if (open_sent_at_ == kNever) return;
  if (!session_id_.empty() && !opened.resumed()) {
    LoseSession(now);
    DropStream(absl::InternalError("the daemon opened another session than the one to resume"),
               now);
    return;
  }
  if (deadline_ == nullptr) deadline_ = std::make_shared<SharedDeadline>(open_sent_at_);
  if (!Extend(opened.validity(), open_sent_at_)) {
    DropStream(absl::UnavailableError("this daemon does not host the session any more"), now);
    return;
  }
  phase_ = Phase::kOpen;
  ever_connected_ = true;
  attempts_in_round_ = 0;
  backoff_.Reset();
  session_id_ = opened.session_id();
  if (opened.ttl_ms() > 0) ttl_ = milliseconds(opened.ttl_ms());
  backoff_.set_most(std::min(kBackoffMost, ttl_ / 8));
  ping_due_ = open_sent_at_ + Pace() / kPingsInPace;
  if (opened.resumed()) DropLeasesNotListed();
  ResendAll();
  GiveBackUnclaimed(now);
}

void SessionMachine::DropLeasesNotListed() {
  unclaimed_ = std::move(listed_);
  listed_.clear();
  for (auto lease = leases_.begin(); lease != leases_.end();) {
    if (unclaimed_.erase(lease->first) > 0) {
      ++lease;
      continue;
    }
    Lose(lease->second, LossCause::kUnknown,
         "the daemon does not list it after the session was resumed");
    lease = leases_.erase(lease);
  }
}

void SessionMachine::OnPong(const v1::SessionPong& pong) {
  const auto sent = std::find_if(pings_.begin(), pings_.end(),
                                 [&](const auto& ping) { return ping.first == pong.ping_id(); });
  if (sent == pings_.end() || !Extend(pong.validity(), sent->second)) return;
  // It may vouch for less than before: then the next is due sooner.
  ping_due_ = std::min(ping_due_, sent->second + Pace() / kPingsInPace);
  pings_.erase(pings_.begin(), sent + 1);
}

void SessionMachine::OnEvent(const v1::SessionEvent& event, TimePoint now) {
  const std::string& lease_id =
      event.has_lost() ? event.lost().lease_id() : event.recalled().lease_id();
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) {
    if (event.has_lost()) unclaimed_.erase(lease_id);
    return;
  }
  const std::shared_ptr<LeaseState> lease = found->second;
  if (event.has_lost()) {
    const LossCause cause = CauseOf(event.lost().cause());
    leases_.erase(found);
    Lose(lease, cause, absl::StrCat("the daemon says: ", ToString(cause)));
    return;
  }
  if (!event.has_recalled() || lease->lost.load()) return;
  const RecallNotice notice{milliseconds(event.recalled().recall().grace_ms()),
                            event.recalled().recall().reason()};
  const TimePoint deadline = GoodUntil(now, notice.grace, options_.margin);
  if (deadline < lease->recall_deadline.get()) {
    lease->recall_deadline.set(deadline);
    recalls_.emplace(deadline, lease);
  }
  if (lease->on_recall) effects_.losses.emplace_back([lease, notice] { lease->on_recall(notice); });
}

// ---- deadlines ----

// Counts an answer to what was sent at `sent`. False if it comes from a daemon that has been
// overtaken by another one.
bool SessionMachine::Extend(const v1::LeaseValidity& validity, TimePoint sent) {
  if (validity.epoch() < epoch_) return false;
  epoch_ = validity.epoch();
  vouched_ = std::max(milliseconds(validity.valid_for_ms()), kVouchedLeast);
  const TimePoint good_until = GoodUntil(sent + milliseconds(validity.elapsed_ms()),
                                         milliseconds(validity.valid_for_ms()), options_.margin);
  // A later answer does not take an earlier promise back; what has ended is told by an event.
  if (good_until > deadline_->get()) deadline_->set(good_until);
  return true;
}

void SessionMachine::Lose(const std::shared_ptr<LeaseState>& lease, LossCause cause,
                          std::string message) {
  if (!lease->MarkLost(cause, std::move(message))) return;
  effects_.losses.emplace_back([lease] { lease->TellLoss(); });
}

void SessionMachine::LoseSession(TimePoint now) {
  for (const auto& [id, lease] : leases_) {
    Lose(lease, LossCause::kExpired, "its session expired at the daemon");
  }
  leases_.clear();
  session_id_.clear();
  ForgetSession();
  disconnected_since_ = now;
}

void SessionMachine::CheckDeadlines(TimePoint now) {
  if (!deadline_told_ && now >= deadline_->get()) {
    deadline_told_ = true;
    for (const auto& [id, lease] : leases_) {
      Lose(lease, LossCause::kNoContact, "no daemon vouched for it up to its deadline");
    }
  }
  while (!recalls_.empty() && recalls_.begin()->first <= now) {
    const std::shared_ptr<LeaseState> lease = recalls_.begin()->second.lock();
    recalls_.erase(recalls_.begin());
    if (lease != nullptr) Lose(lease, LossCause::kRecalled, "its grace after a recall has passed");
  }
}

// Pings go by what the daemon vouches for: with a long TTL, on an engine that daemons share, that
// is less than the TTL.
milliseconds SessionMachine::Pace() const {
  return vouched_ > milliseconds(0) ? std::min(ttl_, vouched_) : ttl_;
}

// When a stream that says nothing counts as broken: a quarter of the time that is vouched for after
// a ping was sent, or should have been.
TimePoint SessionMachine::ContactDeadline() const {
  if (phase_ != Phase::kOpen) return kNever;
  return (pings_.empty() ? ping_due_ : pings_.front().second) + Pace() / 4;
}

void SessionMachine::Tick(TimePoint now) {
  if (phase_ == Phase::kClosed) return;
  CheckDeadlines(now);
  CheckOperations(now);
  if (closing_ && now >= close_deadline_) {
    effects_.drop_stream = phase_ == Phase::kOpening || phase_ == Phase::kOpen;
    Finish(absl::UnavailableError("the client was destroyed, and no daemon answered in time"));
    return;
  }
  if (phase_ == Phase::kOpening && now >= open_deadline_) {
    DropStream(absl::UnavailableError("no answer in time"), now);
  } else if (now >= ContactDeadline()) {
    DropStream(absl::UnavailableError("the connection has gone silent"), now);
  } else if (phase_ == Phase::kWaiting && !Wanted()) {
    phase_ = closing_ ? Phase::kClosed : Phase::kIdle;
  }
  if (phase_ == Phase::kWaiting || phase_ == Phase::kOpening) GiveUpUnreachable(now);
}

TimePoint SessionMachine::NextDue(bool can_send) const {
  TimePoint due = closing_ ? close_deadline_ : kNever;
  if (!deadline_told_ && !leases_.empty()) due = std::min(due, deadline_->get());
  if (!recalls_.empty()) due = std::min(due, recalls_.begin()->first);
  if (!local_ends_.empty()) due = std::min(due, local_ends_.begin()->first);
  if (!retries_.empty()) due = std::min(due, retries_.begin()->first);
  if (phase_ == Phase::kOpen) {
    due = std::min({due, can_send ? ping_due_ : kNever, ContactDeadline()});
  } else if (phase_ == Phase::kOpening || phase_ == Phase::kWaiting) {
    due = std::min(due, phase_ == Phase::kOpening ? open_deadline_ : connect_at_);
    for (const auto& [number, operation] : operations_) {
      if (operation.abandoned) continue;
      due = std::min(due, GiveUpAt(operation));
      break;  // those after it were called later
    }
  }
  return due;
}

}  // namespace semaphore
