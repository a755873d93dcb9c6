// One guarded connection: the client's socket, with TLS or without, and one end of a pair of sockets, whose other end
// is gRPC's. It moves bytes as the two sides can take them, keeps at most what one side has sent in one piece and the
// other has not taken, and reads no more from a side until that has gone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/access/access.h"
#include "server/base/clock.h"
#include "server/guard/breach.h"
#include "server/guard/client_frames.h"
#include "server/guard/origin.h"
#include "server/guard/peers.h"
#include "server/guard/tls_socket.h"

namespace semaphored::guard {

// Used by one thread at a time. No call blocks.
class Connection {
 public:
  // Closed for a breach, it hears out its client for so long, so that the reason for it is not lost.
  static constexpr Milliseconds kFarewell{1000};
  // When the daemon has closed it, its client has so long to take what was sent before.
  static constexpr Milliseconds kLastWords{5000};

  enum class State : uint8_t {
    kWaiting,    // To be let in.
    kHandshake,  // Of TLS.
    kReady,      // To be joined to gRPC.
    kRelaying,
    kFarewell,  // The client gets a GOAWAY; what it still sends is thrown away.
    kOver,
  };
  // What is to be waited for on one of its sockets.
  struct Interest {
    bool read = false;
    bool write = false;
    bool end = false;  // That the other side has closed it, though nothing is read.
    friend bool operator==(const Interest&, const Interest&) = default;
  };

  // Owns the socket, which is set not to block. `tls` is null: without TLS. `waits`: its address has to wait.
  Connection(int client, TlsSocketPtr tls, Address address, const FrameBounds& bounds,
             std::shared_ptr<Origin> origin, bool waits);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  State state() const { return state_; }
  const Address& address() const { return address_; }
  Origin& origin() const { return *origin_; }
  const std::string& key() const { return key_; }
  // Why it was closed; kNone: its client or the daemon has ended it. `detail` is TLS's word for it.
  Breach breach() const { return breach_; }
  const std::string& detail() const { return detail_; }
  // Of a verified certificate. REQUIRES: the handshake is done.
  CertificateNames certificate() const;

  int client() const { return client_; }
  int daemon() const { return daemon_; }  // -1: not joined, or not any more.
  Interest client_interest() const;
  Interest daemon_interest() const;

  // Its address may let one more in: it goes on. False: it still waits. REQUIRES: kWaiting.
  bool Enter(SteadyTime now);
  // Makes the pair, this end of it with the name `key`; `peer` counts its calls. The other end, which becomes the
  // caller's; -1: the system does not give one. REQUIRES: kReady.
  int Join(std::string key, std::shared_ptr<const Peer> peer);

  // What it owns of its client, which becomes the caller's; it is over. REQUIRES: kReady.
  struct Released {
    int client = -1;
    TlsSocketPtr tls;  // Null: without TLS.
  };
  Released Release();

  // A socket is ready for what it was waited for. `buffer` is any memory, of which nothing is kept.
  void OnClient(SteadyTime now, std::span<char> buffer);
  void OnDaemon(SteadyTime now, std::span<char> buffer);
  // When OnDeadline() is to be called; nullopt: never, as it is now. REQUIRES: kRelaying or kFarewell.
  std::optional<SteadyTime> Deadline(SteadyTime now);
  // It has waited for too long, or its handshake has taken too long, or its farewell: it is over. So it is if its client
  // has taken too little of what waits for it.
  void OnDeadline(SteadyTime now);
  // The system has no room for it: it is over.
  void GiveUp() { state_ = State::kOver; }

  // It has calls to pass on, and its address has too many that the daemon has not begun.
  bool held_up() const { return state_ == State::kRelaying && !unjudged_.empty(); }
  // Brings what its address has pending up to date.
  void CountPending(SteadyTime now);
  // Goes on with what was held up, if it may.
  void GoOn(SteadyTime now);
  // Calls that the daemon has not begun count as resets, and its address is free of them. Once, at the end.
  void Settle(SteadyTime now);

 private:
  // Bytes moved; 0: none for now; kEnd: the other side has ended, or failed.
  static constexpr int64_t kEnd = -1;
  int64_t ReadClient(std::span<char> buffer);
  int64_t WriteClient(std::string_view bytes);
  int64_t FromTls(int64_t result);

  bool MayRead() const {
    return daemon_spoke_ && !client_ended_ && to_daemon_.empty() && unjudged_.empty();
  }
  void ShakeHands();
  void FromClient(SteadyTime now, std::span<char> buffer);
  void FromDaemon(std::span<char> buffer);
  void ToClient(std::string_view bytes);
  void ToDaemon(std::string_view bytes);
  // Judges what the client has sent, as far as it may be passed on, and passes it on.
  void Judge(std::string_view bytes, SteadyTime now);
  void HoldUp(std::string_view bytes);
  // How many more calls may be passed on before refused ones have left.
  int64_t RefusedLeft() const;
  void NoteSent(std::string_view bytes);
  // Bytes that the client has taken so far; of a Unix socket, about.
  int64_t Taken() const;
  void Close(Breach breach, SteadyTime now);
  void SayFarewell();
  void Discard(std::span<char> buffer);
  void CloseDaemon();

  int client_;
  TlsSocketPtr tls_;
  const Address address_;
  int daemon_ = -1;
  State state_;
  std::string key_;
  ClientFrames frames_;
  FrameCutter sent_;             // The daemon's frames, as far as they have been read from it.
  bool daemon_spoke_ = false;    // The daemon's SETTINGS have been read.
  bool client_ended_ = false;    // It sends no more.
  bool daemon_hung_up_ = false;  // Seen while what it has sent before has not gone.
  std::string passed_;           // What Pass appends to; kept for its memory.
  std::string to_client_;        // Read from the daemon, and not taken by the client.
  int64_t written_ = 0;          // To the client's socket, without TLS.
  int64_t taken_ = 0;            // As the time until deadline_ began.
  std::optional<SteadyTime> deadline_;
  std::string to_daemon_;
  std::string unjudged_;  // Read from the client, and held up.
  const std::shared_ptr<Origin> origin_;
  std::shared_ptr<const Peer> peer_;
  bool waits_;           // It counts in origin_->waiting.
  int64_t counted_ = 0;  // Of origin_->pending: this connection's.
  const int64_t pending_max_;
  const int64_t refused_max_;
  const int64_t taken_bytes_min_;
  const Milliseconds taken_within_;
  int64_t never_begun_ = 0;   // Calls that gRPC has not handed on and will not.
  int64_t least_left_ = 0;    // The fewest that were open and not begun …
  SteadyTime least_since_{};  // … since then.
  size_t discarded_ = 0;
  Breach breach_ = Breach::kNone;
  std::string detail_;
};

}  // namespace semaphored::guard
