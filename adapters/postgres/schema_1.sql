-- Version 1 of what semaphored keeps in Postgres. Run as the owner of the schema; no superuser is needed.
-- "semaphored" below stands for the schema that the store's URL names.
CREATE SCHEMA IF NOT EXISTS semaphored;

-- One row: which version this is, and what makes a fail-over safe to notice.
CREATE TABLE semaphored.store (
  only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version        integer NOT NULL,            -- Of this schema.
  oldest_daemon  integer NOT NULL,            -- Daemons that know an older version than this must not write.
  epoch          integer NOT NULL DEFAULT 0,  -- High bits of tokens: rises when commits may have been lost.
  withheld       boolean NOT NULL DEFAULT false,  -- No daemon has waited for one longest TTL yet since the epoch rose.
  withheld_ms    bigint NOT NULL DEFAULT 30000,   -- At least so long; longer if a longer time-to-live is known of.
  timeline       text NOT NULL DEFAULT '',    -- Of the server's log, as seen last.
  synchronous    boolean NOT NULL DEFAULT false,  -- A synchronous standby was configured when it was seen last.
  revision_floor bigint NOT NULL DEFAULT 0,   -- No semaphore that was destroyed had a higher revision.
  -- Daemons seal their change notices with it: any role may send notifications. For daemons' eyes only.
  secret         text NOT NULL DEFAULT encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex')
);

CREATE SEQUENCE semaphored.tokens;           -- Fencing tokens, over all semaphores.
CREATE SEQUENCE semaphored.history_numbers;  -- The order in which leases ended.

-- The daemons. The heartbeat raises the counter; a daemon that reads it unchanged for long enough sets dead.
CREATE TABLE semaphored.nodes (
  number      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id     text NOT NULL UNIQUE,
  incarnation integer NOT NULL DEFAULT 1,
  counter     bigint NOT NULL DEFAULT 0,
  dead        boolean NOT NULL DEFAULT false,
  stopped     boolean NOT NULL DEFAULT false,  -- The daemon has ended in order: its next life need not wait.
  daemon      text NOT NULL DEFAULT '',        -- JSON: which daemon it is, for people, and its lock file, for its next life.
  started_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

-- One row for each lane of each life of a daemon. Every commit raises its number from n to n + 1: so the outcome of a
-- commit whose answer was lost can be found out, a dead daemon can write nothing, and a daemon that moves a session away
-- waits for its old host's commits by locking these rows.
CREATE TABLE semaphored.lanes (
  node           integer NOT NULL,
  incarnation    integer NOT NULL,
  lane           integer NOT NULL,
  alive          boolean NOT NULL DEFAULT true,
  commits        bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (node, incarnation, lane)
) WITH (fillfactor = 20);

CREATE TABLE semaphored.semaphores (
  name               text COLLATE "C" PRIMARY KEY,
  permits            bigint NOT NULL CHECK (permits >= 0),  -- The limit.
  backfill           boolean NOT NULL DEFAULT false,
  longest_hold_ms    bigint NOT NULL DEFAULT 0,
  recall_grace_ms    bigint NOT NULL DEFAULT 30000,
  permits_per_holder bigint NOT NULL DEFAULT 0,
  waiters_max        bigint NOT NULL DEFAULT 0,
  paused             boolean NOT NULL DEFAULT false,
  destroying         boolean NOT NULL DEFAULT false,
  made_on_use        boolean NOT NULL DEFAULT false,  -- Its first use made it, and no administrator has changed it since.
  intentions         text NOT NULL DEFAULT '',  -- What acts that are larger than one commit still have to do here.
  next_order         bigint NOT NULL DEFAULT 1,
  revision           bigint NOT NULL,  -- Rises by one with each commit that touches the semaphore or its claims.
  created_at         timestamptz NOT NULL DEFAULT now(),
  owner              text NOT NULL DEFAULT ''  -- The identity that made it, as the access file names it; '': none.
) WITH (fillfactor = 50);

-- Slot rows: one for each slot that a lease takes, kept as history when it has ended. A lease has as many permits as it has rows that have
-- not ended; one that has ended had as many as there are rows with its history_number.
CREATE TABLE semaphored.leases (
  semaphore       text COLLATE "C" NOT NULL,
  slot            integer NOT NULL,         -- From 1.
  kind            "char" NOT NULL,  -- d: a daemon's; s: taken by claim(), from SQL.
  claim           uuid NOT NULL,            -- The lease; rows of one lease have the same.
  token           bigint NOT NULL,
  holder          text NOT NULL,
  owner           text NOT NULL DEFAULT '', -- The identity that asked for it, as the access file names it; '': none.
  session         uuid NOT NULL,            -- Equal to claim: detached; node, incarnation, epoch and ttl_ms are then its own.
  client_id       text COLLATE "C" NOT NULL DEFAULT '',
  sequence        bigint NOT NULL DEFAULT 0,
  fingerprint     uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',  -- As in requests; zeros: no request is remembered.
  node            integer NOT NULL,
  incarnation     integer NOT NULL,
  epoch           integer NOT NULL,
  ttl_ms          bigint NOT NULL,
  priority        integer NOT NULL,
  queue_order     bigint NOT NULL,
  recall_reason   smallint NOT NULL DEFAULT 0,
  recall_grace_ms bigint NOT NULL DEFAULT 0,
  -- The node that hosted the session from which the lease was moved, while that session may still count on it; 0: none.
  moved_from      integer NOT NULL DEFAULT 0,
  created_at      timestamptz NOT NULL,     -- When it was granted.
  completed_at    timestamptz,              -- When it was given back, revoked or recalled.
  timed_out_at    timestamptz,              -- When its time-out had run out.
  end_cause       smallint,                 -- 1 released, 2 expired, 3 revoked, 4 recalled, 5 destroyed, 6 disconnected, 7 unknown.
  history_number  bigint,                   -- Null too where only a part of a lease was given back.
  -- An end has a time and a cause. (A statement that knows only of the times, as in the recipe that this table is modelled
  -- on, is refused: it would end the leases of others.) One constraint, since the server compiles each one for every statement.
  CONSTRAINT ended_with_cause CHECK (
    slot >= 1 AND kind IN ('d', 's') AND (completed_at IS NULL OR timed_out_at IS NULL)
    AND (end_cause IS NULL) = (completed_at IS NULL AND timed_out_at IS NULL))
) WITH (fillfactor = 80);
-- The database itself refuses a slot twice.
CREATE UNIQUE INDEX one_lease_per_slot ON semaphored.leases (semaphore, slot)
  WHERE completed_at IS NULL AND timed_out_at IS NULL;
CREATE INDEX leases_of_session ON semaphored.leases (session)
  WHERE completed_at IS NULL AND timed_out_at IS NULL AND session <> claim;
CREATE INDEX leases_history ON semaphored.leases (history_number) WHERE history_number IS NOT NULL;
CREATE INDEX leases_history_of_semaphore ON semaphored.leases (semaphore, history_number) WHERE history_number IS NOT NULL;
-- Slots that were given back while the rest of their lease stayed.
CREATE INDEX leases_parts ON semaphored.leases (completed_at) WHERE history_number IS NULL AND completed_at IS NOT NULL;

-- Requests that wait for permits; and workers that wait for a ticket, which stand apart from the queue.
CREATE TABLE semaphored.waiters (
  semaphore   text COLLATE "C" NOT NULL,
  queue_order bigint NOT NULL,              -- First come, first served, among those of one priority.
  priority    integer NOT NULL,
  claim       uuid NOT NULL,
  permits     bigint NOT NULL,
  holder      text NOT NULL,
  owner       text NOT NULL DEFAULT '',
  session     uuid NOT NULL,
  client_id   text COLLATE "C" NOT NULL DEFAULT '',
  sequence    bigint NOT NULL DEFAULT 0,
  fingerprint uuid NOT NULL,
  node        integer NOT NULL,
  incarnation integer NOT NULL,
  epoch       integer NOT NULL,
  ttl_ms      bigint NOT NULL,
  queued_at   timestamptz NOT NULL,
  works       boolean NOT NULL,             -- A worker.
  CONSTRAINT one_waiter_per_place PRIMARY KEY (semaphore, queue_order)
);
CREATE INDEX waiters_of_session ON semaphored.waiters (session) WHERE session <> claim;

CREATE TABLE semaphored.sessions (
  id                    uuid PRIMARY KEY,
  node                  integer NOT NULL,   -- Who keeps it alive, in memory.
  incarnation           integer NOT NULL,
  epoch                 integer NOT NULL,   -- Rises each time that it moves.
  ttl_ms                bigint NOT NULL,
  client_id             text COLLATE "C" NOT NULL DEFAULT '',
  release_on_disconnect boolean NOT NULL DEFAULT false,
  closing               boolean NOT NULL DEFAULT false,  -- It has ended; the row stays until its last claim has.
  holder                text NOT NULL,
  owner                 text NOT NULL DEFAULT ''
);
CREATE INDEX sessions_of_node ON semaphored.sessions (node, id);

-- Requests that clients may repeat: the commit that queues one, grants it or carries it out inserts its row. While the claim waits
-- or stands the row is pinned: no pruning takes it. So the end of a claim is written here too: that is one more row in the page of a
-- row that is mostly still in memory, where an index that leads from a claim to its lease would cost every grant more.
-- A request with a one-shot id is that of a client of its own: chr(1) and the digits of the id, with the sequence number 0.
CREATE TABLE semaphored.requests (
  client_id   text COLLATE "C" NOT NULL,
  sequence    bigint NOT NULL,
  fingerprint uuid NOT NULL,                -- Of what was asked for.
  state       smallint NOT NULL CHECK (state BETWEEN 1 AND 5),  -- 1 waits, 2 granted, 3 its lease has ended, 4 its wait has, 5 done.
  semaphore   text COLLATE "C" NOT NULL,
  claim       uuid NOT NULL,                -- Of an enqueued ticket its id; zeros: none.
  cause       smallint NOT NULL,            -- How it ended, in states 3 and 4.
  number      bigint NOT NULL,              -- State 5: what was answered.
  remaining   bigint NOT NULL,
  changed     boolean NOT NULL,
  node        integer NOT NULL,             -- Who wrote the row last, and forgets it again: a lane of one life of a daemon,
  incarnation integer NOT NULL,             -- or, when that has ended, any other.
  lane        integer NOT NULL,
  CONSTRAINT accepted_once PRIMARY KEY (client_id, sequence)
) WITH (fillfactor = 50);  -- Every second row changes once, within its page: no index is written.
-- Requests of the client below this number have been forgotten, but for those that are pinned.
CREATE TABLE semaphored.clients (
  client_id text COLLATE "C" PRIMARY KEY,
  floor     bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE semaphored.tickets (
  semaphore             text COLLATE "C" NOT NULL,
  queue_order           bigint NOT NULL,        -- From the same counter as a waiter's; kept for life.
  priority              integer NOT NULL,
  ticket                uuid NOT NULL,
  state                 smallint NOT NULL CHECK (state BETWEEN 1 AND 4),  -- 1 queued, 2 delayed, 3 assigned, 4 dead.
  attempt               bigint NOT NULL,        -- Attempts begun.
  max_attempts          bigint NOT NULL,        -- 0: no bound.
  back_off_initial_ms   bigint NOT NULL,
  back_off_percent      bigint NOT NULL,
  back_off_max_ms       bigint NOT NULL,
  delay_ms              bigint NOT NULL,        -- More than 0: it is delayed.
  delays                bigint NOT NULL,        -- Delays begun.
  node                  integer NOT NULL,       -- Whose clock counts the delay.
  incarnation           integer NOT NULL,
  lease                 uuid,                   -- leases.claim, while it is assigned.
  content_type          text NOT NULL,
  payload_bytes         bigint NOT NULL,
  trace                 text NOT NULL,          -- W3C traceparent of the enqueueing client.
  owner                 text NOT NULL DEFAULT '',
  reasons               jsonb NOT NULL DEFAULT '[]',  -- Why attempts failed, the last ones: attempt, text, at (milliseconds since 1970).
  enqueued_at           timestamptz NOT NULL,
  changed               bigint NOT NULL,        -- The semaphore's revision by which the row became as it is.
  CONSTRAINT lease_while_assigned CHECK ((lease IS NOT NULL) = (state = 3)),
  CONSTRAINT delay_while_delayed CHECK ((delay_ms > 0) = (state = 2)),
  CONSTRAINT one_ticket_per_place PRIMARY KEY (semaphore, queue_order)
) WITH (fillfactor = 70);
-- What is in it does not change when a ticket is assigned: then no index is written.
CREATE INDEX tickets_delayed ON semaphored.tickets (node) WHERE delay_ms > 0;

-- Apart, so that what changes a ticket rewrites no payload; and not compressed: what is large is mostly compressed already, and time is
-- dearer than room for what soon goes again.
CREATE TABLE semaphored.payloads (
  ticket  uuid NOT NULL,
  payload bytea NOT NULL,
  CONSTRAINT one_payload_per_ticket PRIMARY KEY (ticket)
);
ALTER TABLE semaphored.payloads ALTER COLUMN payload SET STORAGE EXTERNAL;

-- ---- What a commit brings ----

-- For each kind of row a type, whose columns the struct of the same name in commit_rows.h describes in the same order. They are no rows
-- of tables: a column that a migration adds to a table must not change what the daemons that are at work send.
-- …_ms with a time: milliseconds since 1970.

-- A semaphore that is touched, and the revision that it must have.
CREATE TYPE semaphored.semaphore_touch AS (name text, revision bigint, next_order bigint);
-- One that must not exist. `passing`: it is destroyed by the same commit.
CREATE TYPE semaphored.semaphore_start AS (name text, next_order bigint, passing boolean);
CREATE TYPE semaphored.semaphore_row AS (
  name text, permits bigint, backfill boolean, longest_hold_ms bigint, recall_grace_ms bigint, permits_per_holder bigint,
  waiters_max bigint, paused boolean, destroying boolean, made_on_use boolean, intentions text, created_at_ms bigint, owner text);
-- Revision 0: none.
CREATE TYPE semaphored.semaphore_revision AS (name text, revision bigint);

CREATE TYPE semaphored.session_epoch AS (id uuid, epoch integer);
-- Epoch 0: none.
CREATE TYPE semaphored.session_before AS (id uuid, epoch integer, node integer, incarnation integer);
CREATE TYPE semaphored.session_row AS (
  id uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint, client_id text, release_on_disconnect boolean,
  closing boolean, holder text, owner text);

CREATE TYPE semaphored.request_key AS (client_id text, sequence bigint);
CREATE TYPE semaphored.request_row AS (
  client_id text, sequence bigint, fingerprint uuid, state smallint, semaphore text, claim uuid, cause smallint, number bigint,
  remaining bigint, changed boolean);
CREATE TYPE semaphored.request_change AS (client_id text, sequence bigint, state smallint, cause smallint);
CREATE TYPE semaphored.request_floor AS (client_id text, below bigint);

-- Slots that are given back, of a lease that stood before. ended_at_ms 0: now.
CREATE TYPE semaphored.lease_end AS (
  semaphore text, claim uuid, slots integer[], cause smallint, history boolean, ended_at_ms bigint);
-- What changes of a lease in place, in all of its live slots.
CREATE TYPE semaphored.lease_change AS (
  semaphore text, claim uuid, slots integer[], session uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint,
  recall_reason smallint, recall_grace_ms bigint, moved_from integer);
-- end_cause 0: it stands; else it has ended in this very commit.
CREATE TYPE semaphored.lease_grant AS (
  semaphore text, claim uuid, slots integer[], holder text, owner text, session uuid, client_id text, sequence bigint,
  fingerprint uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint, priority integer, queue_order bigint,
  recall_reason smallint, recall_grace_ms bigint, moved_from integer, created_at_ms bigint, end_cause smallint, ended_at_ms bigint);

CREATE TYPE semaphored.waiter_place AS (semaphore text, queue_order bigint);
CREATE TYPE semaphored.waiter_row AS (
  semaphore text, queue_order bigint, priority integer, claim uuid, permits bigint, holder text, owner text, session uuid,
  client_id text, sequence bigint, fingerprint uuid, node integer, incarnation integer, epoch integer, ttl_ms bigint,
  queued_at_ms bigint, works boolean);

CREATE TYPE semaphored.ticket_place AS (semaphore text, queue_order bigint, ticket uuid);
-- Reasons null: as they are. Changed 0: by the first revision of a semaphore that this commit makes.
CREATE TYPE semaphored.ticket_change AS (
  semaphore text, queue_order bigint, ticket uuid, priority integer, state smallint, attempt bigint, delay_ms bigint, delays bigint,
  node integer, incarnation integer, lease uuid, reasons jsonb, changed bigint);
-- Its payload are `payload_bytes` of the argument `payloads`, from the byte `payload_from` on; the first is 1.
CREATE TYPE semaphored.ticket_row AS (
  semaphore text, queue_order bigint, ticket uuid, priority integer, state smallint, attempt bigint, delay_ms bigint, delays bigint,
  node integer, incarnation integer, lease uuid, reasons jsonb, changed bigint, max_attempts bigint, back_off_initial_ms bigint,
  back_off_percent bigint, back_off_max_ms bigint, content_type text, trace text, owner text, enqueued_at_ms bigint,
  payload_bytes integer, payload_from integer);

-- A change notice: to which daemon; a semaphore and its revision; and what has changed in it, empty: it is to be read.
CREATE TYPE semaphored.notice AS (node integer, message text, news text);

-- One lane's batch, as a whole or not at all. Called by daemons only, with the names of the arguments. An argument without rows is null.
--
-- A refusal changes nothing. SM001: this daemon was declared dead or replaced (or the number of the commit is not the next). SM002: a
-- condition does not hold any more. SM003: one of the requests has a row, or is below its client's floor. SM004: a row that must be
-- there is not, or one is there that must not be. Empty: it is done. (They are no errors: the first three are the ordinary fate of a
-- daemon that comes second, and no concern of the server's log.)
--
-- Rows are looked up by their index, one by one (LATERAL … OFFSET 0), and then written by their place: the plan is made once, perhaps
-- while the tables are empty, and must be right when they are not.
CREATE FUNCTION semaphored.commit_1(
  p_node integer, p_incarnation integer, p_lane integer, p_number bigint,
  -- Where the lane's row was last, as lane_place said. Null: not known.
  p_place tid,
  -- Hosts from which sessions are moved away, and of sessions that begin to close.
  hosts integer[],
  -- Semaphores, in the order of their names: those that exist and are touched; those that are made; rows that are new or change;
  -- those that are destroyed, which are touched too; and those that answers rest upon.
  semaphores_touched semaphored.semaphore_touch[], semaphores_made semaphored.semaphore_start[],
  semaphores_written semaphored.semaphore_row[], semaphores_destroyed semaphored.semaphore_revision[],
  semaphores_read semaphored.semaphore_revision[],
  -- Sessions: epochs that they must have; those that change, as they must be; those that go; and those that come or change.
  session_epochs semaphored.session_epoch[], sessions_before semaphored.session_before[], sessions_gone uuid[],
  sessions_written semaphored.session_row[],
  -- Requests that must have no row, and are not below their client's floor; that come, under the same condition; whose claims are
  -- granted or end, without a condition (the semaphore's revision is theirs); and whose waits were given up: their rows go.
  requests_absent semaphored.request_key[], requests_new semaphored.request_row[], requests_changed semaphored.request_change[],
  requests_gone semaphored.request_key[],
  -- Requests that may be forgotten, those below a number; and clients whose requests this lane may forget.
  request_floors semaphored.request_floor[], clients_forgotten text[],
  leases_ended semaphored.lease_end[], leases_changed semaphored.lease_change[], leases_granted semaphored.lease_grant[],
  -- Waiters that leave (or change: then they come too), and that come.
  waiters_gone semaphored.waiter_place[], waiters_new semaphored.waiter_row[],
  -- Tickets that go, with their payloads; that change; and that come.
  tickets_gone semaphored.ticket_place[], tickets_changed semaphored.ticket_change[], tickets_new semaphored.ticket_row[],
  payloads bytea,
  notices semaphored.notice[],
  -- Of the leases that are granted, and of the semaphores that are made, in the order in which they came.
  OUT tokens bigint[], OUT revisions bigint[], OUT refusal text,
  -- Where the lane's row is now. Without meaning after a refusal.
  OUT lane_place tid)
LANGUAGE plpgsql AS $function$
DECLARE
  counted integer;
  each_floor semaphored.request_floor;
  floor_before bigint;
  violated text;
  key text;
  drawn text;
BEGIN
  refusal := '';
  tokens := '{}';
  revisions := '{}';
  IF cardinality(hosts) > 0 THEN
    PERFORM 1 FROM semaphored.lanes l WHERE l.alive AND (l.node = ANY (hosts) OR l.node = p_node)
      ORDER BY l.node, l.incarnation, l.lane FOR UPDATE;
  END IF;
  -- Every commit writes this row. Its index leads to each version of it that a snapshot still keeps: while there is a long one, only
  -- the place leads to the newest without passing the others.
  UPDATE semaphored.lanes l SET commits = p_number + 1
    WHERE l.ctid = p_place AND l.node = p_node AND l.incarnation = p_incarnation AND l.lane = p_lane AND l.alive AND l.commits = p_number
    RETURNING l.ctid INTO lane_place;
  IF NOT FOUND THEN
    UPDATE semaphored.lanes l SET commits = p_number + 1
      WHERE l.node = p_node AND l.incarnation = p_incarnation AND l.lane = p_lane AND l.alive AND l.commits = p_number
      RETURNING l.ctid INTO lane_place;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'SM001';
  END IF;

  IF cardinality(semaphores_touched) > 0 THEN
    -- Found and written one after the other, in the order of their names: two batches never wait for each other in a circle.
    -- (A nested loop, since all other joins are off for daemons.) Who is second finds another version of the row than it looked up,
    -- and so writes less than it should.
    UPDATE semaphored.semaphores s SET revision = s.revision + 1, next_order = t.next_order
      FROM unnest(semaphores_touched) AS t,
           LATERAL (SELECT o.ctid AS place FROM semaphored.semaphores o
                      WHERE o.name = t.name AND o.revision = t.revision OFFSET 0) AS at
      WHERE s.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(semaphores_touched) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(semaphores_made) > 0 THEN
    PERFORM 1 FROM semaphored.semaphores s WHERE s.name = ANY (ARRAY(SELECT m.name FROM unnest(semaphores_made) AS m)) LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(semaphores_read) > 0 THEN
    PERFORM 1 FROM unnest(semaphores_read) AS t
      LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
      WHERE COALESCE(s.revision, 0) <> t.revision LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(session_epochs) > 0 THEN
    SELECT count(*) INTO counted FROM unnest(session_epochs) AS e,
      LATERAL (SELECT 1 FROM semaphored.sessions o WHERE o.id = e.id AND o.epoch = e.epoch OFFSET 0) AS s;
    IF counted <> cardinality(session_epochs) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(sessions_before) > 0 THEN
    PERFORM 1 FROM semaphored.sessions s WHERE s.id = ANY (ARRAY(SELECT b.id FROM unnest(sessions_before) AS b))
      ORDER BY s.id FOR UPDATE;
    SELECT count(*) INTO counted FROM unnest(sessions_before) AS b
      LEFT JOIN LATERAL (SELECT * FROM semaphored.sessions i WHERE i.id = b.id OFFSET 0) AS s ON true
      WHERE COALESCE(s.epoch, 0) = b.epoch AND (s.id IS NULL OR (s.node = b.node AND s.incarnation = b.incarnation));
    IF counted <> cardinality(sessions_before) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(requests_absent) > 0 THEN
    PERFORM 1 FROM unnest(requests_absent) AS q,
      LATERAL (SELECT 1 FROM semaphored.requests r WHERE r.client_id = q.client_id AND r.sequence = q.sequence
               UNION ALL
               SELECT 1 FROM semaphored.clients c WHERE c.client_id = q.client_id AND c.floor > q.sequence) AS h
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM003';
    END IF;
  END IF;
  IF cardinality(requests_new) > 0 THEN
    -- A request that has a row violates accepted_once; see below. One that another commit is just forgetting is waited for, and the
    -- floor is read after that: where the row has gone, the floor that it has gone by is seen.
    INSERT INTO semaphored.requests (client_id, sequence, fingerprint, state, semaphore, claim, cause, number, remaining, changed,
                                     node, incarnation, lane)
      SELECT a.client_id, a.sequence, a.fingerprint, a.state, a.semaphore, a.claim, a.cause, a.number, a.remaining, a.changed,
             p_node, p_incarnation, p_lane
      FROM unnest(requests_new) AS a;
    PERFORM 1 FROM (SELECT a.client_id, min(a.sequence) AS lowest FROM unnest(requests_new) AS a GROUP BY a.client_id) AS a,
      LATERAL (SELECT 1 FROM semaphored.clients c WHERE c.client_id = a.client_id AND c.floor > a.lowest OFFSET 0) AS h
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM003';
    END IF;
  END IF;

  -- From here on everything holds.
  IF cardinality(semaphores_written) > 0 THEN
    INSERT INTO semaphored.semaphores AS s (name, permits, backfill, longest_hold_ms, recall_grace_ms, permits_per_holder,
                                            waiters_max, paused, destroying, made_on_use, intentions, revision, created_at, owner)
      SELECT w.name, w.permits, w.backfill, w.longest_hold_ms, w.recall_grace_ms, w.permits_per_holder,
             w.waiters_max, w.paused, w.destroying, w.made_on_use, w.intentions, 0, to_timestamp(w.created_at_ms * 0.001::float8), w.owner
      FROM unnest(semaphores_written) AS w
      ON CONFLICT (name) DO UPDATE SET permits = excluded.permits, backfill = excluded.backfill,
        longest_hold_ms = excluded.longest_hold_ms, recall_grace_ms = excluded.recall_grace_ms,
        permits_per_holder = excluded.permits_per_holder, waiters_max = excluded.waiters_max, paused = excluded.paused,
        destroying = excluded.destroying, made_on_use = excluded.made_on_use, intentions = excluded.intentions,
        created_at = excluded.created_at;
  END IF;
  IF cardinality(semaphores_made) > 0 THEN
    -- Made by another daemon after we looked: its revision is not 0.
    PERFORM 1 FROM unnest(semaphores_made) AS m,
      LATERAL (SELECT 1 FROM semaphored.semaphores o WHERE o.name = m.name AND o.revision <> 0 OFFSET 0) AS s
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
    -- A new one starts above every revision that its name may have had.
    UPDATE semaphored.semaphores s SET revision = (SELECT revision_floor + 1 FROM semaphored.store), next_order = m.next_order
      FROM unnest(semaphores_made) AS m,
           LATERAL (SELECT o.ctid AS place FROM semaphored.semaphores o WHERE o.name = m.name OFFSET 0) AS at
      WHERE s.ctid = at.place AND NOT m.passing;
    SELECT array_agg(COALESCE(s.revision, 0) ORDER BY m.ordinality) INTO revisions
      FROM unnest(semaphores_made) WITH ORDINALITY AS m
      LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = m.name OFFSET 0) AS s ON true;
  END IF;
  IF cardinality(semaphores_destroyed) > 0 THEN
    UPDATE semaphored.store SET revision_floor = greatest(revision_floor,
      (SELECT max(d.revision) + 1 FROM unnest(semaphores_destroyed) AS d));
    DELETE FROM semaphored.semaphores s WHERE s.name = ANY (ARRAY(SELECT d.name FROM unnest(semaphores_destroyed) AS d));
  END IF;

  IF cardinality(leases_ended) > 0 THEN
    UPDATE semaphored.leases l SET
        completed_at = CASE WHEN e.cause <> 2 THEN CASE e.ended_at_ms WHEN 0 THEN clock_timestamp()
                         ELSE to_timestamp(e.ended_at_ms * 0.001::float8) END END,
        timed_out_at = CASE WHEN e.cause = 2 THEN to_timestamp(e.ended_at_ms * 0.001::float8) END,
        end_cause = e.cause, history_number = e.history_number
      -- All slots of a lease have one number.
      FROM (SELECT n.*, unnest(n.slots) AS slot
              FROM (SELECT g.*, CASE WHEN g.history THEN nextval('semaphored.history_numbers') END AS history_number
                      FROM unnest(leases_ended) AS g OFFSET 0) AS n) AS e,
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = e.semaphore AND o.slot = e.slot AND o.claim = e.claim
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> (SELECT sum(cardinality(e.slots)) FROM unnest(leases_ended) AS e) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(leases_changed) > 0 THEN
    UPDATE semaphored.leases l SET session = u.session, node = u.node, incarnation = u.incarnation, epoch = u.epoch,
        ttl_ms = u.ttl_ms, recall_reason = u.recall_reason, recall_grace_ms = u.recall_grace_ms, moved_from = u.moved_from
      FROM (SELECT g.*, unnest(g.slots) AS slot FROM unnest(leases_changed) AS g) AS u,
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = u.semaphore AND o.slot = u.slot AND o.claim = u.claim
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> (SELECT sum(cardinality(u.slots)) FROM unnest(leases_changed) AS u) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(leases_granted) > 0 THEN
    -- Their semaphores are locked: a later grant of the same slot draws a higher one.
    SELECT array_agg(nextval('semaphored.tokens')) INTO tokens FROM generate_series(1, cardinality(leases_granted));
    INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, holder, owner, session, client_id, sequence, fingerprint,
                                   node, incarnation, epoch, ttl_ms, priority, queue_order, recall_reason, recall_grace_ms, moved_from,
                                   created_at, completed_at, timed_out_at, end_cause, history_number)
      SELECT g.semaphore, unnest(g.slots), 'd', g.claim, tokens[g.ordinality], g.holder, g.owner, g.session, g.client_id, g.sequence, g.fingerprint,
             g.node, g.incarnation, g.epoch, g.ttl_ms, g.priority, g.queue_order, g.recall_reason, g.recall_grace_ms, g.moved_from,
             to_timestamp(g.created_at_ms * 0.001::float8),
             CASE WHEN g.end_cause NOT IN (0, 2) THEN to_timestamp(g.ended_at_ms * 0.001::float8) END,
             CASE WHEN g.end_cause = 2 THEN to_timestamp(g.ended_at_ms * 0.001::float8) END,
             NULLIF(g.end_cause, 0), g.history_number
      FROM (SELECT o.*, CASE WHEN o.end_cause <> 0 THEN nextval('semaphored.history_numbers') END AS history_number
              FROM unnest(leases_granted) WITH ORDINALITY AS o OFFSET 0) AS g;
  END IF;

  IF cardinality(waiters_gone) > 0 THEN
    DELETE FROM semaphored.waiters w USING unnest(waiters_gone) AS d,
        LATERAL (SELECT o.ctid AS place FROM semaphored.waiters o
                   WHERE o.semaphore = d.semaphore AND o.queue_order = d.queue_order OFFSET 0) AS at
      WHERE w.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(waiters_gone) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(waiters_new) > 0 THEN
    INSERT INTO semaphored.waiters (semaphore, queue_order, priority, claim, permits, holder, owner, session, client_id, sequence,
                                    fingerprint, node, incarnation, epoch, ttl_ms, queued_at, works)
      SELECT n.semaphore, n.queue_order, n.priority, n.claim, n.permits, n.holder, n.owner, n.session, n.client_id, n.sequence,
             n.fingerprint, n.node, n.incarnation, n.epoch, n.ttl_ms, to_timestamp(n.queued_at_ms * 0.001::float8), n.works
      FROM unnest(waiters_new) AS n;
  END IF;

  IF cardinality(sessions_gone) > 0 THEN
    DELETE FROM semaphored.sessions s WHERE s.id = ANY (sessions_gone);
  END IF;
  IF cardinality(sessions_written) > 0 THEN
    INSERT INTO semaphored.sessions AS s (id, node, incarnation, epoch, ttl_ms, client_id, release_on_disconnect, closing, holder, owner)
      SELECT y.id, y.node, y.incarnation, y.epoch, y.ttl_ms, y.client_id, y.release_on_disconnect, y.closing, y.holder, y.owner
      FROM unnest(sessions_written) AS y
      ON CONFLICT (id) DO UPDATE SET node = excluded.node, incarnation = excluded.incarnation, epoch = excluded.epoch,
        ttl_ms = excluded.ttl_ms, client_id = excluded.client_id, release_on_disconnect = excluded.release_on_disconnect,
        closing = excluded.closing, holder = excluded.holder;
  END IF;

  IF cardinality(tickets_gone) > 0 THEN
    DELETE FROM semaphored.tickets t USING unnest(tickets_gone) AS h,
        LATERAL (SELECT o.ctid AS place FROM semaphored.tickets o
                   WHERE o.semaphore = h.semaphore AND o.queue_order = h.queue_order AND o.ticket = h.ticket OFFSET 0) AS at
      WHERE t.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(tickets_gone) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
    DELETE FROM semaphored.payloads p USING unnest(tickets_gone) AS h,
        LATERAL (SELECT o.ctid AS place FROM semaphored.payloads o WHERE o.ticket = h.ticket OFFSET 0) AS at
      WHERE p.ctid = at.place;
  END IF;
  IF cardinality(tickets_changed) > 0 THEN
    UPDATE semaphored.tickets t SET priority = j.priority, state = j.state, attempt = j.attempt, delay_ms = j.delay_ms,
        delays = j.delays, node = j.node, incarnation = j.incarnation, lease = j.lease, reasons = COALESCE(j.reasons, t.reasons),
        changed = CASE j.changed
          WHEN 0 THEN (SELECT s.revision FROM semaphored.semaphores s WHERE s.name = j.semaphore) ELSE j.changed END
      FROM unnest(tickets_changed) AS j,
           LATERAL (SELECT o.ctid AS place FROM semaphored.tickets o
                      WHERE o.semaphore = j.semaphore AND o.queue_order = j.queue_order AND o.ticket = j.ticket OFFSET 0) AS at
      WHERE t.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(tickets_changed) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(tickets_new) > 0 THEN
    INSERT INTO semaphored.payloads (ticket, payload)
      SELECT k.ticket, substring(payloads FROM k.payload_from FOR k.payload_bytes) FROM unnest(tickets_new) AS k;
    INSERT INTO semaphored.tickets (semaphore, queue_order, ticket, priority, state, attempt, delay_ms, delays, node, incarnation,
                                    lease, reasons, changed, max_attempts, back_off_initial_ms, back_off_percent, back_off_max_ms,
                                    content_type, trace, owner, enqueued_at, payload_bytes)
      SELECT k.semaphore, k.queue_order, k.ticket, k.priority, k.state, k.attempt, k.delay_ms, k.delays, k.node, k.incarnation,
             k.lease, k.reasons, CASE k.changed
               WHEN 0 THEN (SELECT s.revision FROM semaphored.semaphores s WHERE s.name = k.semaphore) ELSE k.changed END,
             k.max_attempts, k.back_off_initial_ms, k.back_off_percent, k.back_off_max_ms,
             k.content_type, k.trace, k.owner, to_timestamp(k.enqueued_at_ms * 0.001::float8), k.payload_bytes
      FROM unnest(tickets_new) AS k;
  END IF;

  IF cardinality(requests_changed) > 0 THEN
    UPDATE semaphored.requests r SET state = b.state, cause = b.cause, node = p_node, incarnation = p_incarnation, lane = p_lane
      FROM unnest(requests_changed) AS b,
           LATERAL (SELECT o.ctid AS place FROM semaphored.requests o
                      WHERE o.client_id = b.client_id AND o.sequence = b.sequence OFFSET 0) AS at
      WHERE r.ctid = at.place;
  END IF;
  IF cardinality(requests_gone) > 0 THEN
    DELETE FROM semaphored.requests r USING unnest(requests_gone) AS d,
        LATERAL (SELECT o.ctid AS place FROM semaphored.requests o
                   WHERE o.client_id = d.client_id AND o.sequence = d.sequence OFFSET 0) AS at
      WHERE r.ctid = at.place;
  END IF;
  IF cardinality(request_floors) > 0 THEN
    -- From where the last one ended: the index still shows what was deleted before. (A pinned row stays; when its claim has ended, a
    -- daemon finds it as it walks along the table from time to time.) A floor that another commit is just raising is left alone: lanes
    -- that serve one client would wait for each other, and the next commit that raises it deletes these rows as well.
    FOREACH each_floor IN ARRAY request_floors LOOP
      SELECT c.floor INTO floor_before FROM semaphored.clients c WHERE c.client_id = each_floor.client_id
        FOR NO KEY UPDATE SKIP LOCKED;
      IF NOT FOUND THEN
        CONTINUE WHEN EXISTS (SELECT 1 FROM semaphored.clients c WHERE c.client_id = each_floor.client_id);
        INSERT INTO semaphored.clients (client_id, floor) VALUES (each_floor.client_id, 0) ON CONFLICT DO NOTHING;
        CONTINUE WHEN NOT FOUND;
        floor_before := 0;
      END IF;
      CONTINUE WHEN each_floor.below <= floor_before;
      DELETE FROM semaphored.requests r WHERE r.client_id = each_floor.client_id AND r.sequence < each_floor.below
        AND r.sequence >= floor_before AND r.state NOT IN (1, 2);
      UPDATE semaphored.clients c SET floor = each_floor.below WHERE c.client_id = each_floor.client_id;
    END LOOP;
  END IF;
  IF cardinality(clients_forgotten) > 0 THEN
    -- Where another lane still knows the client, what is forgotten here is below its floor from now on: it is not done again.
    WITH gone AS (
      DELETE FROM semaphored.requests r WHERE r.client_id = ANY (clients_forgotten)
        AND r.node = p_node AND r.incarnation = p_incarnation AND r.lane = p_lane AND r.state NOT IN (1, 2)
        RETURNING r.client_id, r.sequence),
    highest AS (SELECT g.client_id, max(g.sequence) AS sequence FROM gone g GROUP BY g.client_id)
    INSERT INTO semaphored.clients AS c (client_id, floor)
      SELECT h.client_id, h.sequence + 1 FROM highest h
        WHERE EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = h.client_id
                        AND (r.state IN (1, 2) OR r.node <> p_node OR r.incarnation <> p_incarnation OR r.lane <> p_lane))
        ORDER BY h.client_id
      ON CONFLICT (client_id) DO UPDATE SET floor = greatest(c.floor, excluded.floor);
    DELETE FROM semaphored.clients c WHERE c.client_id = ANY (clients_forgotten)
      AND NOT EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = c.client_id);
  END IF;
  IF cardinality(notices) > 0 THEN
    drawn := array_to_string(tokens, ',');
    SELECT s.secret INTO key FROM semaphored.store s;
    PERFORM pg_notify('semaphored_' || t.node, CASE t.news WHEN '' THEN t.message ELSE t.message || ' ' || encode(sha256(convert_to(
        key || encode(sha256(convert_to(key || t.message || ' ' || drawn || ' ' || t.news, 'UTF8')), 'hex'), 'UTF8')), 'hex')
        || ' ' || drawn || ' ' || t.news END)
      FROM unnest(notices) AS t;
  END IF;
EXCEPTION
  WHEN SQLSTATE 'SM001' OR SQLSTATE 'SM002' OR SQLSTATE 'SM003' OR SQLSTATE 'SM004' THEN
    tokens := '{}';
    revisions := '{}';
    refusal := SQLSTATE;
  WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
    IF violated = 'accepted_once' THEN
      refusal := 'SM003';
    ELSIF violated IN ('one_waiter_per_place', 'one_ticket_per_place', 'one_payload_per_ticket') THEN
      refusal := 'SM004';
    ELSE
      RAISE;
    END IF;
    tokens := '{}';
    revisions := '{}';
END
$function$;

-- ---- For programs that use SQL alone ----

-- Notifies the daemons whose clients wait for the semaphore, or offer to work there, that it has changed.
CREATE FUNCTION semaphored.tell_waiting_daemons(of_semaphore text) RETURNS void
LANGUAGE sql AS $function$
  SELECT pg_notify('semaphored_' || n.node, of_semaphore)
    FROM (SELECT DISTINCT COALESCE(s.node, w.node) AS node FROM semaphored.waiters w
            LEFT JOIN semaphored.sessions s ON s.id = w.session WHERE w.semaphore = of_semaphore) AS n;
$function$;

-- Ends what claim() has given and whose own time-out has run out, on one semaphore; a daemon's lease never. Returns how many.
CREATE FUNCTION semaphored.time_out(of_semaphore text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
  ended integer;
BEGIN
  PERFORM 1 FROM semaphored.leases l WHERE l.semaphore = of_semaphore AND l.kind = 's'
    AND l.completed_at IS NULL AND l.timed_out_at IS NULL
    AND l.created_at + l.ttl_ms * interval '1 millisecond' < clock_timestamp() LIMIT 1;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  PERFORM 1 FROM semaphored.semaphores s WHERE s.name = of_semaphore FOR NO KEY UPDATE;
  UPDATE semaphored.leases l
    SET timed_out_at = clock_timestamp(), end_cause = 2, history_number = nextval('semaphored.history_numbers')
    WHERE l.semaphore = of_semaphore AND l.kind = 's' AND l.completed_at IS NULL AND l.timed_out_at IS NULL
      AND l.created_at + l.ttl_ms * interval '1 millisecond' < clock_timestamp();
  GET DIAGNOSTICS ended = ROW_COUNT;
  IF ended > 0 THEN
    UPDATE semaphored.semaphores s SET revision = s.revision + 1 WHERE s.name = of_semaphore;
    PERFORM semaphored.tell_waiting_daemons(of_semaphore);
  END IF;
  RETURN ended;
END
$function$;

-- Makes a semaphore, unless another has made it meanwhile.
CREATE FUNCTION semaphored.make_on_use(of_semaphore text, permits bigint) RETURNS void
LANGUAGE plpgsql AS $function$
DECLARE
  floor bigint;
BEGIN
  IF permits < 1 OR permits > 1000000 THEN
    RAISE EXCEPTION 'limit is %: it must be from 1 to 1000000', permits USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- The daemons' rule.
  IF octet_length(of_semaphore) > 255 OR of_semaphore !~ '^[a-zA-Z0-9._/:@+-]+$' OR of_semaphore ~ '^\.|(^|/)\.{0,2}(/|$)' THEN
    RAISE EXCEPTION 'the name of a semaphore must be 1 to 255 bytes of letters, digits and . _ - / : @ +, not begin with a dot, and have no empty, "." or ".." segment between its slashes'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  -- Locked, so that a semaphore of this name that is just being destroyed has raised it.
  SELECT s.revision_floor INTO floor FROM semaphored.store s FOR SHARE;
  INSERT INTO semaphored.semaphores (name, permits, revision, made_on_use) VALUES (of_semaphore, permits, floor + 1, true)
    ON CONFLICT (name) DO NOTHING;
END
$function$;

-- Takes one permit at once: one row with its slot, its fencing token, and the claim by which to release it; no row if there is no
-- room, or if others wait. It ends by itself after `time_out` (at most 7 days), at the next look. With "limit" the first call
-- makes the semaphore, and any other raises object_not_in_prerequisite_state (55000) if its limit is another one. Without it, raises
-- undefined_object (42704) if there is no such semaphore. To be called outside of a longer transaction: until that ends, no other client
-- can take or give back a permit of the semaphore.
CREATE FUNCTION semaphored.claim(of_semaphore text, by_holder text DEFAULT '', time_out interval DEFAULT interval '90 seconds',
                                 "limit" bigint DEFAULT NULL)
RETURNS TABLE (slot integer, token bigint, claim uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
#variable_conflict use_column
DECLARE
  row semaphored.semaphores%ROWTYPE;
  held bigint;
  given integer;
  id uuid := gen_random_uuid();
  number bigint;
  milliseconds bigint := (extract(epoch FROM time_out) * 1000)::bigint;
BEGIN
  IF milliseconds IS NULL OR milliseconds < 1 OR milliseconds > 604800000 THEN
    RAISE EXCEPTION 'time_out is %: it must be from 1 millisecond to 7 days', time_out
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF by_holder IS NULL OR octet_length(by_holder) > 256 THEN
    RAISE EXCEPTION 'by_holder must be text of at most 256 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM semaphored.time_out(of_semaphore);
  SELECT * INTO row FROM semaphored.semaphores s WHERE s.name = of_semaphore FOR NO KEY UPDATE;
  IF NOT FOUND AND "limit" IS NOT NULL THEN
    PERFORM semaphored.make_on_use(of_semaphore, "limit");
    SELECT * INTO row FROM semaphored.semaphores s WHERE s.name = of_semaphore FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no semaphore "%"', of_semaphore USING ERRCODE = 'undefined_object';
  END IF;
  IF "limit" <> row.permits THEN
    RAISE EXCEPTION 'the limit of "%" is %, and not %', of_semaphore, row.permits, "limit"
      USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  IF row.paused OR row.destroying OR (SELECT withheld FROM semaphored.store) THEN
    RETURN;
  END IF;
  SELECT count(*) INTO held FROM semaphored.leases l
    WHERE l.semaphore = of_semaphore AND l.completed_at IS NULL AND l.timed_out_at IS NULL;
  IF held >= row.permits OR EXISTS (
      SELECT 1 FROM semaphored.waiters w WHERE w.semaphore = of_semaphore AND NOT w.works) THEN
    RETURN;
  END IF;
  IF row.permits_per_holder > 0 AND row.permits_per_holder <= (
      SELECT count(*) FROM semaphored.leases l WHERE l.semaphore = of_semaphore AND l.completed_at IS NULL
        AND l.timed_out_at IS NULL AND l.holder = by_holder) THEN
    RETURN;
  END IF;
  -- The lowest free slot: 1, or the one after a slot whose next is free.
  SELECT min(free.slot) INTO given FROM (
    SELECT 1 AS slot WHERE NOT EXISTS (
      SELECT 1 FROM semaphored.leases o WHERE o.semaphore = of_semaphore AND o.slot = 1
        AND o.completed_at IS NULL AND o.timed_out_at IS NULL)
    UNION ALL
    SELECT l.slot + 1 FROM semaphored.leases l
      WHERE l.semaphore = of_semaphore AND l.completed_at IS NULL AND l.timed_out_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM semaphored.leases o WHERE o.semaphore = of_semaphore AND o.slot = l.slot + 1
          AND o.completed_at IS NULL AND o.timed_out_at IS NULL)) AS free;
  number := nextval('semaphored.tokens');
  INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, holder, session, node, incarnation, epoch, ttl_ms,
                                 priority, queue_order, created_at)
    VALUES (of_semaphore, given, 's', id, number, by_holder, id, 0, 0, 1, milliseconds, 0, row.next_order, clock_timestamp());
  UPDATE semaphored.semaphores s SET revision = s.revision + 1, next_order = s.next_order + 1 WHERE s.name = of_semaphore;
  RETURN QUERY SELECT given, number, id;
END
$function$;

-- Gives back what claim() gave. False: it is not held (any more), and nothing was done.
CREATE FUNCTION semaphored.release(of_semaphore text, of_claim uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  PERFORM 1 FROM semaphored.semaphores s WHERE s.name = of_semaphore FOR NO KEY UPDATE;
  UPDATE semaphored.leases l
    SET completed_at = clock_timestamp(), end_cause = 1, history_number = nextval('semaphored.history_numbers')
    WHERE l.semaphore = of_semaphore AND l.claim = of_claim AND l.kind = 's'
      AND l.completed_at IS NULL AND l.timed_out_at IS NULL;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE semaphored.semaphores s SET revision = s.revision + 1 WHERE s.name = of_semaphore;
  PERFORM semaphored.tell_waiting_daemons(of_semaphore);
  RETURN true;
END
$function$;

-- Only roles that have a grant on them may call them; see docs/postgres.md.
REVOKE ALL ON FUNCTION semaphored.commit_1, semaphored.claim, semaphored.release, semaphored.time_out,
  semaphored.tell_waiting_daemons, semaphored.make_on_use FROM PUBLIC;

-- ---- For people ----

-- At the end of the transaction, so that the tickets may go before their semaphore or after it.
CREATE FUNCTION semaphored.keep_tickets() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  IF EXISTS (SELECT 1 FROM semaphored.tickets t WHERE t.semaphore = OLD.name)
     AND NOT EXISTS (SELECT 1 FROM semaphored.semaphores s WHERE s.name = OLD.name) THEN
    RAISE EXCEPTION 'semaphore "%" has tickets, or dead letters: destroy it through a daemon', OLD.name
      USING ERRCODE = 'object_in_use';
  END IF;
  RETURN NULL;
END
$function$;
CREATE CONSTRAINT TRIGGER keep_tickets AFTER DELETE ON semaphored.semaphores DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION semaphored.keep_tickets();

-- Who holds what now, a row for each slot.
CREATE VIEW semaphored.holders AS
  SELECT l.semaphore, l.slot, l.holder, l.token, l.created_at AS since,
         CASE l.kind WHEN 's' THEN 'SQL' ELSE COALESCE(n.node_id, '') END AS through, l.claim
    FROM semaphored.leases l
    LEFT JOIN semaphored.sessions s ON s.id = l.session AND l.session <> l.claim
    LEFT JOIN semaphored.nodes n ON n.number = COALESCE(s.node, l.node)
    WHERE l.completed_at IS NULL AND l.timed_out_at IS NULL;

-- Who held what, and how it ended, a row for each slot. The newest have the highest numbers.
CREATE VIEW semaphored.history AS
  SELECT l.history_number AS number, l.semaphore, l.slot, l.holder, l.token, l.created_at AS since,
         COALESCE(l.completed_at, l.timed_out_at) AS until,
         (ARRAY['released', 'expired', 'revoked', 'recalled', 'destroyed', 'disconnected'])[l.end_cause] AS cause
    FROM semaphored.leases l
    WHERE l.history_number IS NOT NULL;

-- The queue of tickets, dead letters too, and the holders that carry them out.
CREATE VIEW semaphored.work AS
  SELECT t.semaphore, t.ticket, (ARRAY['queued', 'delayed', 'assigned', 'dead'])[t.state] AS state, t.priority, t.attempt,
         t.max_attempts, t.delay_ms, t.enqueued_at, l.slot, l.holder, l.token, l.created_at AS since,
         t.reasons -> -1 ->> 'text' AS last_reason, t.reasons, t.content_type, p.payload, t.trace, t.queue_order
    FROM semaphored.tickets t
    LEFT JOIN semaphored.payloads p ON p.ticket = t.ticket
    LEFT JOIN semaphored.leases l ON l.semaphore = t.semaphore AND l.claim = t.lease AND l.completed_at IS NULL AND l.timed_out_at IS NULL;

INSERT INTO semaphored.store (version, oldest_daemon) VALUES (1, 1);
