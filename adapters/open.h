// Opens the engine that a URL names. The only place that knows all schemes.
//
//   sqlite:///var/lib/semaphored/state.db   an embedded file; made if it is not there. Options
//                                           after '?':
//                                           history_rows=N (100000; 0 keeps none),
//                                           synchronous=full|off (tests only)
//   sqlite::memory:                         nothing outlives the process
//   postgres://user:password@host:port/db?schema=semaphored&lanes=4
//                                           a database that daemons share; see
//                                           postgres/url.h
//   consul://host:port/prefix?dc=dc1&token_file=FILE
//                                           a Consul agent, whose semaphores are shared with
//                                           `consul lock -n`; see consul/url.h
//   dynamodb://region/table?endpoint=http://host:port&lanes=4
//                                           a table of DynamoDB that daemons share; see
//                                           dynamodb/url.h
//   amqp://user:password@host:port/vhost?layout=tokens|slots
//                                           a RabbitMQ broker, with TLS amqps://; see
//                                           rabbitmq/url.h
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "adapters/adapter.h"
#include "adapters/common/descriptor.h"
#include "adapters/common/upkeep.h"
#include "adapters/ledger/options.h"

namespace semaphored {

struct BackUpRequest {
  int64_t bytes_per_second = 0;  // Of what is copied; more than 0.
  // Called every few ms. False: stop.
  std::function<bool(int64_t done_bytes, int64_t all_bytes)> progress;
};

// What the server needs of an engine. Lanes and nodes outlive the Engine's other users.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const Guarantees& guarantees() const = 0;
  // This daemon among others. Owned by the engine. Join() must have succeeded before a lane is
  // opened.
  virtual NodeStore& nodes() = 0;
  // One more adapter, for one more lane; at most guarantees().lanes_max. `options.self` is what
  // Join() gave.
  virtual absl::StatusOr<std::unique_ptr<Adapter>> OpenLane(
      const ledger::LedgerOptions& options) = 0;
  // A file that RestoreEngine accepts, complete and on disk, under no name: the store as it stands
  // when this returns. Lanes go on meanwhile. Blocks for as long as the copy takes; on a thread of
  // its own, one call at a time. UNIMPLEMENTED: the engine keeps its back-ups itself. Other errors
  // as sqlite/backup.h has them.
  virtual absl::StatusOr<Descriptor> BackUp(const BackUpRequest& request) {
    (void)request;
    return absl::UnimplementedError("only the embedded store is backed up so");
  }
  // How its upkeep goes, of all lanes and the node together. Never null. Any thread.
  const std::shared_ptr<Upkeep>& upkeep() const { return upkeep_; }

 private:
  const std::shared_ptr<Upkeep> upkeep_ = std::make_shared<Upkeep>();
};

// INVALID_ARGUMENT: the URL is not understood; an unknown scheme's message names those that exist.
// FAILED_PRECONDITION: another daemon has the store. DATA_LOSS: it is damaged. PERMISSION_DENIED,
// UNAVAILABLE: it cannot be opened, and why. Blocks.
absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const std::string& url);

// What must be in the engine before a daemon uses it, for those who do not let a daemon make it:
// text that the engine's own tools take. UNIMPLEMENTED: nothing has to be.
absl::StatusOr<std::string> EngineSchema(const std::string& url);

// Makes it, unless it is there, and waits until it can be used. Meanwhile `progress` receives lines
// for people; the result is the last such line. UNIMPLEMENTED: nothing has to be made.
// FAILED_PRECONDITION: something else stands in its place, and is left as it is. Blocks, for
// minutes at most.
absl::StatusOr<std::string> MakeEngineSchema(
    const std::string& url, const std::function<void(const std::string& line)>& progress);

struct RestoreRequest {
  std::string from;   // The back-up's file.
  int64_t epoch = 0;  // 0: found out. See sqlite/restore.h.
  // Returns when the longest TTL has passed; that of the back-up is given.
  std::function<void(int64_t longest_ttl_ms)> wait;
};

// Puts a back-up in the place of the store that `url` names, which no daemon uses. What to tell
// people in the end. UNIMPLEMENTED: the engine keeps its back-ups itself. Other errors as
// sqlite/restore.h has them. Blocks.
absl::StatusOr<std::string> RestoreEngine(const std::string& url, const RestoreRequest& request);

// The path of the embedded store's file. Empty: the store is another engine's, or in memory.
std::string EmbeddedFile(const std::string& url);

// The schemes that OpenEngine knows.
std::vector<std::string> EngineSchemes();

}  // namespace semaphored
