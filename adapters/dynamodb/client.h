// DynamoDB's JSON interface over kept connections, each request signed. Used by one thread at a
// time.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "adapters/adapter.h"
#include "adapters/dynamodb/credentials.h"
#include "adapters/dynamodb/reply.h"
#include "adapters/dynamodb/url.h"

namespace semaphored::dynamodb {

class Client {
 public:
  Client(const Url& url, std::shared_ptr<CredentialSource> credentials);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // A request that may be repeated: reads, and writes with a ClientRequestToken, or under a
  // condition that makes a second one harmless. Repeated, with pauses of random length that grow,
  // while it is throttled, while a transaction is at its items (TransactionConflictException,
  // TransactionInProgressException), while the engine is at fault (5xx), and if its answer was
  // lost; never past `deadline`, nor past the URL's time-out. The reasons of a
  // TransactionCanceledException are not looked at. kBroken: the answer of one of the attempts was
  // lost, and the last was not answered; that one may still land.
  Reply Repeat(const Request& request, SteadyTime deadline);
  // Sent again only where the one before was certainly not carried out (throttled, not reached).
  Reply Once(const Request& request, SteadyTime deadline);
  // Requests that may be repeated, side by side over up to 8 connections. Replies in their order.
  std::vector<Reply> RepeatAll(absl::Span<const Request> requests, SteadyTime deadline);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace semaphored::dynamodb
