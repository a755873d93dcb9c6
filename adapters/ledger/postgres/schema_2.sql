-- Version 2: two views to read, and an index. Daemons of version 1 may go on beside those of this one.

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

-- Slots that were given back while the rest of their lease stayed.
CREATE INDEX leases_parts ON semaphored.leases (completed_at) WHERE history_number IS NULL AND completed_at IS NOT NULL;

UPDATE semaphored.store SET version = 2;
