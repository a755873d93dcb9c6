-- Uses up the number of a commit whose answer was lost. As a daemon of version 1 asks it.
UPDATE semaphored.lanes SET commits = commits + 1
  WHERE node = $1 AND incarnation = $2 AND lane = $3 AND commits = $4 AND alive RETURNING commits
