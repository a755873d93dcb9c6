// The table of all settings: flag, environment variable, file key, help and example follow from each row.
#include "server/config/settings.h"

namespace semaphored {
namespace {

using Kind = Setting::Kind;

constexpr int64_t kSecond = 1000;
constexpr int64_t kMinute = 60 * kSecond;
constexpr int64_t kHour = 60 * kMinute;
constexpr int64_t kDay = 24 * kHour;
constexpr int64_t kMillion = 1'000'000;

constexpr bool kReloadable = true;

constexpr char kWhere[] = "What and where";
constexpr char kLiveness[] = "Liveness";
constexpr char kRequests[] = "Remembered requests";
constexpr char kLimits[] = "Limits";
constexpr char kTickets[] = "Tickets";
constexpr char kEngine[] = "The engine";
constexpr char kMetrics[] = "Metrics";
constexpr char kProcess[] = "The process";

#define FIELD(member) [](Config& config) -> Setting::Field { return &config.member; }

std::vector<Setting> Where() {
  return {
      {kWhere, "store", Kind::kText, FIELD(store), 0, 4096, nullptr,
       "URL of the engine that keeps the semaphores: sqlite:///PATH, "
       "postgres://USER@HOST/DATABASE, consul://HOST:PORT/PREFIX, dynamodb://REGION/TABLE, "
       "amqp://USER@HOST/VHOST, or sqlite::memory:, which forgets all when the daemon ends. Empty: "
       "the embedded store, state.db in $STATE_DIRECTORY; else in /var/lib/semaphored, if the "
       "daemon "
       "may write there; else in $XDG_STATE_HOME/semaphored or ~/.local/state/semaphored. The log "
       "says where."},
      {kWhere, "listen", Kind::kText, FIELD(listen), 1, 256, nullptr,
       "Address to serve at: HOST:PORT, [HOST]:PORT or unix:PATH. Port 0 takes any free one."},
      {kWhere, "allow_insecure_remote", Kind::kSwitch, FIELD(allow_insecure_remote), 0, 0, nullptr,
       "Serve at an address that other machines can reach, although connections are neither "
       "encrypted nor "
       "authenticated. With TLS it is not needed."},
      {kWhere, "tls_cert_file", Kind::kText, FIELD(tls_cert_file), 0, 4096, nullptr,
       "PEM file of the daemon's certificate, followed by those that signed it. With tls_key_file: "
       "connections are encrypted by TLS. Read again when it has changed."},
      {kWhere, "tls_key_file", Kind::kText, FIELD(tls_key_file), 0, 4096, nullptr,
       "PEM file of the private key of tls_cert_file, without a passphrase."},
      {kWhere, "tls_client_ca_file", Kind::kText, FIELD(tls_client_ca_file), 0, 4096, nullptr,
       "PEM file of the certificates by which those of clients are verified. Empty: clients are "
       "not asked for one."},
      {kWhere, "tls_client_certificates", Kind::kChoice, FIELD(tls_client_certificates), 0, 0,
       "require, optional",
       "With tls_client_ca_file: whether a client without a certificate may connect."},
      {kWhere, "frame_guard", Kind::kChoice, FIELD(frame_guard), 0, 0, "auto, on, off",
       "Whether connections pass a guard, which closes one that floods the daemon with frames of "
       "HTTP/2. auto: where TLS or an access file is set, or other machines can reach the address. "
       "With TLS it cannot be off."},
      {kWhere, "access_file", Kind::kText, FIELD(access_file), 0, 4096, nullptr,
       "TOML file of who may do what: identities by token or client certificate, their rules and "
       "quotas. Read again when it has changed. Empty: every client that reaches the port "
       "may do everything."},
      {kWhere, "audit_file", Kind::kText, FIELD(audit_file), 0, 4096, nullptr,
       "File that a line of JSON is appended to for each administrative act. Empty: the daemon's "
       "log."},
      {kWhere, "http_listen", Kind::kText, FIELD(http_listen), 0, 256, nullptr,
       "Address of the page, and of the API as JSON, by HTTP: HOST:PORT or [HOST]:PORT. auto: "
       "127.0.0.1:7422, unless another program has that, listen is a Unix socket, or every client "
       "must show a certificate and http_tls is not on. off: none."},
      {kWhere, "http_tls", Kind::kChoice, FIELD(http_tls), 0, 0, "auto, on, off",
       "Whether HTTP is encrypted by TLS, with the certificates of tls_cert_file, and knows "
       "clients "
       "by theirs, as tls_client_ca_file and tls_client_certificates say. auto: where "
       "tls_cert_file "
       "is set and other machines can reach http_listen, unless allow_insecure_remote is set."},
      {kWhere, "http_writes", Kind::kChoice, FIELD(http_writes), 0, 0, "off, token, on",
       "Which callers may change anything by HTTP; the others may read. token: those that show a "
       "token, or a client certificate, of the access file. on: all that the API serves.",
       kReloadable},
      {kWhere, "http_hosts", Kind::kText, FIELD(http_hosts), 0, 4096, nullptr,
       "Names by which clients of HTTP reach the daemon, without ports, with commas between them; "
       "addresses in numbers and localhost "
       "are always right. A request with another Host is refused, as a web site may have caused "
       "it."},
      {kWhere, "node_id", Kind::kText, FIELD(node_id), 0, 128, nullptr,
       "Name of this daemon among those on the same engine; it must keep it when it is restarted. "
       "A daemon does not start with the name of one that is alive. Empty: the host's name and the "
       "port."},
      {kWhere, "health", Kind::kSwitch, FIELD(health), 0, 0, nullptr,
       "Serve the standard health service, grpc.health.v1.Health."},
      {kWhere, "reflection", Kind::kSwitch, FIELD(reflection), 0, 0, nullptr,
       "Serve gRPC's reflection service, by which tools such as grpcurl find the API."},
  };
}

std::vector<Setting> Liveness() {
  return {
      {kLiveness, "node_ttl", Kind::kDuration, FIELD(node_ttl_ms), 5 * kSecond, 10 * kMinute,
       nullptr,
       "A daemon whose heartbeat was not seen for so long is declared dead by the others. "
       "Heartbeats come every third "
       "of it. The same for all daemons on one engine."},
      {kLiveness, "ttl_default", Kind::kDuration, FIELD(ttl_default_ms), 100, 7 * kDay, nullptr,
       "TTL of a lease or session whose client names none.", kReloadable},
      {kLiveness, "ttl_min", Kind::kDuration, FIELD(ttl_min_ms), 100, kDay, nullptr,
       "The shortest TTL that a client may ask for.", kReloadable},
      {kLiveness, "ttl_max", Kind::kDuration, FIELD(ttl_max_ms), kSecond, 7 * kDay, nullptr,
       "The longest TTL that a client may ask for.", kReloadable},
      {kLiveness, "wait_max", Kind::kDuration, FIELD(wait_max_ms), 0, 30 * kDay, nullptr,
       "The longest wait that a client may ask for, unless it asks to wait for ever.", kReloadable},
      {kLiveness, "resume_grace", Kind::kDuration, FIELD(resume_grace_ms), 0, 5 * kMinute, nullptr,
       "The waiters of a session whose connection broke keep their positions for so long, if it "
       "comes "
       "back."},
      {kLiveness, "keepalive_interval", Kind::kDuration, FIELD(keepalive_interval_ms), kSecond,
       kHour, nullptr, "How often a silent connection is asked whether it still stands."},
      {kLiveness, "keepalive_timeout", Kind::kDuration, FIELD(keepalive_timeout_ms), 100,
       10 * kMinute, nullptr, "A connection that does not answer for so long is closed."},
  };
}

std::vector<Setting> Requests() {
  return {
      {kRequests, "request_window", Kind::kCount, FIELD(request_window), 16, kMillion, nullptr,
       "Answers that are remembered for each client, so that a repeated request is not carried out "
       "twice. A request id "
       "that is lower by more than this is refused."},
      {kRequests, "clients_max", Kind::kCount, FIELD(clients_max), 1, 10 * kMillion, nullptr,
       "Clients whose answers are remembered."},
      {kRequests, "client_retention", Kind::kDuration, FIELD(client_retention_ms), kSecond,
       30 * kDay, nullptr,
       "A client that holds nothing is remembered for at least so long after its last request."},
      {kRequests, "one_shot_requests_max", Kind::kCount, FIELD(one_shot_requests_max), 1,
       10 * kMillion, nullptr,
       "Requests with a one-shot id that each lane of the daemon remembers; Consul takes 50000 at "
       "most. A new id beyond is refused; a repeated one is answered."},
      {kRequests, "request_retention", Kind::kDuration, FIELD(request_retention_ms), kSecond,
       30 * kDay, nullptr,
       "A request with a one-shot id is remembered for at least so long after its claim has ended, "
       "or after its act."},
  };
}

std::vector<Setting> SharedLimits() {
  return {
      {kLimits, "semaphores_max", Kind::kCount, FIELD(limits.semaphores_max), 1, 10 * kMillion,
       nullptr, "Semaphores that may exist at once."},
      {kLimits, "leases_max", Kind::kCount, FIELD(limits.leases_max), 1, 100 * kMillion, nullptr,
       "Leases and waiters that may stand at once, together."},
      {kLimits, "waiters_max", Kind::kCount, FIELD(limits.waiters_max), 1, 100 * kMillion, nullptr,
       "Requests that may wait at once."},
      {kLimits, "waiters_per_semaphore_max", Kind::kCount, FIELD(limits.waiters_per_semaphore_max),
       1, 100 * kMillion, nullptr,
       "Requests that may wait for one semaphore, unless its own waiters_max says otherwise."},
      {kLimits, "sessions_max", Kind::kCount, FIELD(limits.sessions_max), 1, 10 * kMillion, nullptr,
       "Sessions that may be open at once."},
      {kLimits, "backfill_depth", Kind::kCount, FIELD(limits.backfill_depth), 1, kMillion, nullptr,
       "How far behind a large waiter backfill looks for a smaller one that fits."},
  };
}

std::vector<Setting> RequestLimits() {
  return {
      {kLimits, "limit_max", Kind::kCount, FIELD(limit_max), 1, 10 * kMillion, nullptr,
       "The highest limit that a semaphore may have.", kReloadable},
      {kLimits, "permits_per_request_max", Kind::kCount, FIELD(permits_per_request_max), 1,
       10 * kMillion, nullptr, "Permits that one request may ask for.", kReloadable},
      {kLimits, "name_bytes_max", Kind::kCount, FIELD(name_bytes_max), 1, 255, nullptr,
       "Length of a semaphore's name."},
      {kLimits, "holder_bytes_max", Kind::kCount, FIELD(holder_bytes_max), 1, 256, nullptr,
       "Length of a holder's text."},
      {kLimits, "rows_max", Kind::kCount, FIELD(rows_max), 1, 100'000, nullptr,
       "Rows in one answer to list, history, describe and the lists of tickets."},
      {kLimits, "calls_max", Kind::kCount, FIELD(calls_max), 1, 10 * kMillion, nullptr,
       "Calls of one answer (Acquire, Release, Administer …) at once; those that wait count.",
       kReloadable},
      {kLimits, "streams_max", Kind::kCount, FIELD(streams_max), 1, kMillion, nullptr,
       "Streams (Hold, Session, Watch, Work) at once.", kReloadable},
      {kLimits, "watch_events_max", Kind::kCount, FIELD(watch_events_max), 1, kMillion, nullptr,
       "Events that may wait for a reader of Watch. One that is further behind receives "
       "SLOW_READER.",
       kReloadable},
      {kLimits, "commands_per_message_max", Kind::kCount, FIELD(commands_per_message_max), 1,
       100'000, nullptr, "Commands in one message of a session.", kReloadable},
      {kLimits, "message_bytes_max", Kind::kCount, FIELD(message_bytes_max), 64 << 10, 256 << 20,
       nullptr, "Length of one message, in bytes."},
  };
}

std::vector<Setting> WireLimits() {
  return {
      {kLimits, "connections_max", Kind::kCount, FIELD(connections_max), 16, 10 * kMillion, nullptr,
       "Connections at once; another one is closed as it comes. Less, if the process may not open "
       "so many files."},
      {kLimits, "connection_calls_max", Kind::kCount, FIELD(connection_calls_max), 1, kMillion,
       nullptr, "Calls and streams at once on one connection; others wait at the client."},
      {kLimits, "handshake_timeout", Kind::kDuration, FIELD(handshake_timeout_ms), 100,
       10 * kMinute, nullptr,
       "A new connection on which no HTTP/2 is spoken after so long is closed."},
      {kLimits, "connections_bytes_max", Kind::kCount, FIELD(connections_bytes_max), 16 << 20,
       int64_t{1} << 40, nullptr,
       "Memory for connections and calls, requests half received among them, in bytes. Near it "
       "less is read at a time, and calls are cut off."},
      {kLimits, "stream_bytes_max", Kind::kCount, FIELD(stream_bytes_max), kMillion,
       int64_t{1} << 40, nullptr,
       "Bytes that may wait for the reader of one stream. One that is further behind receives "
       "SLOW_READER. A worker's tickets at once have to fit."},
      {kLimits, "answers_bytes_max", Kind::kCount, FIELD(answers_bytes_max), kMillion,
       int64_t{1} << 40, nullptr,
       "Bytes of answers that their clients have not read yet, all together. Beyond it the "
       "connection that leaves most "
       "unread loses its calls."},
  };
}

std::vector<Setting> Tickets() {
  return {
      {kTickets, "tickets_max", Kind::kCount, FIELD(limits.tickets_max), 1, 100 * kMillion, nullptr,
       "Tickets that may be kept at once, dead letters included."},
      {kTickets, "tickets_per_semaphore_max", Kind::kCount, FIELD(limits.tickets_per_semaphore_max),
       1, 100 * kMillion, nullptr, "Tickets of one semaphore, without dead letters."},
      {kTickets, "dead_letters_per_semaphore_max", Kind::kCount,
       FIELD(limits.dead_letters_per_semaphore_max), 1, 10 * kMillion, nullptr,
       "A semaphore with so many dead letters takes in no ticket, until some are requeued or "
       "purged."},
      {kTickets, "payload_bytes_max", Kind::kCount, FIELD(limits.payload_bytes_max), 0, 1 << 20,
       nullptr, "Length of a ticket's payload, in bytes."},
      {kTickets, "payload_bytes_per_semaphore_max", Kind::kCount,
       FIELD(limits.payload_bytes_per_semaphore_max), 0, int64_t{1} << 40, nullptr,
       "Bytes of the payloads of one semaphore's tickets, dead letters included. A ticket that "
       "would "
       "exceed it is refused."},
      {kTickets, "payload_bytes_total_max", Kind::kCount, FIELD(limits.payload_bytes_total_max), 0,
       int64_t{1} << 40, nullptr,
       "Bytes of the payloads of all tickets, dead letters included. On an engine that daemons "
       "share "
       "each lane of a daemon counts those of the semaphores that it has loaded."},
      {kTickets, "ticket_attempts_default", Kind::kCount, FIELD(ticket_attempts_default), 1, 1000,
       nullptr,
       "Attempts after which a ticket that names no number of its own becomes a dead letter.",
       kReloadable},
      {kTickets, "work_sweep", Kind::kDuration, FIELD(work_sweep_ms), 100, 10 * kMinute, nullptr,
       "How often it is looked under the prefixes of workers for tickets that came through other "
       "daemons."},
      {kTickets, "idle_destroy_after", Kind::kDuration, FIELD(idle_destroy_after_ms), 0, 366 * kDay,
       nullptr,
       "A semaphore that was made by its first use, and has had no holder, waiter or ticket for so "
       "long, is destroyed. "
       "0: never."},
  };
}

std::vector<Setting> Metrics() {
  return {
      {kMetrics, "metrics_listen", Kind::kText, FIELD(metrics_listen), 0, 256, nullptr,
       "Address at which Prometheus finds the metrics, by HTTP under /metrics: HOST:PORT or "
       "[HOST]:PORT, such as 127.0.0.1:7421. Every program that reaches it can read the "
       "semaphores' names. Empty: none."},
      {kMetrics, "metrics_semaphores_max", Kind::kCount, FIELD(metrics_semaphores_max), 1, 10'000,
       nullptr,
       "Semaphores that have metrics of their own; the others are summed. It bounds the time "
       "series."},
      {kMetrics, "metrics_list_interval", Kind::kDuration, FIELD(metrics_list_interval_ms), 0, kDay,
       nullptr,
       "A scrape asks the engine at most so often for its semaphores, which tells limits, tickets "
       "and what other daemons have. 0: never."},
      {kMetrics, "otlp_endpoint", Kind::kText, FIELD(otlp_endpoint), 0, 1024, nullptr,
       "Collector of OpenTelemetry that gets a span for each wait and each hold, by OTLP over HTTP "
       "in JSON: http://HOST:PORT or https://HOST:PORT, such as http://127.0.0.1:4318; /v1/traces "
       "is "
       "added. It learns the semaphores' names and holders. Empty: none."},
  };
}

std::vector<Setting> EngineAndProcess() {
  return {
      {kEngine, "lanes", Kind::kCount, FIELD(lanes), 0, 64, nullptr,
       "Connections to the engine that carry commands, each with a thread. 0, or more than the "
       "engine can use: as many "
       "as make sense for it."},
      {kEngine, "batch_max", Kind::kCount, FIELD(batch_max), 1, 65'536, nullptr,
       "Commands in one commit."},
      {kEngine, "engine_timeout", Kind::kDuration, FIELD(engine_timeout_ms), 100, 5 * kMinute,
       nullptr, "How long the engine may take for one batch."},
      {kEngine, "sweep_interval", Kind::kDuration, FIELD(sweep_interval_ms), 100, 10 * kMinute,
       nullptr,
       "How often everything that is waited for is looked at again, in case a push was lost."},
      {kProcess, "shutdown_grace", Kind::kDuration, FIELD(shutdown_grace_ms), 0, 10 * kMinute,
       nullptr, "After SIGTERM, how long what is under way may take to end.", kReloadable},
      {kProcess, "log_level", Kind::kChoice, FIELD(log_level), 0, 0,
       "trace, debug, info, warn, error, off", "What is logged.", kReloadable},
      {kProcess, "log_format", Kind::kChoice, FIELD(log_format), 0, 0, "text, json",
       "Lines for people, or one JSON object a line."},
      {kProcess, "log_file", Kind::kText, FIELD(log_file), 0, 4096, nullptr,
       "File that the log is appended to; opened again at SIGHUP. Its folder must be there. Empty: "
       "stderr."},
  };
}

#undef FIELD

}  // namespace

const std::vector<Setting>& AllSettings() {
  static const std::vector<Setting> settings = [] {
    std::vector<Setting> all;
    for (auto* group : {Where, Liveness, Requests, SharedLimits, RequestLimits, WireLimits, Tickets,
                        Metrics, EngineAndProcess}) {
      const std::vector<Setting> rows = group();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }();
  return settings;
}

}  // namespace semaphored
