#include "client/semaphore/session_machine.h"

#include <algorithm>
#include <unordered_set>

#include "absl/strings/str_cat.h"
#include "client/semaphore/errors.h"
#include "client/semaphore/status_conversion.h"

namespace semaphore {
namespace {

using std::chrono::milliseconds;

// The daemon rejects this client's identity: resuming does not help, so waits fail with the error.
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
      keeper_(options.endpoints.size(), options.ttl, options.margin),
      operations_(options_, &keeper_, &effects_) {}

Effects SessionMachine::TakeEffects() {
  for (LeaseKeeper::LeasePtr& lease : keeper_.TakeLost())
    effects_.losses.emplace_back([lease = std::move(lease)] { lease->TellLoss(); });
  for (LeaseKeeper::Recalled& recalled : keeper_.TakeRecalled()) {
    if (recalled.lease->on_recall) effects_.recalls.push_back(std::move(recalled));
  }
  effects_.dropped_leases = keeper_.TakeDropped();
  return std::exchange(effects_, Effects{});
}

// ---- connecting ----

void SessionMachine::FillOpen(v1::SessionRequest* message, TimePoint now) {
  // Without a session the daemon need not remember anything of this client, so the client takes a
  // new client id.
  if (keeper_.session_id().empty()) ForgetSession();
  v1::OpenSession* open = message->mutable_open();
  open->set_client_id(client_id_);
  open->set_ttl_ms(
      static_cast<std::uint32_t>(std::min<std::int64_t>(options_.ttl.count(), UINT32_MAX)));
  open->set_resume_session_id(keeper_.session_id());
  open->set_holder(options_.holder);
  open->set_release_on_disconnect(options_.release_on_disconnect);
  pages_.clear();
  keeper_.OnOpenSent(now);
}

void SessionMachine::Disconnect(const absl::Status& why, TimePoint now) {
  const bool in_vain = keeper_.Disconnect(why, now);
  // The next Tick sees whether a stream is still wanted.
  if (in_vain && !keeper_.ever_open()) operations_.GiveUpNotWaiting(now);
}

void SessionMachine::DropStream(const absl::Status& why, TimePoint now) {
  effects_.drop_stream = true;
  Disconnect(why, now);
}

void SessionMachine::OnStreamEnd(const absl::Status& status, TimePoint now) {
  Tick(now);
  const Phase phase = keeper_.phase();
  if (phase != Phase::kOpening && phase != Phase::kOpen) return;
  if (close_sent_) {
    Finish(status);
    return;
  }
  const bool has_session = !keeper_.session_id().empty();
  const bool session_is_gone = has_session && status.code() == absl::StatusCode::kNotFound;
  if (session_is_gone) {
    LoseSession(now);
  } else if (IsFinal(status.code()) &&
             (!has_session || phase == Phase::kOpen || IsRefusedIdentity(status.code()))) {
    operations_.FailAcquires(status);
  }
  Disconnect(status.ok() ? absl::UnavailableError("the daemon ended the session's stream") : status,
             now);
  // This endpoint answers: the new session is opened here.
  if (session_is_gone) keeper_.StayHere(now);
}

void SessionMachine::Close(TimePoint now) {
  if (closing_) return;
  closing_ = true;
  operations_.Close();
  close_deadline_ = now + options_.release_timeout;
  if (keeper_.phase() != Phase::kOpen && !Wanted()) {
    effects_.drop_stream = keeper_.phase() == Phase::kOpening;
    keeper_.End();
  }
}

void SessionMachine::Finish(const absl::Status& status) {
  operations_.Finish(status);
  keeper_.End();
}

// ---- messages ----

bool SessionMachine::NextMessage(v1::SessionRequest* message, TimePoint now) {
  message->Clear();
  if (keeper_.open_due()) {
    FillOpen(message, now);
    return true;
  }
  if (keeper_.phase() != Phase::kOpen || close_sent_) return false;
  operations_.AddTo(message, now);
  if (closing_) {
    close_sent_ = operations_.all_sent();
    message->set_close(close_sent_);
  }
  const bool alive = keeper_.AddTo(message, now);
  return alive || message->commands_size() > 0 || message->close();
}

void SessionMachine::OnMessage(const v1::SessionResponse& message, TimePoint now) {
  // First what the time has decided: an answer that comes too late must not bring back what was
  // lost.
  Tick(now);
  if (keeper_.phase() == Phase::kOpening && !keeper_.open_due() && message.has_opened()) {
    OnOpened(message.opened(), now);
    if (keeper_.phase() == Phase::kOpening) {
      pages_.push_back(message);
      pages_.back().clear_opened();
      return;
    }
    for (const v1::SessionResponse& page : std::exchange(pages_, {})) Take(page, now);
  }
  Take(message, now);
}

void SessionMachine::Take(const v1::SessionResponse& message, TimePoint now) {
  if (keeper_.phase() != Phase::kOpen) return;
  if (message.has_pong()) keeper_.OnPong(message.pong());
  for (const v1::SessionResult& result : message.results()) operations_.OnResult(result, now);
  for (const v1::SessionEvent& event : message.events()) {
    if (event.has_lost()) operations_.OnLost(event.lost().lease_id());
    keeper_.OnEvent(event);
  }
}

void SessionMachine::OnOpened(const v1::SessionOpened& opened, TimePoint now) {
  switch (keeper_.OnOpened(opened, now)) {
    case LeaseKeeper::Opening::kMore:
      return;
    case LeaseKeeper::Opening::kAnother:
      LoseSession(now);
      return DropStream(
          absl::InternalError("the daemon opened another session than the one to resume"), now);
    case LeaseKeeper::Opening::kOvertaken:
      return DropStream(absl::UnavailableError("this daemon does not host the session any more"),
                        now);
    case LeaseKeeper::Opening::kOpened:
      break;
  }
  operations_.OnOpened(keeper_.TakeUnknown(), now);
}

void SessionMachine::ForgetSession() {
  keeper_.ForgetSession();
  client_id_ = make_client_id_();
  operations_.ForgetSession();
}

void SessionMachine::LoseSession(TimePoint now) {
  keeper_.LoseSession(now);
  ForgetSession();
}

// ---- time ----

void SessionMachine::Tick(TimePoint now) {
  if (closed()) return;
  const absl::Status silent = keeper_.Tick(now);
  operations_.Tick(now);
  const auto is = [this](Phase phase) { return keeper_.phase() == phase; };
  if (closing_ && now >= close_deadline_) {
    effects_.drop_stream = is(Phase::kOpening) || is(Phase::kOpen);
    Finish(absl::UnavailableError("the client was destroyed, and no daemon answered in time"));
    return;
  }
  if (!silent.ok()) {
    DropStream(silent, now);
  } else if (is(Phase::kWaiting) && !Wanted()) {
    if (closing_) return keeper_.End();
    keeper_.Rest();
  }
  if (is(Phase::kWaiting) || is(Phase::kOpening)) operations_.GiveUpUnreachable(now);
}

TimePoint SessionMachine::NextDue(bool can_send) const {
  return std::min(
      {closing_ ? close_deadline_ : kNever, keeper_.NextDue(can_send), operations_.NextDue()});
}

}  // namespace semaphore
