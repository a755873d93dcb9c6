-- How far a lane has come. As a daemon of version 1 asks it.
SELECT commits, alive FROM semaphored.lanes WHERE node = $1 AND incarnation = $2 AND lane = $3
