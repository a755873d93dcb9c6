#include "server/options.h"

#include <algorithm>

#include "server/config/config_checks.h"
#include "server/http/server.h"

namespace semaphored {

ServerOptions ServerOptionsOf(const Config& config) {
  ServerOptions options;
  options.listen = config.listen;
  options.node_id = config.node_id;
  options.guard = IsGuarded(config);
  options.health = config.health;
  options.reflection = config.reflection;
  options.keepalive_interval_ms = config.keepalive_interval_ms;
  options.keepalive_timeout_ms = config.keepalive_timeout_ms;
  options.message_bytes_max = static_cast<int>(config.message_bytes_max);
  options.connections_max = config.connections_max;
  if (!config.metrics_listen.empty())
    options.other_descriptors += http::ServerOptions().connections_max;
  // With TLS as many more are at its door.
  if (!HttpAddressOf(config).listen.empty())
    options.other_descriptors += web::kConnectionsMax * (IsHttpByTls(config) ? 2 : 1);
  options.connection_calls_max = static_cast<int>(config.connection_calls_max);
  options.handshake_timeout_ms = config.handshake_timeout_ms;
  options.connections_bytes_max = config.connections_bytes_max;
  options.client_retention = Milliseconds(config.client_retention_ms);
  options.limits.stream_bytes_max = config.stream_bytes_max;
  options.limits.answers_bytes_max = config.answers_bytes_max;
  // As much as of answers; one stream alone may have its own.
  options.limits.streams_bytes_max = std::max(config.answers_bytes_max, config.stream_bytes_max);
  // As long as it takes to notice that a connection is dead.
  options.limits.unread_max =
      Milliseconds(config.keepalive_interval_ms + config.keepalive_timeout_ms);
  options.limits.calls_max = config.calls_max;
  options.limits.streams_max = config.streams_max;
  options.limits.watch_events_max = config.watch_events_max;
  RequestLimits& requests = options.limits.requests;
  requests.permits_per_request_max = config.permits_per_request_max;
  requests.limit_max = config.limit_max;
  requests.wait_max_ms = config.wait_max_ms;
  requests.ttl_default_ms = config.ttl_default_ms;
  requests.ttl_min_ms = config.ttl_min_ms;
  requests.ttl_max_ms = config.ttl_max_ms;
  requests.commands_per_message_max = static_cast<int>(config.commands_per_message_max);
  requests.rows_max = config.rows_max;
  requests.name_bytes_max = config.name_bytes_max;
  requests.holder_bytes_max = config.holder_bytes_max;
  requests.payload_bytes_max = config.limits.payload_bytes_max;
  requests.ticket_attempts_default = config.ticket_attempts_default;
  return options;
}

ledger::LedgerOptions LedgerOptionsOf(const Config& config, NodeRef self, const Clock& clock) {
  ledger::LedgerOptions options;
  options.self = self;
  options.limits = config.limits;
  options.request_window = config.request_window;
  options.clients_max = config.clients_max;
  options.client_retention = Milliseconds(config.client_retention_ms);
  options.one_shot_requests_max = config.one_shot_requests_max;
  options.request_retention = Milliseconds(config.request_retention_ms);
  options.sweep_interval = Milliseconds(config.sweep_interval_ms);
  options.now_unix_ms = [&clock] { return clock.NowUnixMs(); };
  options.now = [&clock] { return clock.Now(); };
  return options;
}

uint32_t LanesOf(const Config& config, const Engine& engine) {
  const uint32_t most = std::max(engine.guarantees().lanes_max, 1u);
  return config.lanes == 0 ? most : std::min(config.lanes, most);
}

Milliseconds LaneVouchOf(const Config& config, const Engine& engine) {
  const Milliseconds vouch(config.node_ttl_ms - config.node_ttl_ms / 10);
  const int64_t most_ms = engine.guarantees().vouch_max_ms;
  return most_ms > 0 ? std::min(vouch, Milliseconds(most_ms)) : vouch;
}

SessionsOptions SessionsOptionsOf(const Config& config, const Engine& engine) {
  SessionsOptions options;
  options.resume_grace_ms = config.resume_grace_ms;
  options.node_ttl_ms = config.node_ttl_ms;
  options.sweep_interval_ms = config.sweep_interval_ms;
  options.read_vouch_ms = LaneVouchOf(config, engine).count();
  options.limit_max = config.limit_max;
  options.work_sweep_ms = config.work_sweep_ms;
  options.idle_destroy_after_ms = config.idle_destroy_after_ms;
  if (!config.metrics_listen.empty())
    options.metrics_semaphores_max = config.metrics_semaphores_max;
  options.metrics_list_interval_ms = config.metrics_list_interval_ms;
  options.log_leases = true;
  return options;
}

SecurityOptions SecurityOptionsOf(const Config& config) {
  SecurityOptions options;
  options.certificates = {config.tls_cert_file, config.tls_key_file, config.tls_client_ca_file};
  if (!config.tls_client_ca_file.empty()) {
    options.client_certificates = config.tls_client_certificates == "optional"
                                      ? guard::ClientCertificates::kOptional
                                      : guard::ClientCertificates::kRequired;
  }
  options.access_file = config.access_file;
  options.audit_file = config.audit_file;
  return options;
}

web::WebOptions WebOptionsOf(const Config& config, Security* security) {
  web::WebOptions options;
  options.listen = HttpAddressOf(config).listen;
  options.hosts = config.http_hosts;
  options.writes = web::WritesOf(config.http_writes);
  options.tls = IsHttpByTls(config) ? security->tls() : nullptr;
  options.handshake_timeout = Milliseconds(config.handshake_timeout_ms);
  options.needs_token = NeedsCertificates(config) && !IsHttpByTls(config);
  options.body_bytes_max = config.message_bytes_max;
  options.unread_max = Milliseconds(config.keepalive_interval_ms + config.keepalive_timeout_ms);
  options.policy = [security] { return security->policy(); };
  options.audit = security->audit();
  return options;
}

MembershipOptions MembershipOptionsOf(const Config& config, const Engine& engine) {
  MembershipOptions options;
  options.node_ttl = Milliseconds(config.node_ttl_ms);
  options.exclusive = engine.guarantees().exclusive;
  options.node_id = config.node_id;
  return options;
}

}  // namespace semaphored
