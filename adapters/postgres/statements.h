// What the store asks, beside commit_1. Written for the schema "semaphored"; see ForSchema.
#pragma once

#include <string>

#include "adapters/postgres/commit.h"
#include "adapters/postgres/schema.h"

namespace semaphored::postgres {

// One statement, so one snapshot: rows of several kinds. s: a semaphore; l: a slot of a lease; w: a
// waiter; o: an offer; n: a session that they speak of.
inline constexpr char kLoadClaims[] = R"sql(
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
         ARRAY[l.slot, CASE l.kind WHEN 's' THEN 1 ELSE 0 END, l.token, l.permits, l.sequence, l.node, l.incarnation, l.epoch,
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
inline constexpr char kLoadTickets[] = R"sql(
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
inline constexpr char kLookTickets[] = R"sql(
  UNION ALL
  SELECT 'c', wanted.name, NULL, NULL, NULL, '', '', c.counts, '', ''
    FROM wanted, LATERAL (
      SELECT ARRAY[count(*) FILTER (WHERE o.state = 1), count(*) FILTER (WHERE o.state = 2),
                   count(*) FILTER (WHERE o.state = 3), count(*) FILTER (WHERE o.state = 4)] AS counts
        FROM semaphored.tickets o WHERE o.semaphore = wanted.name OFFSET 0) AS c)sql";

// As hexadecimal text, in the order in which they are asked for; NULL: it is not there.
inline constexpr char kPayloads[] = R"sql(
  SELECT encode(p.payload, 'hex') FROM unnest($1::uuid[]) WITH ORDINALITY AS q(ticket, place)
    LEFT JOIN LATERAL (SELECT o.payload FROM semaphored.payloads o WHERE o.ticket = q.ticket OFFSET 0) AS p ON true
    ORDER BY q.place)sql";

inline constexpr char kChanged[] = R"sql(
  SELECT t.name FROM unnest($1::text[], $2::bigint[]) AS t(name, revision)
    LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
    WHERE COALESCE(s.revision, 0) <> t.revision)sql";

// By two: a commit raises it by one, so that it is seen which of the two it was, also when this
// answer is lost.
inline constexpr char kSettle[] = R"sql(
  UPDATE semaphored.lanes SET commits = commits + 2
    WHERE node = $1 AND incarnation = $2 AND lane = $3 AND commits = $4 AND alive RETURNING commits)sql";

inline constexpr char kGiven[] = R"sql(
  SELECT commits, alive FROM semaphored.lanes WHERE node = $1 AND incarnation = $2 AND lane = $3)sql";

// Rows stay when leases end. Asked only when an answer was lost, so it needs no index.
inline constexpr char kTokens[] = R"sql(
  SELECT DISTINCT claim, token FROM semaphored.leases WHERE claim = ANY ($1::uuid[]))sql";

inline constexpr char kLock[] = R"sql(
  SELECT count(*) FROM (SELECT 1 FROM semaphored.semaphores s WHERE s.name = ANY ($1::text[]) ORDER BY s.name FOR NO KEY UPDATE) AS x)sql";

inline constexpr char kBusy[] = R"sql(
  SELECT s.name FROM semaphored.semaphores s WHERE s.name = ANY ($1::text[]) AND s.name NOT IN (
    SELECT o.name FROM semaphored.semaphores o WHERE o.name = ANY ($1::text[]) FOR NO KEY UPDATE SKIP LOCKED))sql";

// Row and floor of one snapshot. The last column: there is no row, and one may have been forgotten.
inline constexpr char kRequests[] = R"sql(
  SELECT r.state, r.fingerprint, r.semaphore, r.claim, r.cause, r.number, r.remaining, r.changed,
         r.state IS NULL AND (
           EXISTS (SELECT 1 FROM semaphored.clients c WHERE c.client_id = q.client_id AND c.floor > q.sequence)
           OR EXISTS (SELECT 1 FROM semaphored.requests h WHERE h.client_id = q.client_id
                        AND h.sequence >= least(q.sequence, 9223372036854775807 - $3::bigint) + $3::bigint))
    FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS q(client_id, sequence, place)
    LEFT JOIN LATERAL (
      SELECT * FROM semaphored.requests o WHERE o.client_id = q.client_id AND o.sequence = q.sequence OFFSET 0) AS r ON true
    ORDER BY q.place)sql";

inline constexpr char kSession[] = R"sql(
  SELECT s.id, s.client_id, s.holder, ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int, s.closing::int], s.owner
    FROM semaphored.sessions s WHERE s.id = $1::uuid)sql";

inline constexpr char kSessionSemaphores[] = R"sql(
  SELECT semaphore FROM semaphored.leases WHERE session = $1::uuid AND session <> claim AND completed_at IS NULL
      AND timed_out_at IS NULL
  UNION SELECT semaphore FROM semaphored.waiters WHERE session = $1::uuid AND session <> claim)sql";

// Before what hangs on dead daemons is read: they can write nothing from here on.
inline constexpr char kEndLanes[] = R"sql(
  UPDATE semaphored.lanes l SET alive = false FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    WHERE l.node = d.node AND l.incarnation <= d.incarnation AND l.alive)sql";

inline constexpr char kHostedSessions[] = R"sql(
  SELECT s.id, s.client_id, s.holder, ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int, s.closing::int], s.owner
    FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    JOIN semaphored.sessions s ON s.node = d.node AND s.incarnation <= d.incarnation)sql";

inline constexpr char kHostedSemaphores[] = R"sql(
  WITH dead AS (SELECT * FROM unnest($1::integer[], $2::integer[]) AS d(node, incarnation)),
  gone AS MATERIALIZED (
    SELECT s.id FROM dead d JOIN semaphored.sessions s ON s.node = d.node AND s.incarnation <= d.incarnation)
  SELECT l.semaphore FROM semaphored.leases l JOIN gone ON l.session = gone.id
    WHERE l.session <> l.claim AND l.completed_at IS NULL AND l.timed_out_at IS NULL
  UNION
  SELECT w.semaphore FROM semaphored.waiters w JOIN gone ON w.session = gone.id WHERE w.session <> w.claim
  UNION
  SELECT l.semaphore FROM semaphored.leases l JOIN dead d ON l.node = d.node AND l.incarnation <= d.incarnation
    WHERE l.session = l.claim AND l.completed_at IS NULL AND l.timed_out_at IS NULL
  UNION
  SELECT w.semaphore FROM semaphored.waiters w JOIN dead d ON w.node = d.node AND w.incarnation <= d.incarnation
    WHERE w.session = w.claim
  UNION
  SELECT t.semaphore FROM semaphored.tickets t JOIN dead d ON t.node = d.node AND t.incarnation <= d.incarnation
    WHERE t.delay_ms > 0)sql";

inline constexpr char kNames[] = R"sql(
  SELECT name FROM semaphored.semaphores WHERE name > $1 COLLATE "C" AND starts_with(name, $2) ORDER BY name LIMIT $3)sql";

inline constexpr char kHistory[] = R"sql(
  SELECT l.history_number, min(l.semaphore), min(l.claim::text), min(l.session::text), min(l.client_id), min(l.holder),
         array_agg(l.slot ORDER BY l.slot),
         ARRAY[min(l.token), min(l.permits), min(l.sequence), min(l.node), min(l.incarnation), min(l.epoch), min(l.ttl_ms),
               min(l.priority), min(l.queue_order), (extract(epoch FROM min(l.created_at)) * 1000)::bigint,
               (extract(epoch FROM min(COALESCE(l.completed_at, l.timed_out_at))) * 1000)::bigint, min(l.end_cause),
               CASE min(l.kind::text) WHEN 's' THEN 1 ELSE 0 END]
    FROM semaphored.leases l
    WHERE l.history_number IN (
      SELECT DISTINCT h.history_number FROM semaphored.leases h
        WHERE h.history_number IS NOT NULL AND ($1 = '' OR h.semaphore = $1) AND ($2::bigint = 0 OR h.history_number < $2::bigint)
        ORDER BY h.history_number DESC LIMIT $3)
    GROUP BY l.history_number ORDER BY l.history_number DESC)sql";

inline constexpr char kEndForeign[] =
    "SELECT sum(semaphored.time_out(name)) FROM unnest($1::text[]) AS name";

// The secret, the epoch, or 0 if nothing is withheld, and the longest time-to-live that is known
// of. (Of leases that have ended too, whenever that was: what clocks say is not believed here.)
inline constexpr char kWithheld[] = R"sql(
  SELECT CASE WHEN withheld THEN epoch ELSE 0 END,
         CASE WHEN withheld THEN greatest(withheld_ms, COALESCE((
             SELECT max(ttl_ms) FROM semaphored.leases WHERE kind = 'd' OR (completed_at IS NULL AND timed_out_at IS NULL)), 0),
           COALESCE((SELECT max(ttl_ms) FROM semaphored.sessions), 0),
           COALESCE((SELECT max(ttl_ms) FROM semaphored.waiters), 0)) ELSE 0 END,
         secret
    FROM semaphored.store)sql";

inline constexpr char kWithheldOver[] =
    "UPDATE semaphored.store SET withheld = false WHERE withheld AND epoch = $1";

// A small batch of what need not be kept: history by number and by age.
inline constexpr char kPrune[] = R"sql(
  WITH oldest AS MATERIALIZED (
    SELECT l.ctid AS place, l.history_number, COALESCE(l.completed_at, l.timed_out_at) AS ended_at FROM semaphored.leases l
      WHERE l.history_number >= $3::bigint ORDER BY l.history_number LIMIT 1000),
  old AS MATERIALIZED (
    SELECT o.place, o.history_number FROM oldest o, semaphored.history_numbers n
      WHERE o.history_number <= n.last_value - $1::bigint OR o.ended_at < now() - $2::bigint * interval '1 millisecond'),
  pruned AS (DELETE FROM semaphored.leases l USING old WHERE l.ctid = old.place RETURNING l.history_number)
  SELECT count(*), max(history_number) FROM pruned)sql";

// Slots that were given back while the rest of their lease stayed: no end of a lease, no history.
inline constexpr char kPruneParts[] = R"sql(
  DELETE FROM semaphored.leases WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM semaphored.leases WHERE history_number IS NULL AND completed_at IS NOT NULL LIMIT 500)))sql";

inline constexpr char kEndedLives[] =
    "SELECT node, incarnation FROM semaphored.lanes GROUP BY node, incarnation HAVING NOT "
    "bool_or(alive)";

// Rows below their clients' floors whose claims have ended since the floor rose: some of them, along
// the index from a place on. Answers with the last place; without one, at the end.
inline constexpr char kPruneEnded[] = R"sql(
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
inline constexpr char kPruneRequests[] = R"sql(
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

inline constexpr char kDropLives[] = R"sql(
  DELETE FROM semaphored.lanes l USING unnest($1::integer[], $2::integer[]) AS d(node, incarnation)
    WHERE l.node = d.node AND l.incarnation = d.incarnation AND NOT l.alive)sql";

// Floors of clients of whom nothing else is remembered.
inline constexpr char kPruneClients[] = R"sql(
  DELETE FROM semaphored.clients c WHERE NOT EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = c.client_id))sql";

// A daemon that is dead and of whom nothing is left. If it comes back it gets another number.
inline constexpr char kDropNodes[] = R"sql(
  DELETE FROM semaphored.nodes n WHERE n.number = ANY ($1::integer[]) AND n.dead
    AND NOT EXISTS (SELECT 1 FROM semaphored.lanes l WHERE l.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.sessions s WHERE s.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.waiters w WHERE w.node = n.number)
    AND NOT EXISTS (SELECT 1 FROM semaphored.leases l WHERE l.node = n.number AND l.completed_at IS NULL AND l.timed_out_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM semaphored.tickets t WHERE t.node = n.number AND t.delay_ms > 0))sql";

// All of them for one schema.
struct Statements {
  explicit Statements(const std::string& schema)
      : commit(ForSchema(CommitSql(), schema)),
        load(ForSchema(std::string(kLoadClaims) + kLoadTickets, schema)),
        look(ForSchema(std::string(kLoadClaims) + kLookTickets, schema)),
        payloads(ForSchema(kPayloads, schema)),
        changed(ForSchema(kChanged, schema)),
        settle(ForSchema(kSettle, schema)),
        given(ForSchema(kGiven, schema)),
        tokens(ForSchema(kTokens, schema)),
        lock(ForSchema(kLock, schema)),
        busy(ForSchema(kBusy, schema)),
        requests(ForSchema(kRequests, schema)),
        session(ForSchema(kSession, schema)),
        session_semaphores(ForSchema(kSessionSemaphores, schema)),
        end_lanes(ForSchema(kEndLanes, schema)),
        hosted_sessions(ForSchema(kHostedSessions, schema)),
        hosted_semaphores(ForSchema(kHostedSemaphores, schema)),
        names(ForSchema(kNames, schema)),
        history(ForSchema(kHistory, schema)),
        end_foreign(ForSchema(kEndForeign, schema)),
        withheld(ForSchema(kWithheld, schema)),
        withheld_over(ForSchema(kWithheldOver, schema)),
        prune(ForSchema(kPrune, schema)),
        prune_parts(ForSchema(kPruneParts, schema)),
        ended_lives(ForSchema(kEndedLives, schema)),
        prune_ended(ForSchema(kPruneEnded, schema)),
        prune_requests(ForSchema(kPruneRequests, schema)),
        drop_lives(ForSchema(kDropLives, schema)),
        prune_clients(ForSchema(kPruneClients, schema)),
        drop_nodes(ForSchema(kDropNodes, schema)) {}
  std::string commit, load, look, payloads, changed, settle, given, tokens, lock, busy, requests,
      session, session_semaphores, end_lanes, hosted_sessions, hosted_semaphores, names, history,
      end_foreign, withheld, withheld_over, prune, prune_parts, ended_lives, prune_ended,
      prune_requests, drop_lives, prune_clients, drop_nodes;
};

}  // namespace semaphored::postgres
