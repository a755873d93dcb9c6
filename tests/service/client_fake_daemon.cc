#include "tests/service/client_fake_daemon.h"

#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/service/client_error.h"

namespace semaphore::test {
namespace {

grpc::Status SessionLost() {
  return grpc::Status(grpc::StatusCode::NOT_FOUND, "the session is gone",
                      ErrorWith(grpc::StatusCode::NOT_FOUND, "SESSION_LOST").SerializeAsString());
}

}  // namespace

FakeDaemon::FakeDaemon(int ttl_ms) : ttl_ms_(ttl_ms) { Start(); }

FakeDaemon::~FakeDaemon() { Stop(); }

void FakeDaemon::Start() {
  grpc::ServerBuilder builder;
  int port = port_;
  builder.AddListeningPort("127.0.0.1:" + std::to_string(port), grpc::InsecureServerCredentials(),
                           &port);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  port_ = port;
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
  server_ = nullptr;
}

void FakeDaemon::set_silent(bool silent) {
  std::lock_guard<std::mutex> lock(mutex_);
  silent_ = silent;
}

void FakeDaemon::ForgetSessions() {
  std::lock_guard<std::mutex> lock(mutex_);
  waiters_.clear();
  for (auto& [id, session] : sessions_) {
    session->leases.clear();
    if (session->context != nullptr) session->context->TryCancel();
    forgotten_.push_back(std::move(session));
  }
  sessions_.clear();
}

void FakeDaemon::Revoke(const std::string& lease_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, session] : sessions_) {
    if (session->leases.erase(lease_id) == 0) continue;
    v1::SessionResponse response;
    v1::LeaseLost* lost = response.add_events()->mutable_lost();
    lost->set_lease_id(lease_id);
    lost->set_cause(v1::END_CAUSE_REVOKED);
    Send(*session, response);
  }
  GrantWaiters();
}

void FakeDaemon::Recall(const std::string& lease_id, int grace_ms) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, session] : sessions_) {
    if (session->leases.count(lease_id) == 0) continue;
    v1::SessionResponse response;
    v1::LeaseRecalled* recalled = response.add_events()->mutable_recalled();
    recalled->set_lease_id(lease_id);
    recalled->mutable_recall()->set_grace_ms(grace_ms);
    recalled->mutable_recall()->set_reason("test");
    Send(*session, response);
  }
}

int FakeDaemon::HeldLocked(const std::string& semaphore) const {
  int held = 0;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [lease_id, lease] : session->leases) {
      if (lease.semaphore() == semaphore) {
        for (const v1::SlotRange& range : lease.slots()) held += range.last() - range.first() + 1;
      }
    }
  }
  return held;
}

int FakeDaemon::held(const std::string& semaphore) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return HeldLocked(semaphore);
}

int FakeDaemon::waiting(const std::string& semaphore) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(
      std::count_if(waiters_.begin(), waiters_.end(),
                    [&](const Waiter& waiter) { return waiter.acquire.semaphore() == semaphore; }));
}

int FakeDaemon::sessions() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(sessions_.size());
}

int FakeDaemon::opens() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return opens_;
}

std::string FakeDaemon::authorization() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return authorization_;
}

void FakeDaemon::NoteLocked(const grpc::ServerContext& context) {
  const auto found = context.client_metadata().find("authorization");
  authorization_ = found == context.client_metadata().end()
                       ? std::string()
                       : std::string(found->second.data(), found->second.size());
}

void FakeDaemon::Send(SessionState& session, const v1::SessionResponse& response) {
  if (session.stream != nullptr && !silent_) session.stream->Write(response);
}

void FakeDaemon::Answer(SessionState& session, v1::SessionResult result) {
  v1::SessionResponse response;
  *response.add_results() = result;
  if (!result.has_queued()) session.answers[result.sequence()] = std::move(result);
  Send(session, response);
}

void FakeDaemon::GrantWaiters() {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    const std::string& name = waiter->acquire.semaphore();
    const int permits = std::max<int>(waiter->acquire.permits(), 1);
    if (HeldLocked(name) + permits > limits_[name]) {
      ++waiter;
      continue;
    }
    v1::SessionResult result;
    result.set_sequence(waiter->sequence);
    v1::Lease* lease = result.mutable_granted();
    lease->set_lease_id("lease-" + std::to_string(next_));
    lease->set_semaphore(name);
    lease->set_token(next_++);
    v1::SlotRange* range = lease->add_slots();
    range->set_first(1);
    range->set_last(permits);
    lease->set_session_id(waiter->session->id);
    waiter->session->leases[lease->lease_id()] = *lease;
    SessionState& session = *waiter->session;
    waiter = waiters_.erase(waiter);
    Answer(session, std::move(result));
  }
}

void FakeDaemon::Release(SessionState& session, const std::string& lease_id) {
  session.leases.erase(lease_id);
  GrantWaiters();
}

void FakeDaemon::Execute(SessionState& session, const v1::SessionCommand& command) {
  v1::SessionResult result;
  result.set_sequence(command.sequence());
  const auto answered = session.answers.find(command.sequence());
  if (answered != session.answers.end()) {
    Answer(session, answered->second);
    return;
  }
  const auto same = [&](std::uint64_t sequence) {
    return std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& waiter) {
      return waiter.session == &session && waiter.sequence == sequence;
    });
  };
  if (command.has_release()) {
    result.mutable_released()->set_released(session.leases.count(command.release().lease_id()));
    Answer(session, std::move(result));
    Release(session, command.release().lease_id());
  } else if (command.has_acquire()) {
    const v1::SessionAcquire& acquire = command.acquire();
    if (acquire.limit() > 0) limits_.emplace(acquire.semaphore(), acquire.limit());
    if (same(command.sequence()) == waiters_.end()) {
      waiters_.push_back({&session, command.sequence(), acquire});
      GrantWaiters();
    }
    const auto waits = same(command.sequence());
    if (waits == waiters_.end()) return;
    if (acquire.wait_ms() == 0 && !acquire.wait_forever()) {
      waiters_.erase(waits);
      *result.mutable_error() = ErrorWith(grpc::StatusCode::RESOURCE_EXHAUSTED, "FULL");
    } else {
      result.mutable_queued()->set_position(waits - waiters_.begin() + 1);
    }
    Answer(session, std::move(result));
  } else if (command.has_cancel()) {
    const auto waits = same(command.cancel());
    if (waits != waiters_.end()) {
      waiters_.erase(waits);
      v1::SessionResult cancelled;
      cancelled.set_sequence(command.cancel());
      cancelled.mutable_error()->set_code(grpc::StatusCode::CANCELLED);
      Answer(session, std::move(cancelled));
    }
    result.set_cancelled(true);
    Answer(session, std::move(result));
  }
}

FakeDaemon::SessionState* FakeDaemon::Open(const v1::OpenSession& open, Stream* stream,
                                           grpc::ServerContext* context) {
  ++opens_;
  SessionState* session = nullptr;
  v1::SessionResponse response;
  v1::SessionOpened* opened = response.mutable_opened();
  if (open.resume_session_id().empty()) {
    auto created = std::make_unique<SessionState>();
    created->id = "session-" + std::to_string(next_++);
    session = created.get();
    sessions_[created->id] = std::move(created);
  } else {
    const auto found = sessions_.find(open.resume_session_id());
    if (found == sessions_.end()) return nullptr;
    session = found->second.get();
    opened->set_resumed(true);
    for (const auto& [id, lease] : session->leases) *opened->add_leases() = lease;
  }
  session->stream = stream;
  session->context = context;
  opened->set_session_id(session->id);
  opened->set_ttl_ms(ttl_ms_);
  opened->mutable_validity()->set_valid_for_ms(ttl_ms_);
  Send(*session, response);
  return session;
}

grpc::Status FakeDaemon::Session(grpc::ServerContext* context, Stream* stream) {
  v1::SessionRequest request;
  if (!stream->Read(&request)) return grpc::Status::OK;
  std::unique_lock<std::mutex> lock(mutex_);
  NoteLocked(*context);
  SessionState* const session = Open(request.open(), stream, context);
  if (session == nullptr) return SessionLost();
  bool closed = false;
  while (!closed) {
    lock.unlock();
    const bool read = stream->Read(&request);
    lock.lock();
    if (!read) break;
    for (const v1::SessionCommand& command : request.commands()) Execute(*session, command);
    closed = request.close();
    if (!request.has_ping()) continue;
    v1::SessionResponse response;
    response.mutable_pong()->set_ping_id(request.ping().ping_id());
    response.mutable_pong()->mutable_validity()->set_valid_for_ms(ttl_ms_);
    Send(*session, response);
  }
  if (session->stream == stream) {
    session->stream = nullptr;
    session->context = nullptr;
  }
  if (closed) {
    session->leases.clear();
    sessions_.erase(session->id);
    GrantWaiters();
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                                v1::VerifyResponse* response) {
  std::lock_guard<std::mutex> lock(mutex_);
  NoteLocked(*context);
  response->set_ended(v1::END_CAUSE_UNKNOWN);
  for (const auto& [id, session] : sessions_) {
    for (const auto& [lease_id, lease] : session->leases) {
      const bool by_slot = request->semaphore() == lease.semaphore() &&
                           request->token() == lease.token() &&
                           request->slot() == lease.slots(0).first();
      if (lease_id != request->lease_id() && !by_slot) continue;
      response->set_held(true);
      response->set_ended(v1::END_CAUSE_UNSPECIFIED);
      *response->mutable_lease() = lease;
      response->mutable_validity()->set_valid_for_ms(ttl_ms_);
    }
  }
  return grpc::Status::OK;
}

}  // namespace semaphore::test
