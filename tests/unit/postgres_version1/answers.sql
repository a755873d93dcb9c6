-- What requests were answered. As a daemon of version 1 asks it.
SELECT r.kind, r.semaphore, r.claim, r.cause, r.number, r.remaining, r.changed,
       CASE WHEN r.kind IS NULL
         THEN EXISTS (SELECT 1 FROM semaphored.clients c WHERE c.client_id = q.client_id AND c.floor > q.sequence)
         ELSE EXISTS (SELECT 1 FROM semaphored.requests h
                        WHERE h.client_id = q.client_id AND h.sequence >= q.sequence + $3::bigint) END
  FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS q(client_id, sequence, place)
  LEFT JOIN LATERAL (
    SELECT * FROM semaphored.requests o WHERE o.client_id = q.client_id AND o.sequence = q.sequence OFFSET 0) AS r ON true
  ORDER BY q.place
