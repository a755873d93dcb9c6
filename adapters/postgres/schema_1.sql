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
  revision_floor bigint NOT NULL DEFAULT 0,   -- No semaphore that was destroyed had a higher revision.
  -- What daemons tell each other is sealed with it: any role may send notifications. For daemons' eyes only.
  secret         text NOT NULL DEFAULT encode(sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')), 'hex')
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
CREATE INDEX leases_history_of_semaphore ON semaphored.leases (semaphore, history_number) WHERE history_number IS NOT NULL;

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
  node      integer NOT NULL,               -- Who answered, and forgets it again: a lane of one life of a daemon,
  incarnation integer NOT NULL,             -- or, when that has ended, any other.
  lane      integer NOT NULL,
  CONSTRAINT answered_once PRIMARY KEY (client_id, sequence)
);
-- Answers of the client to requests below this number have been forgotten.
CREATE TABLE semaphored.clients (
  client_id text COLLATE "C" PRIMARY KEY,
  floor     bigint NOT NULL
) WITH (fillfactor = 50);

-- One lane's batch, as a whole or not at all. Called by daemons only. Arrays that belong together have the same first letter.
-- x_number is a table of numbers, row by row: Postgres takes at most 100 arguments. x_slot are the slots of all leases together, and
-- x_of says to which each belongs, from 1.
--
-- A refusal changes nothing. SM001: this daemon was declared dead or replaced (or the number of the commit is not the next). SM002: a
-- condition does not hold any more. SM003: one of the requests has been answered, or is too old. SM004: a row that must be there is
-- not. Empty: it is done. (They are no errors, since the first three are the ordinary fate of whoever comes second, and no concern of
-- the server's log.)
--
-- Rows are looked up by their index, one by one (LATERAL … OFFSET 0), and then written by their place: the plan is made once, perhaps
-- while the tables are empty, and must be right when they are not.
CREATE FUNCTION semaphored.commit_1(
  p_node integer, p_incarnation integer, p_lane integer, p_number bigint,
  -- Hosts from which sessions are moved away.
  moved_from integer[],
  -- Semaphores that are touched, in the order of their names. Expected revision 0: is made. kind 0: only revision and order; 1: the
  -- row too; 2: destroyed; 3: made and destroyed at once.
  s_name text[], s_revision bigint[], s_kind smallint[], s_next_order bigint[],
  -- Rows, for kind 1:
  --   permits, backfill, longest_hold_ms, recall_grace_ms, permits_per_holder, waiters_max, paused, destroying, created_at
  w_name text[], w_number bigint[],
  -- Semaphores that answers rest upon. Revision 0: must not exist.
  r_name text[], r_revision bigint[],
  -- Epochs that sessions must have.
  c_session uuid[], c_epoch integer[],
  -- Requests that must not have been answered.
  q_client text[], q_sequence bigint[],
  -- Leases: slots that are given back. At 0: now.
  --   cause, history (1: yes), at
  e_semaphore text[], e_claim uuid[], e_number bigint[], e_of integer[], e_slot integer[],
  -- Leases: changes in place, of all live slots.
  --   permits, node, incarnation, epoch, recall_reason, recall_grace_ms
  u_semaphore text[], u_claim uuid[], u_number bigint[], u_of integer[], u_slot integer[],
  -- Leases that are granted; ended in this very batch where cause is not 0.
  --   permits, sequence, node, incarnation, epoch, ttl_ms, priority, queue_order, recall_reason, recall_grace_ms, created_at, cause,
  --   ended_at
  g_semaphore text[], g_claim uuid[], g_holder text[], g_session uuid[], g_client text[], g_number bigint[], g_of integer[],
  g_slot integer[],
  -- Waiters that leave (or change: then they come too), and that come.
  --   queue_order, priority, permits, sequence, node, incarnation, epoch, ttl_ms, queued_at
  d_semaphore text[], d_order bigint[],
  n_semaphore text[], n_claim uuid[], n_holder text[], n_session uuid[], n_client text[], n_number bigint[],
  -- Sessions as they must be (epoch 0: must not exist) …
  --   epoch, node, incarnation
  o_id uuid[], o_number bigint[],
  -- … those that go, and those that come or change.
  --   node, incarnation, epoch, ttl_ms, release_on_disconnect
  x_id uuid[],
  y_id uuid[], y_client text[], y_holder text[], y_number bigint[],
  -- Answers.
  --   sequence, kind, cause, number, remaining, changed
  a_client text[], a_semaphore text[], a_claim uuid[], a_number bigint[],
  -- Answers that may be forgotten, those below a number; and clients whose answers of this lane may.
  f_client text[], f_below bigint[], forgotten text[],
  -- Daemons to be told, and of what: a semaphore and its revision; and what has changed in it, empty: it is to be read.
  t_node integer[], t_message text[], t_news text[],
  -- Of the leases that are granted, and of the semaphores that are made, in the order in which they came.
  OUT tokens bigint[], OUT revisions bigint[], OUT refusal text)
LANGUAGE plpgsql AS $function$
DECLARE
  counted integer;
  numbers bigint[] := '{}';
  violated text;
  key text;
  drawn text;
BEGIN
  refusal := '';
  tokens := '{}';
  revisions := '{}';
  IF cardinality(moved_from) > 0 THEN
    PERFORM 1 FROM semaphored.lanes l WHERE l.alive AND (l.node = ANY (moved_from) OR l.node = p_node)
      ORDER BY l.node, l.incarnation, l.lane FOR UPDATE;
  END IF;
  UPDATE semaphored.lanes l SET commits = p_number + 1
    WHERE l.node = p_node AND l.incarnation = p_incarnation AND l.lane = p_lane AND l.alive AND l.commits = p_number;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'SM001';
  END IF;

  -- Found and written one after the other, in the order of their names: two batches never wait for each other in a circle.
  -- (A nested loop, since all other joins are off for daemons.) Who is second finds another version of the row than it looked up,
  -- and so writes less than it should.
  UPDATE semaphored.semaphores s SET revision = s.revision + 1, next_order = t.next_order
    FROM unnest(s_name, s_revision, s_next_order) AS t(name, revision, next_order),
         LATERAL (SELECT o.ctid AS place FROM semaphored.semaphores o
                    WHERE o.name = t.name AND o.revision = t.revision OFFSET 0) AS at
    WHERE s.ctid = at.place AND t.revision > 0;
  GET DIAGNOSTICS counted = ROW_COUNT;
  IF 0::bigint = ANY (s_revision) THEN
    counted := counted + cardinality(array_positions(s_revision, 0::bigint));
    PERFORM 1 FROM semaphored.semaphores s
      WHERE s.name = ANY (ARRAY(SELECT t.name FROM unnest(s_name, s_revision) AS t(name, revision) WHERE t.revision = 0)) LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF counted <> cardinality(s_name) THEN
    RAISE EXCEPTION USING ERRCODE = 'SM002';
  END IF;
  IF cardinality(r_name) > 0 THEN
    PERFORM 1 FROM unnest(r_name, r_revision) AS t(name, revision)
      LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
      WHERE COALESCE(s.revision, 0) <> t.revision LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(c_session) > 0 THEN
    SELECT count(*) INTO counted FROM unnest(c_session, c_epoch) AS c(id, epoch),
      LATERAL (SELECT 1 FROM semaphored.sessions o WHERE o.id = c.id AND o.epoch = c.epoch OFFSET 0) AS s;
    IF counted <> cardinality(c_session) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(o_id) > 0 THEN
    PERFORM 1 FROM semaphored.sessions s WHERE s.id = ANY (o_id) ORDER BY s.id FOR UPDATE;
    SELECT count(*) INTO counted FROM unnest(o_id) WITH ORDINALITY AS o(id, place)
      LEFT JOIN LATERAL (SELECT * FROM semaphored.sessions i WHERE i.id = o.id OFFSET 0) AS s ON true
      WHERE COALESCE(s.epoch, 0) = o_number[3 * place - 2]
        AND (s.id IS NULL OR (s.node = o_number[3 * place - 1] AND s.incarnation = o_number[3 * place]));
    IF counted <> cardinality(o_id) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
  END IF;
  IF cardinality(q_client) > 0 THEN
    PERFORM 1 FROM unnest(q_client, q_sequence) AS q(client_id, sequence),
      LATERAL (SELECT 1 FROM semaphored.requests r WHERE r.client_id = q.client_id AND r.sequence = q.sequence
               UNION ALL
               SELECT 1 FROM semaphored.clients c WHERE c.client_id = q.client_id AND c.floor > q.sequence) AS h
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM003';
    END IF;
  END IF;
  IF cardinality(a_client) > 0 THEN
    -- Whoever has been answered violates answered_once; see below.
    INSERT INTO semaphored.requests (client_id, sequence, kind, semaphore, claim, cause, number, remaining, changed,
                                     node, incarnation, lane)
      SELECT a.client_id, a_number[6 * place - 5], a_number[6 * place - 4], a.semaphore, a.claim, a_number[6 * place - 3],
             a_number[6 * place - 2], a_number[6 * place - 1], a_number[6 * place] <> 0,
             p_node, p_incarnation, p_lane
      FROM unnest(a_client, a_semaphore, a_claim) WITH ORDINALITY AS a(client_id, semaphore, claim, place);
    PERFORM 1 FROM (SELECT a.client_id, min(a_number[6 * place - 5]) AS lowest
                      FROM unnest(a_client) WITH ORDINALITY AS a(client_id, place) GROUP BY a.client_id) AS a,
      LATERAL (SELECT 1 FROM semaphored.clients c WHERE c.client_id = a.client_id AND c.floor > a.lowest OFFSET 0) AS h
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM003';
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
      ON CONFLICT (name) DO UPDATE SET permits = excluded.permits, backfill = excluded.backfill,
        longest_hold_ms = excluded.longest_hold_ms, recall_grace_ms = excluded.recall_grace_ms,
        permits_per_holder = excluded.permits_per_holder, waiters_max = excluded.waiters_max, paused = excluded.paused,
        destroying = excluded.destroying, created_at = excluded.created_at;
  END IF;
  IF 0::bigint = ANY (s_revision) THEN
    -- Made by another daemon after we looked: its revision is not 0.
    PERFORM 1 FROM unnest(s_name, s_revision) AS t(name, revision),
      LATERAL (SELECT 1 FROM semaphored.semaphores o WHERE o.name = t.name AND o.revision <> 0 AND t.revision = 0 OFFSET 0) AS s
      LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION USING ERRCODE = 'SM002';
    END IF;
    -- A new one starts above every revision that its name may have had.
    UPDATE semaphored.semaphores s SET revision = (SELECT revision_floor + 1 FROM semaphored.store), next_order = t.next_order
      FROM unnest(s_name, s_revision, s_kind, s_next_order) AS t(name, revision, kind, next_order),
           LATERAL (SELECT o.ctid AS place FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS at
      WHERE s.ctid = at.place AND t.revision = 0 AND t.kind = 1;
    SELECT array_agg(COALESCE(s.revision, 0) ORDER BY t.place) INTO revisions
      FROM unnest(s_name, s_revision) WITH ORDINALITY AS t(name, revision, place)
      LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
      WHERE t.revision = 0;
  END IF;
  IF 2::smallint = ANY (s_kind) THEN
    UPDATE semaphored.store SET revision_floor = greatest(revision_floor,
      (SELECT max(t.revision) + 1 FROM unnest(s_revision, s_kind) AS t(revision, kind) WHERE t.kind = 2));
    DELETE FROM semaphored.semaphores s
      WHERE s.name = ANY (ARRAY(SELECT t.name FROM unnest(s_name, s_kind) AS t(name, kind) WHERE t.kind = 2));
  END IF;

  IF cardinality(e_claim) > 0 THEN
    FOR i IN 1 .. cardinality(e_claim) LOOP
      numbers[i] := CASE WHEN e_number[3 * i - 1] = 1 THEN nextval('semaphored.history_numbers') END;
    END LOOP;
    UPDATE semaphored.leases l SET
        completed_at = CASE WHEN e_number[3 * e.of - 2] <> 2 THEN CASE e_number[3 * e.of] WHEN 0 THEN clock_timestamp()
                         ELSE to_timestamp(e_number[3 * e.of] / 1000.0) END END,
        timed_out_at = CASE WHEN e_number[3 * e.of - 2] = 2 THEN to_timestamp(e_number[3 * e.of] / 1000.0) END,
        end_cause = e_number[3 * e.of - 2], history_number = numbers[e.of]
      FROM unnest(e_of, e_slot) AS e(of, slot),
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = e_semaphore[e.of] AND o.slot = e.slot AND o.claim = e_claim[e.of]
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(e_slot) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(u_claim) > 0 THEN
    UPDATE semaphored.leases l SET permits = u_number[6 * u.of - 5], node = u_number[6 * u.of - 4],
        incarnation = u_number[6 * u.of - 3], epoch = u_number[6 * u.of - 2], recall_reason = u_number[6 * u.of - 1],
        recall_grace_ms = u_number[6 * u.of]
      FROM unnest(u_of, u_slot) AS u(of, slot),
           LATERAL (SELECT o.ctid AS place FROM semaphored.leases o
                      WHERE o.semaphore = u_semaphore[u.of] AND o.slot = u.slot AND o.claim = u_claim[u.of]
                        AND o.completed_at IS NULL AND o.timed_out_at IS NULL OFFSET 0) AS at
      WHERE l.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(u_slot) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(g_claim) > 0 THEN
    -- Their semaphores are locked: who is granted the same slot later draws a higher one.
    FOR i IN 1 .. cardinality(g_claim) LOOP
      tokens[i] := nextval('semaphored.tokens');
      numbers[i] := CASE WHEN g_number[13 * i - 1] <> 0 THEN nextval('semaphored.history_numbers') END;
    END LOOP;
    INSERT INTO semaphored.leases (semaphore, slot, kind, claim, token, permits, holder, session, client_id, sequence, node,
                                   incarnation, epoch, ttl_ms, priority, queue_order, recall_reason, recall_grace_ms, created_at,
                                   completed_at, timed_out_at, end_cause, history_number)
      SELECT g_semaphore[of], slot, 'd', g_claim[of], tokens[of], g_number[13 * of - 12], g_holder[of], g_session[of], g_client[of],
             g_number[13 * of - 11], g_number[13 * of - 10], g_number[13 * of - 9], g_number[13 * of - 8], g_number[13 * of - 7],
             g_number[13 * of - 6], g_number[13 * of - 5], g_number[13 * of - 4], g_number[13 * of - 3],
             to_timestamp(g_number[13 * of - 2] / 1000.0),
             CASE WHEN g_number[13 * of - 1] NOT IN (0, 2) THEN to_timestamp(g_number[13 * of] / 1000.0) END,
             CASE WHEN g_number[13 * of - 1] = 2 THEN to_timestamp(g_number[13 * of] / 1000.0) END,
             NULLIF(g_number[13 * of - 1], 0), numbers[of]
      FROM unnest(g_of, g_slot) AS g(of, slot);
  END IF;

  IF cardinality(d_order) > 0 THEN
    DELETE FROM semaphored.waiters w USING unnest(d_semaphore, d_order) AS d(semaphore, queue_order),
        LATERAL (SELECT o.ctid AS place FROM semaphored.waiters o
                   WHERE o.semaphore = d.semaphore AND o.queue_order = d.queue_order OFFSET 0) AS at
      WHERE w.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(d_order) THEN
      RAISE EXCEPTION USING ERRCODE = 'SM004';
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
    -- From where the last one ended: the index still shows what was deleted before.
    FOR i IN 1 .. cardinality(f_client) LOOP
      DELETE FROM semaphored.requests r WHERE r.client_id = f_client[i] AND r.sequence < f_below[i]
        AND r.sequence >= COALESCE((SELECT c.floor FROM semaphored.clients c WHERE c.client_id = f_client[i]), 0);
    END LOOP;
    INSERT INTO semaphored.clients AS c (client_id, floor)
      SELECT f.client_id, max(f.below) FROM unnest(f_client, f_below) AS f(client_id, below) GROUP BY f.client_id ORDER BY f.client_id
      ON CONFLICT (client_id) DO UPDATE SET floor = greatest(c.floor, excluded.floor);
  END IF;
  IF cardinality(forgotten) > 0 THEN
    DELETE FROM semaphored.requests r WHERE r.client_id = ANY (forgotten)
      AND r.node = p_node AND r.incarnation = p_incarnation AND r.lane = p_lane;
    DELETE FROM semaphored.clients c WHERE c.client_id = ANY (forgotten)
      AND NOT EXISTS (SELECT 1 FROM semaphored.requests r WHERE r.client_id = c.client_id);
  END IF;
  IF cardinality(t_node) > 0 THEN
    drawn := array_to_string(tokens, ',');
    SELECT s.secret INTO key FROM semaphored.store s;
    PERFORM pg_notify('semaphored_' || t.node, CASE t.news WHEN '' THEN t.message ELSE t.message || ' ' || encode(sha256(convert_to(
        key || encode(sha256(convert_to(key || t.message || ' ' || drawn || ' ' || t.news, 'UTF8')), 'hex'), 'UTF8')), 'hex')
        || ' ' || drawn || ' ' || t.news END)
      FROM unnest(t_node, t_message, t_news) AS t(node, message, news);
  END IF;
EXCEPTION
  WHEN SQLSTATE 'SM001' OR SQLSTATE 'SM002' OR SQLSTATE 'SM003' OR SQLSTATE 'SM004' THEN
    tokens := '{}';
    revisions := '{}';
    refusal := SQLSTATE;
  WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME;
    IF violated <> 'answered_once' THEN
      RAISE;
    END IF;
    tokens := '{}';
    revisions := '{}';
    refusal := 'SM003';
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
