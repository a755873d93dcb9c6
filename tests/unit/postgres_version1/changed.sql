-- Names among the first argument whose revision is not that of the second. As a daemon of version 1 asks it.
SELECT t.name FROM unnest($1::text[], $2::bigint[]) AS t(name, revision)
  LEFT JOIN LATERAL (SELECT o.revision FROM semaphored.semaphores o WHERE o.name = t.name OFFSET 0) AS s ON true
  WHERE COALESCE(s.revision, 0) <> t.revision
