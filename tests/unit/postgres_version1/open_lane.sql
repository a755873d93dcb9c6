-- A lane's row is made, or found. As a daemon of version 1 does it.
WITH n AS (SELECT number, incarnation FROM semaphored.nodes WHERE number = $1 AND incarnation = $2 AND NOT dead FOR SHARE)
INSERT INTO semaphored.lanes AS l (node, incarnation, lane) SELECT number, incarnation, $3 FROM n
  ON CONFLICT (node, incarnation, lane) DO UPDATE SET commits = l.commits RETURNING commits
