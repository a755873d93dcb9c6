-- Version 1 of what semaphored keeps in Postgres. Run as the owner of the schema; no superuser is needed.
-- "semaphored" below stands for the schema that the store's URL names.
CREATE SCHEMA IF NOT EXISTS semaphored;

-- One row: which version this is, and what makes a fail-over safe to notice.
CREATE TABLE semaphored.store (
  only_row       boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version        integer NOT NULL,            -- Of this schema.
  oldest_daemon  integer NOT NULL,            -- Daemons that know an older version than this must not write.
  epoch          integer NOT NULL DEFAULT 0,  -- High bits of tokens: rises when commits may have been lost.
  withheld       boolean NOT NULL DEFAULT false,  -- Since the epoch rose nobody has waited for one longest TTL yet.
  withheld_ms    bigint NOT NULL DEFAULT 30000,   -- At least so long; longer if a longer time-to-live is known of.
  timeline       text NOT NULL DEFAULT '',    -- Of the server's log, as seen last.
  synchronous    boolean NOT NULL DEFAULT false,  -- A synchronous standby was configured when it was seen last.
  revision_floor bigint NOT NULL DEFAULT 0    -- No semaphore that was destroyed had a higher revision.
);

CREATE SEQUENCE semaphored.tokens;           -- Fencing tokens, over all semaphores.
CREATE SEQUENCE semaphored.history_numbers;  -- The order in which leases ended.

-- The daemons. The heartbeat raises the counter; whoever reads it unchanged for long enough sets dead.
CREATE TABLE semaphored.nodes (
  number      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id     text NOT NULL UNIQUE,
  incarnation integer NOT NULL DEFAULT 1,
  counter     bigint NOT NULL DEFAULT 0,
  dead        boolean NOT NULL DEFAULT false,
  started_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

-- One row for each lane of each life of a daemon. Every commit raises its number from n to n + 1: so a
-- commit whose answer was lost can be found out, a dead daemon can write nothing, and whoever moves a session away
-- waits for its old host's commits by locking these rows.
CREATE TABLE semaphored.lanes (
  node           integer NOT NULL,
  incarnation    integer NOT NULL,
  lane           integer NOT NULL,
  alive          boolean NOT NULL DEFAULT true,
  commits        bigint NOT NULL DEFAULT 0,
  last_tokens    bigint[] NOT NULL DEFAULT '{}',  -- What the last commit gave.
  last_revisions bigint[] NOT NULL DEFAULT '{}',
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
  next_order         bigint NOT NULL DEFAULT 1,
  revision           bigint NOT NULL,  -- Rises by one with each commit that touches the semaphore or its claims.
  created_at         timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- Slot rows: one for each slot that a lease takes, kept as history when it has ended.
CREATE TABLE semaphored.leases (
  semaphore       text COLLATE "C" NOT NULL,
  slot            integer NOT NULL CHECK (slot >= 1),
  kind            "char" NOT NULL CHECK (kind IN ('d', 's')),  -- d: a daemon's; s: taken by claim(), from SQL.
  claim           uuid NOT NULL,            -- The lease; rows of one lease have the same.
  token           bigint NOT NULL,
  permits         bigint NOT NULL,          -- Of the whole lease.
  holder          text NOT NULL,
  session         uuid NOT NULL,            -- Equal to claim: detached; node, incarnation, epoch and ttl_ms are then its own.
  client_id       text COLLATE "C" NOT NULL DEFAULT '',
  sequence        bigint NOT NULL DEFAULT 0,
  node            integer NOT NULL,
  incarnation     integer NOT NULL,
  epoch           integer NOT NULL,
  ttl_ms          bigint NOT NULL,
  priority        integer NOT NULL,
  queue_order     bigint NOT NULL,
  recall_reason   smallint NOT NULL DEFAULT 0,
  recall_grace_ms bigint NOT NULL DEFAULT 0,
  created_at      timestamptz NOT NULL,     -- When it was granted.
  completed_at    timestamptz,              -- When it was given back, revoked or recalled.
  timed_out_at    timestamptz,              -- When its time-out had run out.
  end_cause       smallint,                 -- 1 released, 2 expired, 3 revoked, 4 recalled, 5 destroyed, 6 disconnected, 7 unknown.
  history_number  bigint,                   -- Null too where only a part of a lease was given back.
  -- An end has a time and a cause. (A statement that knows only of the times, as in the recipe that this table is modelled
  -- on, is refused: it would end the leases of others.)
  CONSTRAINT ended_with_cause CHECK ((end_cause IS NULL) = (completed_at IS NULL AND timed_out_at IS NULL)),
  CONSTRAINT ended_once CHECK (completed_at IS NULL OR timed_out_at IS NULL)
) WITH (fillfactor = 80);
-- The database itself refuses a slot twice.
CREATE UNIQUE INDEX one_lease_per_slot ON semaphored.leases (semaphore, slot)
  WHERE completed_at IS NULL AND timed_out_at IS NULL;
CREATE INDEX leases_of_session ON semaphored.leases (session)
  WHERE completed_at IS NULL AND timed_out_at IS NULL AND session <> claim;
CREATE INDEX leases_history ON semaphored.leases (history_number) WHERE history_number IS NOT NULL;

CREATE TABLE semaphored.waiters (
  semaphore   text COLLATE "C" NOT NULL,
  queue_order bigint NOT NULL,              -- First come, first served, among those of one priority.
  priority    integer NOT NULL,
  claim       uuid NOT NULL,
  permits     bigint NOT NULL,
  holder      text NOT NULL,
  session     uuid NOT NULL,
  client_id   text COLLATE "C" NOT NULL DEFAULT '',
  sequence    bigint NOT NULL DEFAULT 0,
  node        integer NOT NULL,
  incarnation integer NOT NULL,
  epoch       integer NOT NULL,
  ttl_ms      bigint NOT NULL,
  queued_at   timestamptz NOT NULL,
  PRIMARY KEY (semaphore, queue_order)
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
  holder                text NOT NULL
);
CREATE INDEX sessions_of_node ON semaphored.sessions (node);

-- What requests were answered, for those that are repeated. Each client's last ones.
CREATE TABLE semaphored.requests (
  client_id text COLLATE "C" NOT NULL,
  sequence  bigint NOT NULL,
  kind      smallint NOT NULL,              -- 1 granted, 2 released, 3 wait ended, 4 administration.
  semaphore text COLLATE "C" NOT NULL,
  claim     uuid NOT NULL,
  cause     smallint NOT NULL,
  number    bigint NOT NULL,
  remaining bigint NOT NULL,
  changed   boolean NOT NULL,
  node      integer NOT NULL,               -- Who answered, and forgets it again.
  PRIMARY KEY (client_id, sequence)
);

-- One lane's batch, as a whole or not at all. Called by daemons only. Arrays that belong together have the same first letters;
-- what is of several slots comes as the text of an array ('{1,2}'). x_number is a table of numbers, row by row: Postgres takes at most 100
-- arguments.
--
-- A refusal changes nothing. SM001: this daemon was declared dead or replaced (or the number of the commit is not the next). SM002: a
-- condition does not hold any more. SM003: one of the requests has been answered. SM004: a row that must be there is not. Empty: it
-- is done. (They are no errors, since the first three are the ordinary fate of whoever comes second, and no concern of the server's log.)
CREATE FUNCTION semaphored.commit_1(
  p_node integer, p_incarnation integer, p_lane integer, p_number bigint, p_window bigint,
  -- Hosts from which sessions are moved away.
  moved_from integer[],
  -- Semaphores that are touched. Expected revision 0: is made. kind 0: only revision and order; 1: the row too; 2: destroyed;
  -- 3: made and destroyed at once.
  s_name text[], s_revision bigint[], s_kind smallint[], s_next_order bigint[],
  -- Rows, for kind 1.
  --   permits, backfill, longest_hold_ms, recall_grace_ms, permits_per_holder, waiters_max, paused, destroying, created_at
  w_name text[], w_number bigint[],
  -- Semaphores that answers rest upon. Revision 0: must not exist.
  r_name text[], r_revision bigint[],
  -- Epochs that sessions must have.
  c_session uuid[], c_epoch integer[],
  -- Requests that must not have been answered.
  q_client text[], q_sequence bigint[],
  -- Leases: slots that are given back. At 0: now.
  e_semaphore text[], e_slots text[], e_claim uuid[], e_cause smallint[], e_history boolean[], e_at bigint[],
  -- Leases: changes in place, of all live slots.
  --   permits, node, incarnation, epoch, recall_reason, recall_grace_ms
  u_semaphore text[], u_slots text[], u_claim uuid[], u_number bigint[],
  -- Leases that are granted; ended in this very batch where cause is not 0.
  --   permits, sequence, node, incarnation, epoch, ttl_ms, priority, queue_order, recall_reason, recall_grace_ms, created_at, cause,
  --   ended_at
  g_semaphore text[], g_slots text[], g_claim uuid[], g_holder text[], g_session uuid[], g_client text[], g_number bigint[],
  -- Waiters that leave (or change: then they come too), and that come.
  d_semaphore text[], d_order bigint[],
  --   queue_order, priority, permits, sequence, node, incarnation, epoch, ttl_ms, queued_at
  n_semaphore text[], n_claim uuid[], n_holder text[], n_session uuid[], n_client text[], n_number bigint[],
  -- Sessions as they must be (epoch 0: must not exist) …
  --   epoch, node, incarnation
  o_id uuid[], o_number bigint[],
  -- … those that go, and those that come or change.
  x_id uuid[],
  --   node, incarnation, epoch, ttl_ms, release_on_disconnect
  y_id uuid[], y_client text[], y_holder text[], y_number bigint[],
  -- Answers.
  --   sequence, kind, cause, number, remaining, changed
  a_client text[], a_semaphore text[], a_claim uuid[], a_number bigint[],
  -- Answers that may be forgotten, and clients whose answers of this daemon may.
  f_client text[], f_below bigint[], forgotten text[],
  -- Daemons to be told, and of what.
  t_node integer[], t_semaphore text[],
  OUT tokens bigint[], OUT revisions bigint[], OUT refusal text)
LANGUAGE plpgsql AS $function$
DECLARE
  counted integer;
BEGIN
  refusal := '';
  tokens := '{}';
  revisions := '{}';
  IF cardinality(moved_from) > 0 THEN
    PERFORM 1 FROM semaphored.lanes l WHERE l.alive AND (l.node = ANY (moved_from) OR l.node = p_node)
      ORDER BY l.node, l.incarnation, l.lane FOR UPDATE;
  END IF;
  UPDATE semaphored.lanes l SET commits = p_number + 1, last_tokens = '{}', last_revisions = '{}'
    WHERE l.node = p_node AND l.incarnation = p_incarnation AND l.lane = p_lane AND l.alive AND l.commits = p_number;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'this daemon was declared dead or replaced' USING ERRCODE = 'SM001';
  END IF;

  -- In order of their names, so that two batches never wait for each other.
  IF cardinality(s_name) = 1 THEN
    PERFORM 1 FROM semaphored.semaphores s WHERE s.name = s_name[1] FOR NO KEY UPDATE;
  ELSIF cardinality(s_name) > 1 THEN
    PERFORM 1 FROM semaphored.semaphores s WHERE s.name = ANY (s_name) ORDER BY s.name FOR NO KEY UPDATE;
  END IF;
  PERFORM 1 FROM unnest(s_name || r_name, s_revision || r_revision) AS t(name, revision)
      LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
      WHERE COALESCE(s.revision, 0) <> t.revision LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'another daemon was first' USING ERRCODE = 'SM002';
  END IF;
  IF cardinality(c_session) > 0 THEN
    SELECT count(*) INTO counted FROM unnest(c_session, c_epoch) AS c(id, epoch),
      LATERAL (SELECT 1 FROM semaphored.sessions o WHERE o.id = c.id AND o.epoch = c.epoch OFFSET 0) AS s;
    IF counted <> cardinality(c_session) THEN
      RAISE EXCEPTION 'a session has moved or ended' USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(o_id) > 0 THEN
    PERFORM 1 FROM semaphored.sessions s WHERE s.id = ANY (o_id) ORDER BY s.id FOR UPDATE;
    SELECT count(*) INTO counted FROM unnest(o_id) WITH ORDINALITY AS o(id, place)
      LEFT JOIN LATERAL (SELECT * FROM semaphored.sessions i WHERE i.id = o.id OFFSET 0) AS s ON true
      WHERE COALESCE(s.epoch, 0) = o_number[3 * place - 2]
        AND (s.id IS NULL OR (s.node = o_number[3 * place - 1] AND s.incarnation = o_number[3 * place]));
    IF counted <> cardinality(o_id) THEN
      RAISE EXCEPTION 'a session has moved or ended' USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(q_client) > 0 THEN
    PERFORM 1 FROM unnest(q_client, q_sequence) AS q(client_id, sequence)
      , LATERAL (SELECT 1 FROM semaphored.requests r WHERE r.client_id = q.client_id
                   AND (r.sequence = q.sequence OR r.sequence >= q.sequence + p_window) LIMIT 1) AS h LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'a request has been answered' USING ERRCODE = 'SM003';
    END IF;
  END IF;
  IF cardinality(a_client) > 0 THEN
    INSERT INTO semaphored.requests (client_id, sequence, kind, semaphore, claim, cause, number, remaining, changed, node)
      SELECT a.client_id, a_number[6 * place - 5], a_number[6 * place - 4], a.semaphore, a.claim, a_number[6 * place - 3],
             a_number[6 * place - 2], a_number[6 * place - 1], a_number[6 * place] <> 0, p_node
      FROM unnest(a_client, a_semaphore, a_claim) WITH ORDINALITY AS a(client_id, semaphore, claim, place)
      ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS counted = ROW_COUNT;
    PERFORM 1 FROM unnest(a_client) WITH ORDINALITY AS a(client_id, place)
      , LATERAL (SELECT 1 FROM semaphored.requests r WHERE r.client_id = a.client_id
                   AND r.sequence >= a_number[6 * place - 5] + p_window LIMIT 1) AS h LIMIT 1;
    IF FOUND OR counted <> cardinality(a_client) THEN
      RAISE EXCEPTION 'a request has been answered' USING ERRCODE = 'SM003';
    END IF;
  END IF;

  -- From here on everything holds.
  IF cardinality(w_name) > 0 THEN
    INSERT INTO semaphored.semaphores AS s (name, permits, backfill, longest_hold_ms, recall_grace_ms, permits_per_holder,
                                            waiters_max, paused, destroying, revision, created_at)
      SELECT w.name, w_number[9 * place - 8], w_number[9 * place - 7] <> 0, w_number[9 * place - 6], w_number[9 * place - 5],
             w_number[9 * place - 4], w_number[9 * place - 3], w_number[9 * place - 2] <> 0, w_number[9 * place - 1] <> 0, 0,
             to_timestamp(w_number[9 * place] / 1000.0)
      FROM unnest(w_name) WITH ORDINALITY AS w(name, place)
      ORDER BY w.name
      ON CONFLICT (name) DO UPDATE SET permits = excluded.permits, backfill = excluded.backfill,
        longest_hold_ms = excluded.longest_hold_ms, recall_grace_ms = excluded.recall_grace_ms,
        permits_per_holder = excluded.permits_per_holder, waiters_max = excluded.waiters_max, paused = excluded.paused,
        destroying = excluded.destroying;
    -- Made by another daemon after we looked: its revision is not 0.
    PERFORM 1 FROM unnest(s_name, s_revision) AS t(name, revision),
      LATERAL (SELECT 1 FROM semaphored.semaphores o WHERE o.name = t.name AND o.revision <> t.revision OFFSET 0) AS s LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'another daemon was first' USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF 0::bigint = ANY (s_revision) THEN
    -- A new one starts above every revision that its name may have had.
    UPDATE semaphored.semaphores s SET revision = f.revision_floor + 1, next_order = t.next_order
      FROM unnest(s_name, s_revision, s_kind, s_next_order) AS t(name, revision, kind, next_order), semaphored.store f
      WHERE s.name = t.name AND t.revision = 0 AND t.kind = 1;
    SELECT array_agg(COALESCE(s.revision, 0) ORDER BY t.place) INTO revisions
      FROM unnest(s_name, s_revision) WITH ORDINALITY AS t(name, revision, place)
      LEFT JOIN semaphored.semaphores s ON s.name = t.name
      WHERE t.revision = 0;
  END IF;
  UPDATE semaphored.semaphores s SET revision = s.revision + 1, next_order = t.next_order
    FROM unnest(s_name, s_revision, s_kind, s_next_order) AS t(name, revision, kind, next_order),
         LATERAL (SELECT o.ctid AS place FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS at
    WHERE s.ctid = at.place AND t.revision > 0 AND t.kind < 2;
  IF 2::smallint = ANY (s_kind) THEN
    UPDATE semaphored.store SET revision_floor = greatest(revision_floor,
      (SELECT max(t.revision) + 1 FROM unnest(s_revision, s_kind) AS t(revision, kind) WHERE t.kind = 2));
    DELETE FROM semaphored.semaphores s USING unnest(s_name, s_kind) AS t(name, kind) WHERE s.name = t.name AND t.kind = 2;
  END IF;

  IF cardinality(e_claim) > 0 THEN
    -- Each row is found by the index first, whatever the planner knows of the table when it plans this for good.
    WITH x AS MATERIALIZED (
      SELECT t.*, CASE WHEN t.history THEN nextval('semaphored.history_numbers') END AS number,
             CASE WHEN t.at = 0 THEN clock_timestamp() ELSE to_timestamp(t.at / 1000.0) END AS ended_at
        FROM unnest(e_semaphore, e_slots, e_claim, e_cause, e_history, e_at) AS t(semaphore, slots, claim, cause, history, at))
    UPDATE semaphored.leases l SET
        completed_at = CASE WHEN x.cause <> 2 THEN x.ended_at END, timed_out_at = CASE WHEN x.cause = 2 THEN x.ended_at END,
        end_cause = x.cause, history_number = x.number
      FROM x, unnest(x.slots::integer[]) AS one(slot),
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = x.semaphore AND o.slot = one.slot AND o.claim = x.claim
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> (SELECT sum(cardinality(slots::integer[])) FROM unnest(e_slots) AS slots) THEN
      RAISE EXCEPTION 'a lease that ends is not there' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(u_claim) > 0 THEN
    UPDATE semaphored.leases l SET permits = u_number[6 * t.place - 5], node = u_number[6 * t.place - 4],
        incarnation = u_number[6 * t.place - 3], epoch = u_number[6 * t.place - 2], recall_reason = u_number[6 * t.place - 1],
        recall_grace_ms = u_number[6 * t.place]
      FROM unnest(u_semaphore, u_slots, u_claim) WITH ORDINALITY AS t(semaphore, slots, claim, place),
           unnest(t.slots::integer[]) AS one(slot),
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = t.semaphore AND o.slot = one.slot AND o.claim = t.claim
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> (SELECT sum(cardinality(slots::integer[])) FROM unnest(u_slots) AS slots) THEN
      RAISE EXCEPTION 'a lease that changes is not there' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(g_claim) > 0 THEN
    -- Their semaphores are locked: who is granted the same slot later draws a higher one.
    SELECT array_agg(nextval('semaphored.tokens')) INTO tokens FROM generate_series(1, cardinality(g_claim));
    INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, permits, holder, session, client_id, sequence, node,
                                   incarnation, epoch, ttl_ms, priority, queue_order, recall_reason, recall_grace_ms, created_at,
                                   completed_at, timed_out_at, end_cause, history_number)
      SELECT g.semaphore, slot, 'd', g.claim, tokens[g.place], g_number[g.last - 12], g.holder, g.session, g.client_id,
             g_number[g.last - 11], g_number[g.last - 10], g_number[g.last - 9], g_number[g.last - 8], g_number[g.last - 7],
             g_number[g.last - 6], g_number[g.last - 5], g_number[g.last - 4], g_number[g.last - 3],
             to_timestamp(g_number[g.last - 2] / 1000.0),
             CASE WHEN g.cause NOT IN (0, 2) THEN to_timestamp(g_number[g.last] / 1000.0) END,
             CASE WHEN g.cause = 2 THEN to_timestamp(g_number[g.last] / 1000.0) END,
             NULLIF(g.cause, 0), g.number
      FROM (SELECT x.*, 13 * x.place AS last, g_number[13 * x.place - 1] AS cause,
                   CASE WHEN g_number[13 * x.place - 1] <> 0 THEN nextval('semaphored.history_numbers') END AS number
            FROM unnest(g_semaphore, g_slots, g_claim, g_holder, g_session, g_client)
                   WITH ORDINALITY AS x(semaphore, slots, claim, holder, session, client_id, place)) AS g,
           unnest(g.slots::integer[]) AS slot;
  END IF;

  IF cardinality(d_order) > 0 THEN
    DELETE FROM semaphored.waiters w USING unnest(d_semaphore, d_order) AS d(semaphore, queue_order),
        LATERAL (SELECT o.ctid AS place FROM semaphored.waiters o
                   WHERE o.semaphore = d.semaphore AND o.queue_order = d.queue_order OFFSET 0) AS at
      WHERE w.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(d_order) THEN
      RAISE EXCEPTION 'a waiter that leaves is not there' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(n_claim) > 0 THEN
    INSERT INTO semaphored.waiters (semaphore, queue_order, priority, claim, permits, holder, session, client_id, sequence, node,
                                    incarnation, epoch, ttl_ms, queued_at)
      SELECT n.semaphore, n_number[9 * place - 8], n_number[9 * place - 7], n.claim, n_number[9 * place - 6], n.holder, n.session,
             n.client_id, n_number[9 * place - 5], n_number[9 * place - 4], n_number[9 * place - 3], n_number[9 * place - 2],
             n_number[9 * place - 1], to_timestamp(n_number[9 * place] / 1000.0)
      FROM unnest(n_semaphore, n_claim, n_holder, n_session, n_client)
             WITH ORDINALITY AS n(semaphore, claim, holder, session, client_id, place);
  END IF;

  IF cardinality(x_id) > 0 THEN
    DELETE FROM semaphored.sessions s WHERE s.id = ANY (x_id);
  END IF;
  IF cardinality(y_id) > 0 THEN
    INSERT INTO semaphored.sessions AS s (id, node, incarnation, epoch, ttl_ms, client_id, release_on_disconnect, holder)
      SELECT y.id, y_number[5 * place - 4], y_number[5 * place - 3], y_number[5 * place - 2], y_number[5 * place - 1], y.client_id,
             y_number[5 * place] <> 0, y.holder
      FROM unnest(y_id, y_client, y_holder) WITH ORDINALITY AS y(id, client_id, holder, place)
      ON CONFLICT (id) DO UPDATE SET node = excluded.node, incarnation = excluded.incarnation, epoch = excluded.epoch,
        ttl_ms = excluded.ttl_ms, client_id = excluded.client_id, release_on_disconnect = excluded.release_on_disconnect,
        holder = excluded.holder;
  END IF;

  IF cardinality(f_client) > 0 THEN
    DELETE FROM semaphored.requests r USING unnest(f_client, f_below) AS f(client_id, below),
        LATERAL (SELECT o.ctid AS place FROM semaphored.requests o
                   WHERE o.client_id = f.client_id AND o.sequence < f.below OFFSET 0) AS at
      WHERE r.ctid = at.place;
  END IF;
  IF cardinality(forgotten) > 0 THEN
    DELETE FROM semaphored.requests r WHERE r.client_id = ANY (forgotten) AND r.node = p_node;
  END IF;

  IF cardinality(tokens) > 0 OR cardinality(revisions) > 0 THEN
    UPDATE semaphored.lanes l SET last_tokens = tokens, last_revisions = revisions
      WHERE l.node = p_node AND l.incarnation = p_incarnation AND l.lane = p_lane;
  END IF;
  IF cardinality(t_node) > 0 THEN
    PERFORM pg_notify('semaphored_' || t.node, t.semaphore) FROM unnest(t_node, t_semaphore) AS t(node, semaphore);
  END IF;
EXCEPTION
  WHEN SQLSTATE 'SM001' OR SQLSTATE 'SM002' OR SQLSTATE 'SM003' OR SQLSTATE 'SM004' THEN
    tokens := '{}';
    revisions := '{}';
    refusal := SQLSTATE;
END
$function$;

-- ---- For those who stay in SQL ----

-- Tells the daemons whose clients wait for the semaphore that it has changed.
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

-- Takes one permit at once: one row with its slot, its fencing token, and the claim by which to release it; no row if there is no
-- room, or if others wait. It ends by itself after `time_out` (at most 7 days), when somebody next looks. Raises undefined_object
-- (42704) if there is no such semaphore. To be called outside of a longer transaction: until that ends, nobody else can take or give
-- back a permit of the semaphore.
CREATE FUNCTION semaphored.claim(of_semaphore text, by_holder text DEFAULT '', time_out interval DEFAULT interval '90 seconds')
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
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no semaphore "%"', of_semaphore USING ERRCODE = 'undefined_object';
  END IF;
  IF row.paused OR row.destroying OR (SELECT withheld FROM semaphored.store) THEN
    RETURN;
  END IF;
  SELECT count(*) INTO held FROM semaphored.leases l
    WHERE l.semaphore = of_semaphore AND l.completed_at IS NULL AND l.timed_out_at IS NULL;
  IF held >= row.permits OR EXISTS (SELECT 1 FROM semaphored.waiters w WHERE w.semaphore = of_semaphore) THEN
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
  INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, permits, holder, session, node, incarnation, epoch, ttl_ms,
                                 priority, queue_order, created_at)
    VALUES (of_semaphore, given, 's', id, number, 1, by_holder, id, 0, 0, 1, milliseconds, 0, row.next_order, clock_timestamp());
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

-- Only who is granted them may call them; see docs/postgres.md.
REVOKE ALL ON FUNCTION semaphored.claim, semaphored.release, semaphored.time_out, semaphored.tell_waiting_daemons FROM PUBLIC;

INSERT INTO semaphored.store (version, oldest_daemon) VALUES (1, 1);
