-- Reads semaphores, their claims, and the sessions that they speak of. As a daemon of version 1 asks it.
WITH wanted AS MATERIALIZED (SELECT DISTINCT name FROM unnest($1::text[]) AS name),
l AS MATERIALIZED (
  SELECT l.* FROM wanted, LATERAL (
    SELECT * FROM semaphored.leases o WHERE o.semaphore = wanted.name AND o.completed_at IS NULL AND o.timed_out_at IS NULL
    OFFSET 0) AS l),
w AS MATERIALIZED (
  SELECT w.* FROM wanted, LATERAL (SELECT * FROM semaphored.waiters o WHERE o.semaphore = wanted.name OFFSET 0) AS w)
SELECT 's', s.name, NULL::uuid, NULL::uuid, '', '',
       ARRAY[s.permits, s.backfill::int, s.longest_hold_ms, s.recall_grace_ms, s.permits_per_holder, s.waiters_max,
             s.paused::int, s.destroying::int, s.next_order, s.revision, (extract(epoch FROM s.created_at) * 1000)::bigint]
  FROM wanted, LATERAL (SELECT * FROM semaphored.semaphores o WHERE o.name = wanted.name OFFSET 0) AS s
UNION ALL
SELECT 'l', l.semaphore, l.claim, l.session, l.client_id, l.holder,
       ARRAY[l.slot, CASE l.kind WHEN 's' THEN 1 ELSE 0 END, l.token, l.permits, l.sequence, l.node, l.incarnation, l.epoch,
             l.ttl_ms, l.priority, l.queue_order, l.recall_reason, l.recall_grace_ms,
             (extract(epoch FROM l.created_at) * 1000)::bigint]
  FROM l
UNION ALL
SELECT 'w', w.semaphore, w.claim, w.session, w.client_id, w.holder,
       ARRAY[w.queue_order, w.priority, w.permits, w.sequence, w.node, w.incarnation, w.epoch, w.ttl_ms,
             (extract(epoch FROM w.queued_at) * 1000)::bigint]
  FROM w
UNION ALL
SELECT 'n', '', s.id, s.id, s.client_id, s.holder,
       ARRAY[s.node, s.incarnation, s.epoch, s.ttl_ms, s.release_on_disconnect::int]
  FROM (SELECT l.session FROM l WHERE l.session <> l.claim UNION SELECT w.session FROM w WHERE w.session <> w.claim) AS x
  , LATERAL (SELECT * FROM semaphored.sessions o WHERE o.id = x.session OFFSET 0) AS s
