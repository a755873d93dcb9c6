#include "adapters/postgres/statements.h"

#include "absl/strings/str_replace.h"
#include "adapters/postgres/commit_rows.h"
#include "adapters/postgres/schema.h"

namespace semaphored::postgres {
namespace {

// ---- what a store asks, beside commit_1 ----

// One statement, so one snapshot: rows of several kinds. s: a semaphore; l: a slot of a lease; w: a
// waiter; o: an offer; n: a session that they speak of.
constexpr char kLoadClaims[] = R"sql(
  WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::bigint[]) AS wanted(name, known)),
  l AS MATERIALIZED (
    SELECT l.* FROM wanted, LATERAL (
      SELECT * FROM semaphored.leases o WHERE o.semaphore = wanted.name AND o.completed_at IS NULL AND o.timed_out_at IS NULL
      OFFSET 0) AS l),
  w AS MATERIALIZED (
    SELECT w.* FROM wanted, LATERAL (SELECT * FROM semaphored.waiters o WHERE o.semaphore = wanted.name OFFSET 0) AS w)
  SELECT 's', s.name, NULL::uuid, NULL::uuid, NULL::uuid, s.intentions, '',
         ARRAY[s.permits, s.backfill::int, s.longest_hold_ms, s.recall_grace_ms, s.permits_per_holder, s.waiters_max,
               s.paused::int, s.destroying::int, s.next_order, s.revision, (extract(epoch FROM s.created_at) * 1000)::bigint,
               s.made_on_use::int], s.owner, ''
    FROM wanted, LATERAL (SELECT * FROM semaphored.semaphores o WHERE o.name = wanted.name OFFSET 0) AS s
  UNION ALL
  SELECT 'l', l.semaphore, l.claim, l.session, l.fingerprint, l.client_id, l.holder,
         ARRAY[l.slot, CASE l.kind WHEN 's' THEN 1 ELSE 0 END, l.token, l.sequence, l.node, l.incarnation, l.epoch,
               l.ttl_ms, l.priority, l.queue_order, l.recall_reason, l.recall_grace_ms,
               (extract(epoch FROM l.created_at) * 1000)::bigint, l.moved_from], l.owner, ''
    FROM l
  UNION ALL
  SELECT CASE WHEN w.works THEN 'o' ELSE 'w' END, w.semaphore, w.claim, w.session, w.fingerprint, w.client_id, w.holder,
         ARRAY[w.queue_order, w.priority, w.permits, w.sequence, w.node, w.incarnation, w.epoch, w.ttl_ms,
               (extract(epoch FROM w.queued_at) * 1000)::bigint], w.owner, ''
    FROM w
  UNION ALL
  SELECT 'n', '', s.id, s.id, NULL, s.client_id, s.holder,
         ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int, s.closing::int], s.owner, ''
    FROM (SELECT l.session FROM l WHERE l.session <> l.claim UNION SELECT w.session FROM w WHERE w.session <> w.claim) AS x
    , LATERAL (SELECT * FROM semaphored.sessions o WHERE o.id = x.session OFFSET 0) AS s)sql";

// … t: a ticket that has changed since the revision that is known, 0: all; k: where one is known,
// the places of all tickets that there are.
constexpr char kLoadTickets[] = R"sql(
  UNION ALL
  SELECT 't', t.semaphore, t.ticket, t.lease, NULL, t.content_type, t.trace,
         ARRAY[t.queue_order, t.priority, t.state, t.attempt, t.delay_ms, t.delays, t.node, t.incarnation, t.max_attempts,
               t.back_off_initial_ms, t.back_off_percent, t.back_off_max_ms, t.payload_bytes,
               (extract(epoch FROM t.enqueued_at) * 1000)::bigint],
         t.owner, CASE WHEN t.reasons = '[]' THEN '' ELSE t.reasons::text END
    FROM wanted, LATERAL (
      SELECT * FROM semaphored.tickets o WHERE o.semaphore = wanted.name AND o.changed > wanted.known OFFSET 0) AS t
  UNION ALL
  SELECT 'k', wanted.name, NULL, NULL, NULL, '', '',
         ARRAY(SELECT o.queue_order FROM semaphored.tickets o WHERE o.semaphore = wanted.name), '', ''
    FROM wanted WHERE wanted.known > 0)sql";

// … c: how many tickets there are in each state, from 1 on.
constexpr char kLookTickets[] = R"sql(
  UNION ALL
  SELECT 'c', wanted.name, NULL, NULL, NULL, '', '', c.counts, '', ''
    FROM wanted, LATERAL (
      SELECT ARRAY[count(*) FILTER (WHERE o.state = 1), count(*) FILTER (WHERE o.state = 2),
                   count(*) FILTER (WHERE o.state = 3), count(*) FILTER (WHERE o.state = 4)] AS counts
        FROM semaphored.tickets o WHERE o.semaphore = wanted.name OFFSET 0) AS c)sql";

// As hexadecimal text, in the order in which they are asked for; NULL: it is not there.
constexpr char kPayloads[] = R"sql(
  SELECT encode(p.payload, 'hex') FROM unnest($1::uuid[]) WITH ORDINALITY AS q(ticket, place)
    LEFT JOIN LATERAL (SELECT o.payload FROM semaphored.payloads o WHERE o.ticket = q.ticket OFFSET 0) AS p ON true
    ORDER BY q.place)sql";

constexpr char kChanged[] = R"sql(
  SELECT t.name FROM unnest($1::text[], $2::bigint[]) AS t(name, revision)
    LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
    WHERE COALESCE(s.revision, 0) <> t.revision)sql";

// By two: a commit raises it by one, so that it is seen which of the two it was, also when this
// answer is lost. A promoted server may lack the last commits: there the number is used up as well.
constexpr char kSettle[] = R"sql(
  UPDATE semaphored.lanes SET commits = $4::bigint + 2
    WHERE node = $1 AND incarnation = $2 AND lane = $3 AND commits <= $4::bigint AND alive RETURNING commits)sql";

constexpr char kGiven[] = R"sql(
  SELECT commits, alive FROM semaphored.lanes WHERE node = $1 AND incarnation = $2 AND lane = $3)sql";

// Rows stay when leases end. Each claim with the lowest of its slots: there it stands still; or where others of its slots stand; or
// in the semaphore's history. A claim that is in none of them is left out.
constexpr char kTokens[] = R"sql(
  SELECT t.claim, x.token FROM unnest($1::text[], $2::uuid[], $3::integer[]) AS t(semaphore, claim, slot),
    LATERAL (
      (SELECT o.token FROM semaphored.leases o WHERE o.semaphore = t.semaphore AND o.slot = t.slot AND o.claim = t.claim
         AND o.completed_at IS NULL AND o.timed_out_at IS NULL)
      UNION ALL
      (SELECT o.token FROM semaphored.leases o WHERE o.semaphore = t.semaphore AND o.claim = t.claim
         AND o.completed_at IS NULL AND o.timed_out_at IS NULL LIMIT 1)
      UNION ALL
      (SELECT o.token FROM semaphored.leases o WHERE o.semaphore = t.semaphore AND o.claim = t.claim
         AND o.history_number IS NOT NULL ORDER BY o.history_number DESC LIMIT 1)
      LIMIT 1) AS x)sql";

constexpr char kLock[] = R"sql(
  SELECT count(*) FROM (SELECT 1 FROM semaphored.semaphores s WHERE s.name = ANY ($1::text[]) ORDER BY s.name FOR NO KEY UPDATE) AS x)sql";

constexpr char kBusy[] = R"sql(
  SELECT s.name FROM semaphored.semaphores s WHERE s.name = ANY ($1::text[]) AND s.name NOT IN (
    SELECT o.name FROM semaphored.semaphores o WHERE o.name = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED))sql";

// Row and floor of one snapshot. The last column: there is no row, and one may have been forgotten.
constexpr char kRequests[] = R"sql(
  SELECT r.state, r.fingerprint, r.semaphore, r.claim, r.cause, r.number, r.remaining, r.changed,
         r.state IS NULL AND (
           EXISTS (SELECT 1 FROM semaphored.clients c WHERE c.client_id = q.client_id AND c.floor > q.sequence)
           OR EXISTS (SELECT 1 FROM semaphored.requests h WHERE h.client_id = q.client_id
                        AND h.sequence >= least(q.sequence, 9223372036854775807 - $3::bigint) + $3::bigint))
    FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS q(client_id, sequence, place)
    LEFT JOIN LATERAL (
      SELECT * FROM semaphored.requests o WHERE o.client_id = q.client_id AND o.sequence = q.sequence OFFSET 0) AS r ON true
    ORDER BY q.place)sql";

constexpr char kSession[] = R"sql(
  SELECT s.id, s.client_id, s.holder, ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int, s.closing::int], s.owner
    FROM semaphored.sessions s WHERE s.id = $1::uuid)sql";

constexpr char kSessionSemaphores[] = R"sql(
  SELECT semaphore FROM semaphored.leases WHERE session = $1::uuid AND session <> claim AND completed_at IS NULL
      AND timed_out_at IS NULL
  UNION SELECT semaphore FROM semaphored.waiters WHERE session = $1::uuid AND session <> claim)sql";

// Before what hangs on dead daemons is read: they can write nothing from here on.
constexpr char kEndLanes[] = R"sql(
  UPDATE semaphored.lanes l SET alive = false FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    WHERE l.node = d.node AND l.incarnation <= d.incarnation AND l.alive)sql";

// A page of sessions, above an id.
constexpr char kHostedSessions[] = R"sql(
  SELECT s.id, s.client_id, s.holder, ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int, s.closing::int], s.owner
    FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation), LATERAL (
      SELECT * FROM semaphored.sessions o WHERE o.node = d.node AND (o.node, o.id) > (d.node, $3::uuid)
          AND o.incarnation <= d.incarnation
        ORDER BY o.id LIMIT $4) AS s
    ORDER BY s.id LIMIT $4)sql";

// The semaphores of these sessions.
constexpr char kHeldBySessions[] = R"sql(
  SELECT l.semaphore FROM unnest($1::uuid[]) AS s(id), LATERAL (
      SELECT o.semaphore FROM semaphored.leases o WHERE o.session = s.id AND o.session <> o.claim AND o.completed_at IS NULL
        AND o.timed_out_at IS NULL OFFSET 0) AS l
  UNION
  SELECT w.semaphore FROM unnest($1::uuid[]) AS s(id), LATERAL (
      SELECT o.semaphore FROM semaphored.waiters o WHERE o.session = s.id AND o.session <> o.claim OFFSET 0) AS w)sql";

// Semaphores with detached claims, and with delayed tickets, of these nodes. No index leads from a node to them, which each grant would
// pay for: a page of what stands is walked along, from a row on. Where there is more, one answer has the page's last row.
constexpr char kHostedLeases[] = R"sql(
  WITH walked AS MATERIALIZED (
    SELECT o.semaphore, o.slot, o.session = o.claim AS detached, o.node, o.incarnation FROM semaphored.leases o
      WHERE (o.semaphore, o.slot) > ($3, $4::integer) AND o.completed_at IS NULL AND o.timed_out_at IS NULL
      ORDER BY o.semaphore, o.slot LIMIT $5::integer)
  SELECT DISTINCT w.semaphore, NULL::bigint FROM walked w JOIN unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    ON w.node = d.node AND w.incarnation <= d.incarnation WHERE w.detached
  UNION ALL
  SELECT last.semaphore, last.slot FROM (SELECT semaphore, slot FROM walked OFFSET $5::integer - 1) AS last)sql";

constexpr char kHostedWaiters[] = R"sql(
  WITH walked AS MATERIALIZED (
    SELECT o.semaphore, o.queue_order, o.session = o.claim AS detached, o.node, o.incarnation FROM semaphored.waiters o
      WHERE (o.semaphore, o.queue_order) > ($3, $4::bigint) ORDER BY o.semaphore, o.queue_order LIMIT $5::integer)
  SELECT DISTINCT w.semaphore, NULL::bigint FROM walked w JOIN unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    ON w.node = d.node AND w.incarnation <= d.incarnation WHERE w.detached
  UNION ALL
  SELECT last.semaphore, last.queue_order FROM (SELECT semaphore, queue_order FROM walked OFFSET $5::integer - 1) AS last)sql";

constexpr char kHostedTickets[] = R"sql(
  SELECT DISTINCT t.semaphore FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation), LATERAL (
    SELECT o.semaphore FROM semaphored.tickets o WHERE o.node = d.node AND o.incarnation <= d.incarnation AND o.delay_ms > 0
    OFFSET 0) AS t)sql";

// Between two bounds, so that the index leads to the first and the last of a prefix. (No name has a byte above '~'.)
constexpr char kNames[] = R"sql(
  SELECT name FROM semaphored.semaphores
    WHERE name > $1 COLLATE "C" AND name >= $2 COLLATE "C" AND name < ($2 || chr(127)) COLLATE "C" ORDER BY name LIMIT $3)sql";

// Of all semaphores, and of one: each along an index of its own, from the newest below a number on.
constexpr char kHistoryOfAll[] = R"sql(
      SELECT DISTINCT h.history_number FROM semaphored.leases h
        WHERE h.history_number < $1::bigint ORDER BY h.history_number DESC LIMIT $2)sql";
constexpr char kHistoryOfOne[] = R"sql(
      SELECT DISTINCT h.history_number FROM semaphored.leases h
        WHERE h.semaphore = $3 AND h.history_number < $1::bigint ORDER BY h.history_number DESC LIMIT $2)sql";
constexpr char kHistoryOf[] = R"sql(
  WITH numbers AS MATERIALIZED ($numbers$)
  SELECT l.history_number, min(l.semaphore), min(l.claim::text), min(l.session::text), min(l.client_id), min(l.holder),
         array_agg(l.slot ORDER BY l.slot),
         ARRAY[min(l.token), min(l.sequence), min(l.node), min(l.incarnation), min(l.epoch), min(l.ttl_ms),
               min(l.priority), min(l.queue_order), (extract(epoch FROM min(l.created_at)) * 1000)::bigint,
               (extract(epoch FROM min(COALESCE(l.completed_at, l.timed_out_at))) * 1000)::bigint, min(l.end_cause),
               CASE min(l.kind::text) WHEN 's' THEN 1 ELSE 0 END]
    FROM numbers n, LATERAL (SELECT * FROM semaphored.leases o WHERE o.history_number = n.history_number OFFSET 0) AS l
    GROUP BY l.history_number ORDER BY l.history_number DESC)sql";

constexpr char kEndForeign[] =
    "SELECT sum(semaphored.time_out(name)) FROM unnest($1::text[]) AS name";

// The secret, the epoch, or 0 if nothing is withheld, and the longest time-to-live that is known
// of. (Of leases that have ended too, whenever that was: what clocks say is not believed here.)
constexpr char kWithheld[] = R"sql(
  SELECT CASE WHEN withheld THEN epoch ELSE 0 END,
         CASE WHEN withheld THEN greatest(withheld_ms, COALESCE((
             SELECT max(ttl_ms) FROM semaphored.leases WHERE kind = 'd' OR (completed_at IS NULL AND timed_out_at IS NULL)), 0),
           COALESCE((SELECT max(ttl_ms) FROM semaphored.sessions), 0),
           COALESCE((SELECT max(ttl_ms) FROM semaphored.waiters), 0)) ELSE 0 END,
         secret
    FROM semaphored.store)sql";

constexpr char kWithheldOver[] =
    "UPDATE semaphored.store SET withheld = false WHERE withheld AND epoch = $1";

// A small batch of what need not be kept: history by number and by age.
constexpr char kPrune[] = R"sql(
  WITH oldest AS MATERIALIZED (
    SELECT l.ctid AS place, l.history_number, COALESCE(l.completed_at, l.timed_out_at) AS ended_at FROM semaphored.leases l
      WHERE l.history_number >= $3::bigint ORDER BY l.history_number LIMIT 1000),
  old AS MATERIALIZED (
    SELECT o.place, o.history_number FROM oldest o, semaphored.history_numbers n
      WHERE o.history_number <= n.last_value - $1::bigint OR o.ended_at < now() - $2::bigint * interval '1 millisecond'),
  pruned AS (DELETE FROM semaphored.leases l USING old WHERE l.ctid = old.place RETURNING l.history_number)
  SELECT count(*), max(history_number) FROM pruned)sql";

// Slots that were given back while the rest of their lease stayed: no end of a lease, no history.
constexpr char kPruneParts[] = R"sql(
  DELETE FROM semaphored.leases WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM semaphored.leases WHERE history_number IS NULL AND completed_at IS NOT NULL LIMIT 500)))sql";

constexpr char kEndedLives[] =
    "SELECT node, incarnation FROM semaphored.lanes GROUP BY node, incarnation HAVING NOT "
    "bool_or(alive)";

// Rows below their clients' floors whose claims have ended since the floor rose: some of them, along
// the index from a place on. Answers with the last place; without one, at the end.
constexpr char kPruneEnded[] = R"sql(
  WITH walked AS MATERIALIZED (
    SELECT r.ctid AS place, r.client_id, r.sequence, r.state FROM semaphored.requests r
      WHERE (r.client_id, r.sequence) > ($1, $2::bigint) ORDER BY r.client_id, r.sequence LIMIT 500),
  pruned AS (
    DELETE FROM semaphored.requests r
      USING walked w, LATERAL (SELECT 1 FROM semaphored.clients c WHERE c.client_id = w.client_id AND c.floor > w.sequence OFFSET 0) AS f
      WHERE r.ctid = w.place AND w.state NOT IN (1, 2))
  SELECT client_id, sequence FROM walked OFFSET 499)sql";

// Of lives that have ended, of some pages; an index would cost every commit more. What is pinned
// stays. Of a client that others still know, what goes is below its floor from now on: it is not done
// again. Says how many pages there are.
constexpr char kPruneRequests[] = R"sql(
  WITH dead AS MATERIALIZED (SELECT * FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation)),
  pruned AS (
    DELETE FROM semaphored.requests r WHERE r.ctid >= $3::tid AND r.ctid < $4::tid AND r.state NOT IN (1, 2)
      AND EXISTS (SELECT 1 FROM dead d WHERE r.node = d.node AND r.incarnation = d.incarnation)
      RETURNING r.client_id, r.sequence),
  highest AS (SELECT p.client_id, max(p.sequence) AS sequence FROM pruned p GROUP BY p.client_id),
  raised AS (
    INSERT INTO semaphored.clients AS c (client_id, floor)
      SELECT h.client_id, h.sequence + 1 FROM highest h
        WHERE EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = h.client_id AND (r.state IN (1, 2)
                        OR NOT EXISTS (SELECT 1 FROM dead d WHERE r.node = d.node AND r.incarnation = d.incarnation)))
        ORDER BY h.client_id
      ON CONFLICT (client_id) DO UPDATE SET floor = greatest(c.floor, excluded.floor))
  SELECT pg_relation_size('semaphored.requests') / current_setting('block_size')::bigint)sql";

constexpr char kDropLives[] = R"sql(
  DELETE FROM semaphored.lanes l USING unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    WHERE l.node = d.node AND l.incarnation = d.incarnation AND NOT l.alive)sql";

// Floors of clients of whom nothing else is remembered: some clients, along the index from one on. Answers with the last of them;
// without one, at the end.
constexpr char kPruneClients[] = R"sql(
  WITH walked AS MATERIALIZED (
    SELECT c.ctid AS place, c.client_id FROM semaphored.clients c WHERE c.client_id > $1 COLLATE "C" ORDER BY c.client_id LIMIT 500),
  pruned AS (
    DELETE FROM semaphored.clients c USING walked w WHERE c.ctid = w.place AND c.client_id = w.client_id
      AND NOT EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = w.client_id))
  SELECT client_id FROM walked OFFSET 499)sql";

// A daemon that is dead and of whom nothing is left. If it comes back it gets another number.
constexpr char kDropNodes[] = R"sql(
  DELETE FROM semaphored.nodes n WHERE n.number = ANY ($1::integer[]) AND n.dead
    AND NOT EXISTS (SELECT 1 FROM semaphored.lanes l WHERE l.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.sessions s WHERE s.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.waiters w WHERE w.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.leases l WHERE l.node = n.number AND l.completed_at IS NULL AND l.timed_out_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM semaphored.tickets t WHERE t.node = n.number AND t.delay_ms > 0))sql";

// From the lowest to the highest number: what else may be missing between them has been pruned, too.
constexpr char kHistorySpan[] = R"sql(
  SELECT COALESCE((SELECT l.history_number FROM semaphored.leases l WHERE l.history_number IS NOT NULL
                     ORDER BY l.history_number DESC LIMIT 1)
                - (SELECT l.history_number FROM semaphored.leases l WHERE l.history_number IS NOT NULL
                     ORDER BY l.history_number LIMIT 1) + 1, 0))sql";

// The transaction from which on the server keeps versions of rows, for the sake of another connection.
constexpr char kOldestSnapshot[] = R"sql(
  SELECT x.oldest::text FROM (
    SELECT backend_xmin FROM pg_stat_activity WHERE pid <> pg_backend_pid()
    UNION ALL SELECT backend_xid FROM pg_stat_activity WHERE pid <> pg_backend_pid()
    UNION ALL SELECT xmin FROM pg_replication_slots
    UNION ALL SELECT transaction FROM pg_prepared_xacts) AS x(oldest)
    WHERE x.oldest IS NOT NULL ORDER BY age(x.oldest) DESC LIMIT 1)sql";

// ---- lanes and nodes ----

// The row of the node is locked for as long as it takes: its end waits for this lane, or this lane sees its end.
constexpr char kOpenLane[] = R"sql(
  WITH n AS (SELECT number, incarnation FROM semaphored.nodes WHERE number = $1 AND incarnation = $2 AND NOT dead FOR SHARE)
  INSERT INTO semaphored.lanes AS l (node, incarnation, lane) SELECT number, incarnation, $3 FROM n
    ON CONFLICT (node, incarnation, lane) DO UPDATE SET commits = l.commits RETURNING commits)sql";

// Locks in one order everywhere: the node's row, then its lanes'. Taking a node over, or declaring
// it dead, waits for its commits that are under way; those that come later find their lane ended.
constexpr char kJoin[] = R"sql(
  WITH joined AS (
    INSERT INTO semaphored.nodes AS n (node_id, daemon) VALUES ($1, $2)
      ON CONFLICT (node_id) DO UPDATE SET incarnation = n.incarnation + 1, counter = n.counter + 1, dead = false,
        stopped = false, daemon = $2, started_at = now()
        WHERE $3::integer IS NULL OR (n.incarnation = $3 AND n.counter = $4)
      RETURNING number, incarnation, counter),
  ended AS (
    UPDATE semaphored.lanes l SET alive = false FROM joined j WHERE l.node = j.number AND l.alive RETURNING l.lane)
  SELECT number, incarnation, counter, (SELECT count(*) FROM ended) FROM joined)sql";

// A server that has a synchronous standby loses nothing at a fail-over; that is known only while it
// is seen.
constexpr char kHeartbeat[] = R"sql(
  UPDATE semaphored.nodes SET counter = $3::bigint + 1 WHERE number = $1 AND incarnation = $2 AND NOT dead
    AND counter <= $3
    RETURNING (current_setting('synchronous_standby_names') <> '') <> (SELECT synchronous FROM semaphored.store))sql";

constexpr char kSynchronous[] =
    "UPDATE semaphored.store SET synchronous = current_setting('synchronous_standby_names') <> ''";

constexpr char kLeave[] = R"sql(
  UPDATE semaphored.nodes SET stopped = true WHERE number = $1 AND incarnation = $2 AND NOT dead RETURNING number)sql";

constexpr char kObserve[] = R"sql(
  SELECT number, incarnation, node_id, counter, dead, stopped, daemon FROM semaphored.nodes ORDER BY number)sql";

constexpr char kDeclareDead[] = R"sql(
  WITH declared AS (
    UPDATE semaphored.nodes SET dead = true WHERE number = $1 AND incarnation = $2 AND counter = $3 AND NOT dead
      RETURNING number, incarnation),
  ended AS (
    UPDATE semaphored.lanes l SET alive = false FROM declared d WHERE l.node = d.number AND l.incarnation <= d.incarnation
      AND l.alive RETURNING l.lane)
  SELECT (SELECT count(*) FROM declared), (SELECT count(*) FROM ended))sql";

std::string HistorySql(const char* numbers) {
  return absl::StrReplaceAll(kHistoryOf, {{"$numbers$", numbers}});
}

}  // namespace

const Statement& Statements::Add(const char* name, const std::string& sql,
                                 const std::string& schema) {
  return all_.emplace_back(Statement(name, ForSchema(sql, schema)));
}

Statements::Statements(const std::string& schema)
    : commit(Add("commit", CommitSql(), schema)),
      load(Add("load", std::string(kLoadClaims) + kLoadTickets, schema)),
      look(Add("look", std::string(kLoadClaims) + kLookTickets, schema)),
      payloads(Add("payloads", kPayloads, schema)),
      changed(Add("changed", kChanged, schema)),
      settle(Add("settle", kSettle, schema)),
      given(Add("given", kGiven, schema)),
      tokens(Add("tokens", kTokens, schema)),
      lock(Add("lock", kLock, schema)),
      busy(Add("busy", kBusy, schema)),
      requests(Add("requests", kRequests, schema)),
      session(Add("session", kSession, schema)),
      session_semaphores(Add("session_semaphores", kSessionSemaphores, schema)),
      end_lanes(Add("end_lanes", kEndLanes, schema)),
      hosted_sessions(Add("hosted_sessions", kHostedSessions, schema)),
      held_by_sessions(Add("held_by_sessions", kHeldBySessions, schema)),
      hosted_leases(Add("hosted_leases", kHostedLeases, schema)),
      hosted_waiters(Add("hosted_waiters", kHostedWaiters, schema)),
      hosted_tickets(Add("hosted_tickets", kHostedTickets, schema)),
      names(Add("names", kNames, schema)),
      history(Add("history", HistorySql(kHistoryOfAll), schema)),
      history_of(Add("history_of", HistorySql(kHistoryOfOne), schema)),
      end_foreign(Add("end_foreign", kEndForeign, schema)),
      withheld(Add("withheld", kWithheld, schema)),
      withheld_over(Add("withheld_over", kWithheldOver, schema)),
      prune(Add("prune", kPrune, schema)),
      prune_parts(Add("prune_parts", kPruneParts, schema)),
      ended_lives(Add("ended_lives", kEndedLives, schema)),
      prune_ended(Add("prune_ended", kPruneEnded, schema)),
      prune_requests(Add("prune_requests", kPruneRequests, schema)),
      drop_lives(Add("drop_lives", kDropLives, schema)),
      prune_clients(Add("prune_clients", kPruneClients, schema)),
      drop_nodes(Add("drop_nodes", kDropNodes, schema)),
      history_span(Add("history_span", kHistorySpan, schema)),
      oldest_snapshot(Add("oldest_snapshot", kOldestSnapshot, schema)),
      open_lane(Add("open_lane", kOpenLane, schema)),
      join(Add("join", kJoin, schema)),
      heartbeat(Add("heartbeat", kHeartbeat, schema)),
      synchronous(Add("synchronous", kSynchronous, schema)),
      leave(Add("leave", kLeave, schema)),
      observe(Add("observe", kObserve, schema)),
      declare_dead(Add("declare_dead", kDeclareDead, schema)) {}

}  // namespace semaphored::postgres
