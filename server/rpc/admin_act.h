// A request to Administer: its act, the verb that it needs, and its line in the audit log.
#pragma once

#include <string>
#include <string_view>

#include "proto/semaphore/v1/semaphore.pb.h"
#include "server/access/access.h"
#include "server/base/reason.h"

namespace semaphored {

struct AdminAct {
  std::string_view name;  // As the field of the request: "resize". Empty: none is given.
  Verbs verbs = Verb::kAdminister;
  bool changes = true;  // Otherwise it is a question, of which the audit log says nothing.
};
AdminAct ActOf(const semaphore::v1::AdministerRequest& request);

// What the audit log says of an act.
struct AuditEntry {
  int64_t time_unix_ms = 0;
  std::string_view identity;  // Empty: there is no access file.
  std::string peer;           // As gRPC writes it: ipv4:ADDRESS:PORT, unix:PATH.
  std::string_view act;
  std::string_view semaphore;
  std::string asked = "null";  // JSON, as `before` and `after`.
  std::string before = "null";
  std::string after = "null";
  uint32_t affected = 0;
  const Refusal* refusal = nullptr;  // Null: it was done.
};
// One line of JSON, without its end. Of texts that are too long there is the beginning.
std::string AuditLine(const AuditEntry& entry);
// The same of an act that was refused to a caller without the right: nothing of its request, but `unwritten`, of how
// many more there is no line. REQUIRES: a refusal.
std::string ShortAuditLine(const AuditEntry& entry, uint64_t unwritten);

// As JSON. Of the lease id in a revoke it has only the first digits: the id is a secret until the lease ends.
std::string AskedText(semaphore::v1::AdministerRequest request);
// The semaphore by its fields.
std::string SemaphoreText(const semaphore::v1::SemaphoreInfo& info);

}  // namespace semaphored
