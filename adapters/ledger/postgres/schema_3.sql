-- Version 3: tickets. Daemons of versions 1 and 2 may go on beside those of this one. They see nothing of the tables below, and need not:
--   * tickets and offers stand apart from the leases and waiters that they read and write;
--   * a lease under which a ticket is carried out is one as any other to them. When they end it, the ticket goes on naming it; whoever
--     reads such a ticket, or one whose lease was ended by hand, takes it for given back;
--   * what would leave tickets of nobody behind is refused them, by the triggers below.
-- One table that is in use is locked at a time: nobody waits in a circle.

-- Made by its first use, and not changed by an administrator since.
ALTER TABLE semaphored.semaphores ADD COLUMN made_on_use boolean NOT NULL DEFAULT false;

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
  trace                 text NOT NULL,          -- W3C traceparent of who enqueued it.
  reasons               jsonb NOT NULL DEFAULT '[]',  -- Why attempts failed, the last ones: attempt, text, at (milliseconds since 1970).
  enqueued_at           timestamptz NOT NULL,
  changed               bigint NOT NULL,        -- The semaphore's revision by which the row became as it is.
  CONSTRAINT lease_while_assigned CHECK ((lease IS NOT NULL) = (state = 3)),
  CONSTRAINT delay_while_delayed CHECK ((delay_ms > 0) = (state = 2)),
  PRIMARY KEY (semaphore, queue_order)
) WITH (fillfactor = 70);
-- What is in it does not change when a ticket is assigned: then no index is written.
CREATE INDEX tickets_delayed ON semaphored.tickets (node) WHERE delay_ms > 0;

-- Apart, so that what changes a ticket rewrites no payload; and not compressed: what is large is mostly compressed already, and time is
-- dearer than room for what soon goes again.
CREATE TABLE semaphored.payloads (
  ticket  uuid PRIMARY KEY,
  payload bytea NOT NULL
);
ALTER TABLE semaphored.payloads ALTER COLUMN payload SET STORAGE EXTERNAL;

-- Workers that wait for a ticket; the columns are those of waiters.
CREATE TABLE semaphored.offers (
  semaphore   text COLLATE "C" NOT NULL,
  queue_order bigint NOT NULL,
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
CREATE INDEX offers_of_session ON semaphored.offers (session) WHERE session <> claim;

-- What commit_1 leaves out of a batch: called right after it, in the same statement, where the batch has something of it. Returns the
-- empty string. Raises SM004, and the whole batch is taken back: a row that must be there is not, or one is that must not be. Numbers
-- are tables of numbers, row by row, as there.
CREATE FUNCTION semaphored.commit_tickets_1(
  -- Semaphores that are marked as made by their first use.
  made text[],
  -- Offers that leave (or change: then they come too), and that come.
  --   queue_order, priority, permits, sequence, node, incarnation, epoch, ttl_ms, queued_at
  d_semaphore text[], d_order bigint[],
  n_semaphore text[], n_claim uuid[], n_holder text[], n_session uuid[], n_client text[], n_number bigint[],
  -- Tickets that go, and their payloads.
  x_semaphore text[], x_order bigint[], x_ticket uuid[],
  -- Tickets that change. Reasons empty: as they are. A lease of zeros: none. Revision 0: the semaphore was made by this batch.
  --   queue_order, priority, state, attempt, delay_ms, delays, node, incarnation, revision
  u_semaphore text[], u_ticket uuid[], u_lease uuid[], u_reasons text[], u_number bigint[],
  -- Tickets that come. Their payloads stand one after the other in one value, from `offset` on.
  --   queue_order, priority, state, attempt, delay_ms, delays, node, incarnation, revision,
  --   max_attempts, back_off_initial_ms, back_off_percent, back_off_max_ms, payload_bytes, enqueued_at, offset
  t_semaphore text[], t_ticket uuid[], t_lease uuid[], t_reasons text[], t_content_type text[], t_trace text[], t_number bigint[],
  payloads bytea) RETURNS text
LANGUAGE plpgsql AS $function$
DECLARE
  counted integer;
  no_lease CONSTANT uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
  IF cardinality(made) > 0 THEN
    UPDATE semaphored.semaphores s SET made_on_use = true WHERE s.name = ANY (made);
  END IF;

  IF cardinality(d_order) > 0 THEN
    DELETE FROM semaphored.offers w USING unnest(d_semaphore, d_order) AS d(semaphore, queue_order),
        LATERAL (SELECT o.ctid AS place FROM semaphored.offers o
                   WHERE o.semaphore = d.semaphore AND o.queue_order = d.queue_order OFFSET 0) AS at
      WHERE w.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(d_order) THEN
      RAISE EXCEPTION 'an offer is not there' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(n_claim) > 0 THEN
    INSERT INTO semaphored.offers (semaphore, queue_order, priority, claim, permits, holder, session, client_id, sequence, node,
                                   incarnation, epoch, ttl_ms, queued_at)
      SELECT n.semaphore, n_number[9 * place - 8], n_number[9 * place - 7], n.claim, n_number[9 * place - 6], n.holder, n.session,
             n.client_id, n_number[9 * place - 5], n_number[9 * place - 4], n_number[9 * place - 3], n_number[9 * place - 2],
             n_number[9 * place - 1], to_timestamp(n_number[9 * place] / 1000.0)
      FROM unnest(n_semaphore, n_claim, n_holder, n_session, n_client)
             WITH ORDINALITY AS n(semaphore, claim, holder, session, client_id, place)
      ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(n_claim) THEN
      RAISE EXCEPTION 'an offer stands in the place of another' USING ERRCODE = 'SM004';
    END IF;
  END IF;

  IF cardinality(x_ticket) > 0 THEN
    DELETE FROM semaphored.tickets t USING unnest(x_semaphore, x_order, x_ticket) AS x(semaphore, queue_order, ticket),
        LATERAL (SELECT o.ctid AS place FROM semaphored.tickets o
                   WHERE o.semaphore = x.semaphore AND o.queue_order = x.queue_order AND o.ticket = x.ticket OFFSET 0) AS at
      WHERE t.ctid = at.place;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(x_ticket) THEN
      RAISE EXCEPTION 'a ticket is not there' USING ERRCODE = 'SM004';
    END IF;
    DELETE FROM semaphored.payloads p USING unnest(x_ticket) AS x(ticket),
        LATERAL (SELECT o.ctid AS place FROM semaphored.payloads o WHERE o.ticket = x.ticket OFFSET 0) AS at
      WHERE p.ctid = at.place;
  END IF;
  IF cardinality(u_ticket) > 0 THEN
    UPDATE semaphored.tickets t SET priority = u_number[9 * u.place - 7], state = u_number[9 * u.place - 6],
        attempt = u_number[9 * u.place - 5], delay_ms = u_number[9 * u.place - 4], delays = u_number[9 * u.place - 3],
        node = u_number[9 * u.place - 2], incarnation = u_number[9 * u.place - 1], lease = NULLIF(u.lease, no_lease),
        reasons = CASE u.reasons WHEN '' THEN t.reasons ELSE u.reasons::jsonb END,
        changed = CASE u_number[9 * u.place]
          WHEN 0 THEN (SELECT s.revision FROM semaphored.semaphores s WHERE s.name = u.semaphore) ELSE u_number[9 * u.place] END
      FROM unnest(u_semaphore, u_ticket, u_lease, u_reasons) WITH ORDINALITY AS u(semaphore, ticket, lease, reasons, place),
           LATERAL (SELECT o.ctid AS spot FROM semaphored.tickets o
                      WHERE o.semaphore = u.semaphore AND o.queue_order = u_number[9 * u.place - 8] AND o.ticket = u.ticket
                      OFFSET 0) AS at
      WHERE t.ctid = at.spot;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted <> cardinality(u_ticket) THEN
      RAISE EXCEPTION 'a ticket is not there' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  IF cardinality(t_ticket) > 0 THEN
    INSERT INTO semaphored.payloads (ticket, payload)
      SELECT t.ticket, substring(payloads FROM t_number[16 * place]::integer FOR t_number[16 * place - 2]::integer)
      FROM unnest(t_ticket) WITH ORDINALITY AS t(ticket, place)
      ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS counted = ROW_COUNT;
    IF counted = cardinality(t_ticket) THEN
      INSERT INTO semaphored.tickets (semaphore, queue_order, priority, ticket, state, attempt, delay_ms, delays, node, incarnation,
                                      lease, content_type, trace, reasons, changed, max_attempts, back_off_initial_ms,
                                      back_off_percent, back_off_max_ms, payload_bytes, enqueued_at)
        SELECT t.semaphore, t_number[16 * place - 15], t_number[16 * place - 14], t.ticket, t_number[16 * place - 13],
               t_number[16 * place - 12], t_number[16 * place - 11], t_number[16 * place - 10], t_number[16 * place - 9],
               t_number[16 * place - 8], NULLIF(t.lease, no_lease), t.content_type, t.trace, t.reasons::jsonb,
               CASE t_number[16 * place - 7]
                 WHEN 0 THEN (SELECT s.revision FROM semaphored.semaphores s WHERE s.name = t.semaphore)
                 ELSE t_number[16 * place - 7] END,
               t_number[16 * place - 6], t_number[16 * place - 5], t_number[16 * place - 4], t_number[16 * place - 3],
               t_number[16 * place - 2], to_timestamp(t_number[16 * place - 1] / 1000.0)
        FROM unnest(t_semaphore, t_ticket, t_lease, t_reasons, t_content_type, t_trace)
               WITH ORDINALITY AS t(semaphore, ticket, lease, reasons, content_type, trace, place)
        ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS counted = ROW_COUNT;
    END IF;
    IF counted <> cardinality(t_ticket) THEN
      RAISE EXCEPTION 'a ticket is there already' USING ERRCODE = 'SM004';
    END IF;
  END IF;
  RETURN '';
END
$function$;

-- ---- Of those who do not know of tickets: daemons of older versions, and people ----

-- At the end of the transaction, so that whoever knows of tickets may take them out with their semaphore, in whatever order.
CREATE FUNCTION semaphored.keep_tickets() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  IF EXISTS (SELECT 1 FROM semaphored.semaphores s WHERE s.name = OLD.name AND NOT s.destroying) THEN
    RETURN NULL;  -- Made anew meanwhile.
  END IF;
  IF EXISTS (SELECT 1 FROM semaphored.tickets t WHERE t.semaphore = OLD.name) THEN
    RAISE EXCEPTION 'semaphore "%" has tickets, or dead letters: only a semaphored that knows of them destroys it', OLD.name
      USING ERRCODE = 'object_in_use';
  END IF;
  IF TG_OP = 'DELETE' THEN
    DELETE FROM semaphored.offers o WHERE o.semaphore = OLD.name;
  END IF;
  RETURN NULL;
END
$function$;
CREATE CONSTRAINT TRIGGER keep_tickets_of_deleted AFTER DELETE ON semaphored.semaphores DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION semaphored.keep_tickets();
CREATE CONSTRAINT TRIGGER keep_tickets_of_destroyed AFTER UPDATE OF destroying ON semaphored.semaphores DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (NEW.destroying AND NOT OLD.destroying) EXECUTE FUNCTION semaphored.keep_tickets();

-- Whoever changes a semaphore's settings administers it. (commit_tickets_1 marks it again, if that is not what was done.)
CREATE FUNCTION semaphored.make_lasting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  UPDATE semaphored.semaphores s SET made_on_use = false WHERE s.name = NEW.name;
  RETURN NULL;
END
$function$;
CREATE TRIGGER make_lasting AFTER UPDATE OF permits, backfill, longest_hold_ms, recall_grace_ms, permits_per_holder, waiters_max, paused
  ON semaphored.semaphores
  FOR EACH ROW WHEN (OLD.made_on_use AND NEW.made_on_use) EXECUTE FUNCTION semaphored.make_lasting();

-- A dead daemon's row stays for as long as a ticket names it as the one that counts its delay: by it whoever takes over finds it.
CREATE FUNCTION semaphored.keep_node() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
  IF EXISTS (SELECT 1 FROM semaphored.tickets t WHERE t.node = OLD.number AND t.delay_ms > 0)
     OR EXISTS (SELECT 1 FROM semaphored.offers o WHERE o.node = OLD.number) THEN
    RETURN NULL;
  END IF;
  RETURN OLD;
END
$function$;

-- Tells the daemons whose clients wait for the semaphore, or offer to work there, that it has changed.
CREATE OR REPLACE FUNCTION semaphored.tell_waiting_daemons(of_semaphore text) RETURNS void
LANGUAGE sql AS $function$
  SELECT pg_notify('semaphored_' || n.node, of_semaphore)
    FROM (SELECT COALESCE(s.node, w.node) AS node FROM semaphored.waiters w
            LEFT JOIN semaphored.sessions s ON s.id = w.session WHERE w.semaphore = of_semaphore
          UNION
          SELECT COALESCE(s.node, o.node) FROM semaphored.offers o
            LEFT JOIN semaphored.sessions s ON s.id = o.session WHERE o.semaphore = of_semaphore) AS n;
$function$;

-- ---- To look at ----

-- The queue of tickets, dead letters too, and who carries them out.
CREATE VIEW semaphored.work AS
  SELECT t.semaphore, t.ticket, (ARRAY['queued', 'delayed', 'assigned', 'dead'])[t.state] AS state, t.priority, t.attempt,
         t.max_attempts, t.delay_ms, t.enqueued_at, l.slot, l.holder, l.token, l.created_at AS since,
         t.reasons -> -1 ->> 'text' AS last_reason, t.reasons, t.content_type, p.payload, t.trace, t.queue_order
    FROM semaphored.tickets t
    LEFT JOIN semaphored.payloads p ON p.ticket = t.ticket
    LEFT JOIN semaphored.leases l ON l.semaphore = t.semaphore AND l.claim = t.lease AND l.completed_at IS NULL AND l.timed_out_at IS NULL;

UPDATE semaphored.store SET version = 3;

-- Last, since daemons write to it at all times.
CREATE TRIGGER keep_node BEFORE DELETE ON semaphored.nodes FOR EACH ROW EXECUTE FUNCTION semaphored.keep_node();
