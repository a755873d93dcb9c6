-- A daemon comes, or comes again. As a daemon of version 1 asks it.
WITH joined AS (
  INSERT INTO semaphored.nodes AS n (node_id) VALUES ($1)
    ON CONFLICT (node_id) DO UPDATE SET incarnation = n.incarnation + 1, counter = n.counter + 1, dead = false,
      started_at = now()
    RETURNING number, incarnation),
ended AS (
  UPDATE semaphored.lanes l SET alive = false FROM joined j WHERE l.node = j.number AND l.alive RETURNING l.lane),
dropped AS (
  DELETE FROM semaphored.lanes l USING joined j WHERE l.node = j.number AND NOT l.alive AND l.incarnation < j.incarnation - 1
    RETURNING l.lane)
SELECT number, incarnation, (SELECT count(*) FROM ended), (SELECT count(*) FROM dropped) FROM joined
