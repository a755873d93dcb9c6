// A JSON document kept as the one message of a quorum queue. The connection that has its mutex, an
// exclusive queue beside it, reads and replaces it. At least one message is always there: the new
// one is confirmed before the old goes. After a crash there may be two; the higher version counts.
//
//   <queue>        the document: an object with "version", which rises with each write, "format", the
//                  version of what is in it (common/store_version.h), and whatever its owner puts there
//   <queue>.lock   the mutex: a message that is being read is hidden from other connections, which
//                  without the mutex could meet an old one alone
//
// A connection that is cut off between its last check and its write can leave a second message of
// the same version; then Merge of the reader decides, and what it makes is written again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "adapters/rabbitmq/connection.h"

namespace semaphored::rabbitmq {

// An exclusive queue of the connection; deleted with this object, unless the connection has gone,
// and the queue with it. Blocks for some round trips.
class Mutex {
 public:
  // UNAVAILABLE: another connection has it. DEADLINE_EXCEEDED: the broker does not answer, or has
  // not deleted an earlier one of this connection yet; what it makes late is deleted.
  static absl::StatusOr<std::unique_ptr<Mutex>> Try(Connection* connection,
                                                    const std::string& queue);
  // Tries for a second.
  static absl::StatusOr<std::unique_ptr<Mutex>> Lock(Connection* connection,
                                                     const std::string& queue);
  ~Mutex();
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  // False: the connection through which it was taken has gone.
  bool held() const { return connection_->is_open() && connection_->life() == life_; }

 private:
  Mutex(Connection* connection, std::string queue)
      : connection_(connection), life_(connection->life()), queue_(std::move(queue)) {}

  Connection* connection_;
  uint64_t life_;
  std::string queue_;
};

// Of what all documents and the messages of permits have in them; written into each document.
inline constexpr uint64_t kFormat = 1;

// A document that no other connection reads or writes meanwhile.
class Document {
 public:
  // Of two documents of the same version, what is to count.
  using Merge = std::function<nlohmann::json(const nlohmann::json&, const nlohmann::json&)>;

  // NOT_FOUND: there is no such queue (with `make`, it is made, and empty). DATA_LOSS: what is in
  // it is none of ours. UNIMPLEMENTED: a queue of another kind, or a newer daemon's document, which
  // stays as it is. UNAVAILABLE: another connection keeps the mutex.
  static absl::StatusOr<std::unique_ptr<Document>> Open(Connection* connection,
                                                        const std::string& queue, bool make,
                                                        const Merge& merge);
  ~Document();
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  // Made by this call, or its making was broken off, or an administrator has purged it.
  bool empty() const { return !content_.has_value(); }
  // REQUIRES: not empty.
  const nlohmann::json& content() const { return *content_; }
  uint64_t version() const { return version_; }

  // The version of an empty one.
  void BeginAt(uint64_t version) { version_ = version; }
  // Puts it in the place of what is there; its version is set, one above. Error: it may stand or
  // not.
  absl::Status Write(nlohmann::json content);

 private:
  Document(Connection* connection, std::string queue)
      : connection_(connection), queue_(std::move(queue)) {}
  absl::StatusOr<bool> Find();
  absl::Status Take(bool made, const Merge& merge);
  absl::Status TakeAll(bool* unreadable, const Merge& merge);

  Connection* connection_;
  std::string queue_;
  std::unique_ptr<Mutex> mutex_;
  Channel channel_ = 0;
  std::optional<nlohmann::json> content_;
  uint64_t version_ = 0;
  bool merged_ = false;
  std::vector<uint64_t> taken_;  // Delivery tags of all messages there are.
};

}  // namespace semaphored::rabbitmq
