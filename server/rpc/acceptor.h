// Keeps a number of calls of one method requested from gRPC, so that a new one is accepted immediately; and keeps the
// objects of ended calls for later ones.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "server/rpc/environment.h"

namespace semaphored {

class AnyAcceptor {
 public:
  virtual ~AnyAcceptor() = default;
  // Requests `slots` calls, and keeps as many requested.
  virtual void Start(int slots) = 0;
};

// Call: constructible from (Environment*, Acceptor<Call>*), with a member size_t place, and
// Request(), which asks gRPC for one call. On the reactor's thread.
template <typename Call>
class Acceptor final : public AnyAcceptor {
 public:
  explicit Acceptor(Environment* environment) : environment_(environment) {}

  void Start(int slots) override {
    for (int i = 0; i < slots; ++i) Ask();
  }

  // A call has been accepted: another takes its place.
  void Replace() {
    if (!environment_->stopping) Ask();
  }

  // The call has ended, and no event of it is outstanding.
  void Recycle(Call* call) {
    if (free_.size() < kFreeMax && !environment_->stopping) {
      free_.push_back(call);
      return;
    }
    const size_t place = call->place;
    std::swap(all_[place], all_.back());
    all_[place]->place = place;
    all_.pop_back();
  }

 private:
  static constexpr size_t kFreeMax = 512;

  void Ask() {
    Call* call = nullptr;
    if (free_.empty()) {
      all_.push_back(std::make_unique<Call>(environment_, this));
      call = all_.back().get();
      call->place = all_.size() - 1;
    } else {
      call = free_.back();
      free_.pop_back();
    }
    call->Request();
  }

  Environment* environment_;
  std::vector<std::unique_ptr<Call>> all_;
  std::vector<Call*> free_;
};

}  // namespace semaphored
