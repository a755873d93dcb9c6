// Errors as a daemon sends them.
#ifndef SEMAPHORED_TESTS_SERVICE_CLIENT_ERROR_H_
#define SEMAPHORED_TESTS_SERVICE_CLIENT_ERROR_H_

#include <string>

#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace semaphore::test {

// With this code and an ErrorInfo with this reason. `code`: one of gRPC's.
inline google::rpc::Status ErrorWith(int code, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain("semaphored");
  info.set_reason(reason);
  google::rpc::Status status;
  status.set_code(code);
  status.add_details()->PackFrom(info);
  return status;
}

}  // namespace semaphore::test

#endif  // SEMAPHORED_TESTS_SERVICE_CLIENT_ERROR_H_
