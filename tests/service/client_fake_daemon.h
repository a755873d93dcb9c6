// A daemon for the client's tests: sessions and permits in memory, over real gRPC, and faults on
// request. It keeps no promise about time: no lease expires but by the test's word.
#ifndef SEMAPHORED_TESTS_SERVICE_CLIENT_FAKE_DAEMON_H_
#define SEMAPHORED_TESTS_SERVICE_CLIENT_FAKE_DAEMON_H_

#include <grpcpp/server.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/semaphore/v1/semaphore.grpc.pb.h"

namespace semaphore::test {

class FakeDaemon final : public v1::SemaphoreService::Service {
 public:
  explicit FakeDaemon(int ttl_ms);
  ~FakeDaemon() override;

  // Listens; after a Stop at the same port, with the same sessions and leases. Stop breaks the
  // streams.
  void Start();
  void Stop();
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(port_); }

  // Takes commands and answers nothing more.
  void set_silent(bool silent);
  // All sessions expire: to resume one is answered by SESSION_LOST.
  void ForgetSessions();
  // Tells the holder that its lease was revoked.
  void Revoke(const std::string& lease_id);
  void Recall(const std::string& lease_id, int grace_ms);

  int held(const std::string& semaphore) const;
  int waiting(const std::string& semaphore) const;
  int sessions() const;
  int opens() const;
  // What the last call showed of itself: "Bearer …", or empty.
  std::string authorization() const;

 private:
  using Stream = grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest>;

  struct SessionState {
    std::string id;
    Stream* stream = nullptr;
    grpc::ServerContext* context = nullptr;
    std::map<std::string, v1::Lease> leases;
    std::map<std::uint64_t, v1::SessionResult> answers;
  };
  struct Waiter {
    SessionState* session;
    std::uint64_t sequence;
    v1::SessionAcquire acquire;
  };

  grpc::Status Session(grpc::ServerContext* context, Stream* stream) override;
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest* request,
                      v1::VerifyResponse* response) override;

  SessionState* Open(const v1::OpenSession& open, Stream* stream, grpc::ServerContext* context);
  void Execute(SessionState& session, const v1::SessionCommand& command);
  void Answer(SessionState& session, v1::SessionResult result);
  void Send(SessionState& session, const v1::SessionResponse& response);
  void GrantWaiters();
  void Release(SessionState& session, const std::string& lease_id);
  void NoteLocked(const grpc::ServerContext& context);
  int HeldLocked(const std::string& semaphore) const;

  const int ttl_ms_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;

  mutable std::mutex mutex_;
  bool silent_ = false;
  int opens_ = 0;
  std::string authorization_;
  std::uint64_t next_ = 1;
  std::map<std::string, std::unique_ptr<SessionState>> sessions_;
  std::vector<std::unique_ptr<SessionState>> forgotten_;
  std::deque<Waiter> waiters_;
  std::map<std::string, int> limits_;
};

}  // namespace semaphore::test

#endif  // SEMAPHORED_TESTS_SERVICE_CLIENT_FAKE_DAEMON_H_
