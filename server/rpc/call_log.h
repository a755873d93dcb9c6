// What the log says of single calls, all of it at level debug, with the trace context that came
// with the call.
#pragma once

#include <grpcpp/server_context.h>

#include <string_view>

#include "server/base/reason.h"
#include "server/base/trace.h"
#include "server/figures/metrics.h"

namespace semaphored {

// Of the metadata "traceparent"; not present where there is none, or something else.
TraceContext TraceOf(const grpc::ServerContext& context);

void LogRefusal(Method method, const Refusal& refusal, const grpc::ServerContext& context);
// An administrative act that was carried out: "resize", "revoke", ….
void LogAct(std::string_view act, std::string_view semaphore, const grpc::ServerContext& context);

}  // namespace semaphored
