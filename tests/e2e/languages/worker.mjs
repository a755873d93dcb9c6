// Takes permits with the Node client, one after the other, and writes down when it is inside.
//
//   worker.mjs ADDRESS[,ADDRESS...] NAME LIMIT LOGFILE SECONDS
//
// LOGFILE gets lines "enter PID NS" and "exit PID NS", each appended in one write; NS is CLOCK_MONOTONIC. "enter" is
// written after the grant came, "exit" before the permit is given back, or as soon as it is lost.
import fs from 'node:fs';

import semaphored from '../../../client/node/index.js';

const [addresses, name, limit, logFile, seconds] = process.argv.slice(2);
const log = fs.openSync(logFile, 'a');
const note = (what) => fs.writeSync(log, `${what} ${process.pid} ${process.hrtime.bigint()}\n`);
const endsAt = performance.now() + Number(seconds) * 1e3;

// Inside for some milliseconds, or until the permit is lost.
function stayInside(permit) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, 5 + Math.random() * 20);
    permit.signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

const client = new semaphored.Client({
  endpoints: addresses.split(','),
  ttlMs: Number(process.env.WORKER_TTL_MS ?? 2_000),
  holder: `node:${process.pid}`,
});
while (performance.now() < endsAt) {
  let permit;
  try {
    permit = await client.acquire(name, { limit: Number(limit), waitMs: 1_000 });
  } catch (error) {
    if (!(error instanceof semaphored.SemaphoreError)) throw error;
    if (!['DEADLINE_EXCEEDED', 'UNAVAILABLE'].includes(error.code)) throw error;
    continue;
  }
  if (!permit.held) continue;
  note('enter');
  await stayInside(permit);
  note('exit');
  await permit.release().catch((error) => {
    if (!(error instanceof semaphored.SemaphoreError)) throw error;
  });
}
await client.close();
