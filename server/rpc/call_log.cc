#include "server/rpc/call_log.h"

#include <fmt/format.h>

#include <string>

#include "server/base/logging.h"

namespace semaphored {

TraceContext TraceOf(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("traceparent");
  if (found == metadata.end()) return {};
  return ParseTraceparent({found->second.data(), found->second.size()}).value_or(TraceContext{});
}

void LogRefusal(Method method, const Refusal& refusal, const grpc::ServerContext& context) {
  if (!Logs(LogLevel::kDebug)) return;
  std::string line =
      fmt::format("refused: {}: {} {}", MethodName(method), absl::StatusCodeToString(refusal.code),
                  ReasonName(refusal.reason));
  if (!refusal.semaphore.empty()) line += fmt::format(", semaphore '{}'", refusal.semaphore);
  LogTraced(LogLevel::kDebug, TraceOf(context), line + ": " + refusal.message);
}

void LogAct(std::string_view act, std::string_view semaphore, const grpc::ServerContext& context) {
  if (!Logs(LogLevel::kDebug)) return;
  LogTraced(LogLevel::kDebug, TraceOf(context),
            fmt::format("administered: {}, semaphore '{}'", act, semaphore));
}

}  // namespace semaphored
