#include "server/guard/connection.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

namespace semaphored::guard {
namespace {

// What a connection keeps of memory for a message in pieces when it needs none.
constexpr size_t kKeptBytes = 4096;
// Calls that one connection may open at least before it is the turn of another.
constexpr int64_t kStreamsAtOnce = 4;
// As much as one record of TLS brings: a part of one that is left unread is not reported again.
constexpr size_t kLittleBytes = 16 << 10;
// Calls of a connection that were open and not begun for all of this time never begin.
constexpr Milliseconds kNeverAfter{60'000};
// So much is thrown away of what a client sends behind the GOAWAY.
constexpr size_t kDiscardedMax = 256 << 10;

int64_t Result(ssize_t moved) {
  if (moved >= 0) return moved;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

void ShrinkEmpty(std::string* text) {
  text->clear();
  if (text->capacity() > kKeptBytes) text->shrink_to_fit();
}

}  // namespace

Connection::Connection(int client, TlsSocketPtr tls, Address address, const FrameBounds& bounds,
                       std::shared_ptr<Origin> origin, bool waits)
    : client_(client),
      tls_(std::move(tls)),
      address_(std::move(address)),
      state_(waits  ? State::kWaiting
             : tls_ ? State::kHandshake
                    : State::kReady),
      frames_(bounds, origin->resets),
      origin_(std::move(origin)),
      waits_(waits),
      pending_max_(bounds.calls_pending),
      refused_max_(bounds.calls_refused),
      taken_bytes_min_(bounds.taken_bytes_min),
      taken_within_(bounds.taken_within) {
  ++origin_->standing;
  if (waits_) ++origin_->waiting;
}

Connection::~Connection() {
  --origin_->standing;
  if (waits_) --origin_->waiting;
  CloseDaemon();
  if (client_ >= 0) close(client_);
}

Connection::Released Connection::Release() {
  state_ = State::kOver;
  return {std::exchange(client_, -1), std::move(tls_)};
}

CertificateNames Connection::certificate() const {
  return tls_ ? tls_->certificate() : CertificateNames();
}

Connection::Interest Connection::client_interest() const {
  switch (state_) {
    case State::kWaiting:
      return {.end = true};
    case State::kHandshake:
      return {!tls_->wants_write(), tls_->wants_write()};
    case State::kRelaying:
      return {MayRead(), !to_client_.empty() || (tls_ && tls_->wants_write())};
    case State::kFarewell:
      return {true, !to_client_.empty()};
    case State::kReady:
    case State::kOver:
      break;
  }
  return {};
}

Connection::Interest Connection::daemon_interest() const {
  if (state_ != State::kRelaying) return {};
  const bool read = to_client_.empty();
  return {read, !to_daemon_.empty(), !read && !daemon_hung_up_};
}

bool Connection::Enter(SteadyTime now) {
  if (!origin_->admissions.Take(now)) return false;
  waits_ = false;
  --origin_->waiting;
  state_ = tls_ ? State::kHandshake : State::kReady;
  return true;
}

int Connection::Join(std::string key, std::shared_ptr<const Peer> peer) {
  std::array<int, 2> pair{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return -1;
  daemon_ = pair[0];
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  // Behind a byte of zero, a name stands in no folder.
  std::memcpy(name.sun_path + 1, key.data(), key.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + key.size());
  if (bind(daemon_, reinterpret_cast<const sockaddr*>(&name), length) != 0) {
    close(pair[1]);
    return -1;
  }
  key_ = std::move(key);
  peer_ = std::move(peer);
  state_ = State::kRelaying;
  return pair[1];
}

// ---- the client's socket ----

int64_t Connection::ReadClient(std::span<char> buffer) {
  if (tls_) return FromTls(tls_->Read(buffer));
  const ssize_t got = recv(client_, buffer.data(), buffer.size(), 0);
  return got == 0 ? kEnd : Result(got);
}

int64_t Connection::WriteClient(std::string_view bytes) {
  if (tls_) return FromTls(tls_->Write(bytes));
  const int64_t moved = Result(send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  if (moved > 0) written_ += moved;
  return moved;
}

int64_t Connection::FromTls(int64_t result) {
  if (result == TlsSocket::kEnd) detail_ = tls_->error();
  return result;
}

void Connection::ShakeHands() {
  switch (tls_->ShakeHands()) {
    case TlsSocket::Handshake::kUnderWay:
      return;
    case TlsSocket::Handshake::kDone:
      state_ = State::kReady;
      return;
    case TlsSocket::Handshake::kFailed:
      breach_ = Breach::kTls;
      detail_ = tls_->error();
      state_ = State::kOver;
  }
}

// ---- between the two ----

void Connection::OnClient(SteadyTime now, std::span<char> buffer) {
  if (state_ == State::kHandshake) return ShakeHands();
  // It has gone before it was let in.
  if (state_ == State::kWaiting) state_ = State::kOver;
  if (state_ == State::kFarewell) return Discard(buffer);
  if (state_ != State::kRelaying) return;
  if (!to_client_.empty()) ToClient("");
  if (state_ == State::kRelaying && MayRead()) FromClient(now, buffer);
}

void Connection::OnDaemon(SteadyTime now, std::span<char> buffer) {
  if (state_ != State::kRelaying) return;
  const bool for_room = !to_daemon_.empty();
  if (for_room) {
    ToDaemon("");
    // TLS may hold what the socket does not tell of any more.
    if (state_ == State::kRelaying && tls_ && MayRead()) FromClient(now, buffer);
  }
  if (state_ != State::kRelaying) return;
  if (to_client_.empty()) return FromDaemon(buffer);
  // Nothing else is waited for but its end.
  if (!for_room && !std::exchange(daemon_hung_up_, true)) deadline_ = now + kLastWords;
}

void Connection::FromClient(SteadyTime now, std::span<char> buffer) {
  // What is read may have to wait, so there should not be much of it while others wait already.
  if (origin_->held_up > 0) buffer = buffer.first(std::min(buffer.size(), kLittleBytes));
  const int64_t got = ReadClient(buffer);
  for (int64_t left = tls_ ? tls_->TakeMessages() : 0; left > 0; --left) {
    if (const Breach breach = frames_.OnTlsMessage(now); breach != Breach::kNone)
      return Close(breach, now);
  }
  if (got == 0) return;
  if (got == kEnd) {
    client_ended_ = true;
    if (to_daemon_.empty()) shutdown(daemon_, SHUT_WR);
    return;
  }
  Judge({buffer.data(), static_cast<size_t>(got)}, now);
}

void Connection::Judge(std::string_view bytes, SteadyTime now) {
  CountPending(now);
  // The connections of an address that are held up share the room.
  const int64_t room = pending_max_ - origin_->pending;
  const int64_t share = room / std::max<int64_t>(origin_->held_up, 1);
  const int64_t streams_max = std::min({room, std::max(kStreamsAtOnce, share), RefusedLeft()});
  passed_.clear();
  const Breach breach = frames_.Pass(&bytes, now, streams_max, &passed_);
  if (breach != Breach::kNone) return Close(breach, now);
  CountPending(now);
  HoldUp(bytes);
  if (!passed_.empty()) ToDaemon(passed_);
  ShrinkEmpty(&passed_);
}

void Connection::CountPending(SteadyTime now) {
  if (peer_ == nullptr) return;  // No call can have come.
  int64_t left = frames_.opened() - peer_->begun.load(std::memory_order_relaxed) - never_begun_;
  least_left_ = std::min(least_left_, left);
  if (now - least_since_ >= kNeverAfter) {
    // What gRPC refused itself, or the client took back in time, never begins.
    const int64_t never = std::max<int64_t>(least_left_, 0);
    never_begun_ += never;
    left -= never;
    least_left_ = left;
    least_since_ = now;
  }
  // It ends all the same, which is known at once while few others stand.
  const int64_t pending = std::max<int64_t>(std::min(left, frames_.opened() - frames_.ended()), 0);
  origin_->pending += pending - counted_;
  counted_ = pending;
}

int64_t Connection::RefusedLeft() const {
  // The first bytes may come before its peer is known: there is no call then.
  if (peer_ == nullptr) return refused_max_;
  return refused_max_ - peer_->refused.load(std::memory_order_relaxed);
}

void Connection::GoOn(SteadyTime now) {
  if (!held_up() || !to_daemon_.empty() || RefusedLeft() <= 0) return;
  const std::string bytes = std::move(unjudged_);
  unjudged_.clear();
  Judge(bytes, now);
  --origin_->held_up;  // Not before: it shares the room with the others.
}

void Connection::HoldUp(std::string_view bytes) {
  unjudged_ = std::string(bytes);
  if (!unjudged_.empty()) ++origin_->held_up;
}

void Connection::Settle(SteadyTime now) {
  if (!unjudged_.empty()) {
    unjudged_.clear();
    --origin_->held_up;
  }
  CountPending(now);
  for (; counted_ > 0; --counted_) {
    --origin_->pending;
    static_cast<void>(origin_->resets->Take(now));
  }
}

void Connection::FromDaemon(std::span<char> buffer) {
  const ssize_t got = recv(daemon_, buffer.data(), buffer.size(), 0);
  const int64_t result = got == 0 ? kEnd : Result(got);
  if (result == 0) return;
  if (result == kEnd) {
    state_ = State::kOver;  // What has been read of it has gone to the client already.
    return;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  NoteSent(bytes);
  ToClient(bytes);
}

void Connection::NoteSent(std::string_view bytes) {
  std::string_view payload;
  for (;;) {
    switch (sent_.Next(&bytes, &payload)) {
      case FrameCutter::Found::kNothing:
      case FrameCutter::Found::kPart:
        return;
      case FrameCutter::Found::kPayload:
        break;
      case FrameCutter::Found::kHeader:
        // Its first frame is its SETTINGS.
        daemon_spoke_ = true;
        frames_.OnSent(sent_.frame());
        break;
    }
  }
}

// Behind what has not gone yet.
void Connection::ToClient(std::string_view bytes) {
  const bool kept = !to_client_.empty();
  std::string_view left = bytes;
  if (kept) {
    to_client_.append(bytes);
    left = to_client_;
  }
  while (!left.empty()) {
    const int64_t sent = WriteClient(left);
    if (sent == kEnd) {
      state_ = State::kOver;
      return;
    }
    if (sent == 0) break;
    left.remove_prefix(static_cast<size_t>(sent));
  }
  if (left.empty()) {
    ShrinkEmpty(&to_client_);
  } else {
    to_client_ = std::string(left);
  }
}

void Connection::ToDaemon(std::string_view bytes) {
  std::string_view left = to_daemon_.empty() ? bytes : std::string_view(to_daemon_);
  while (!left.empty()) {
    const int64_t sent = Result(send(daemon_, left.data(), left.size(), MSG_NOSIGNAL));
    if (sent == kEnd) break;  // What it has sent before may still be read; then its end is.
    if (sent == 0) {
      to_daemon_ = std::string(left);
      return;
    }
    left.remove_prefix(static_cast<size_t>(sent));
  }
  ShrinkEmpty(&to_daemon_);
  if (client_ended_) shutdown(daemon_, SHUT_WR);
}

// ---- the end ----

void Connection::Close(Breach breach, SteadyTime now) {
  breach_ = breach;
  deadline_ = now + kFarewell;
  CloseDaemon();
  state_ = State::kFarewell;
  const bool calm = breach != Breach::kNotHttp2 && breach != Breach::kFrameOrder;
  // In the middle of a frame nothing can be said.
  if (sent_.AtBoundary())
    ToClient(GoAway(calm ? Http2Error::kEnhanceYourCalm : Http2Error::kProtocolError));
  if (state_ == State::kFarewell && to_client_.empty()) SayFarewell();
}

void Connection::SayFarewell() {
  if (tls_) tls_->EndWriting();
  shutdown(client_, SHUT_WR);
}

void Connection::Discard(std::span<char> buffer) {
  if (!to_client_.empty()) {
    ToClient("");
    if (state_ == State::kFarewell && to_client_.empty()) SayFarewell();
  }
  if (state_ != State::kFarewell) return;
  // Whatever TLS makes of it.
  const ssize_t got = recv(client_, buffer.data(), buffer.size(), 0);
  if (got > 0) discarded_ += static_cast<size_t>(got);
  if (got == 0 || Result(got) == kEnd || discarded_ > kDiscardedMax) state_ = State::kOver;
}

int64_t Connection::Taken() const {
  int queued = 0;  // In the kernel; 0 if it does not say.
  static_cast<void>(ioctl(client_, SIOCOUTQ, &queued));
  return (tls_ ? tls_->written() : written_) - queued;
}

std::optional<SteadyTime> Connection::Deadline(SteadyTime now) {
  if (state_ == State::kFarewell || daemon_hung_up_) return deadline_;
  if (to_client_.empty()) {
    deadline_.reset();
  } else if (!deadline_) {
    taken_ = Taken();
    deadline_ = now + taken_within_;
  }
  return deadline_;
}

void Connection::OnDeadline(SteadyTime now) {
  if (state_ == State::kRelaying && !daemon_hung_up_) {
    const int64_t taken = Taken();
    if (taken - taken_ >= taken_bytes_min_) {
      taken_ = taken;
      deadline_ = now + taken_within_;
      return;
    }
    breach_ = Breach::kUnread;
  }
  if (state_ == State::kWaiting) breach_ = Breach::kConnections;
  if (state_ == State::kHandshake) {
    breach_ = Breach::kTls;
    detail_ = "it took too long";
  }
  state_ = State::kOver;
}

void Connection::CloseDaemon() {
  if (daemon_ >= 0) close(std::exchange(daemon_, -1));
}

}  // namespace semaphored::guard
