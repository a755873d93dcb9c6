// What the URL of a DynamoDB store says.
//
//   dynamodb://eu-west-1/semaphored
//   dynamodb://eu-west-1/semaphored?lanes=4&profile=ci&history_h=720
//   dynamodb://local/semaphored?endpoint=http://127.0.0.1:8000
//
// Options: endpoint, ca_file, profile, lanes, timeout_ms, poll_min_ms, poll_max_ms, history_h.
// Keys are never among them: see credentials.h.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace semaphored::dynamodb {

struct Url {
  std::string region;
  std::string table = "semaphored";
  // Empty: https://dynamodb.<region>.amazonaws.com. Without a path.
  std::string endpoint;
  std::string ca_file;  // PEM; empty: the system's.
  std::string profile;  // Of the shared files; empty: AWS_PROFILE, or "default".
  int lanes = 4;
  // For each request, its repetitions included.
  std::chrono::milliseconds timeout{5000};
  // How often a daemon reads its notices while a claim waits: initially, and after long silence.
  std::chrono::milliseconds poll_min{20};
  std::chrono::milliseconds poll_max{1000};
  // How long history is kept; 0: none is written.
  std::chrono::hours history{24 * 7};

  // Where requests go.
  std::string base() const;
};

// INVALID_ARGUMENT: what is wrong, without a secret.
absl::StatusOr<Url> ReadUrl(const std::string& text);

}  // namespace semaphored::dynamodb
