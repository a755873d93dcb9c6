// Holds permits with the Node client, one after the other, and records each act of its work in a trace; as holder.py
// beside it.
//
//   holder.mjs ADDRESS[,ADDRESS...] NAME LIMIT TTL_MS SEED TRACE
import fs from 'node:fs';

import semaphored from '../../../client/node/index.js';

const WAIT_MS = 5_000;
const ACT_EVERY_MS = 10;
const STAYS_MS = [[50, 400], [50, 400], [400, 2_000], [2_000, 7_000]];
const PASSING = ['DEADLINE_EXCEEDED', 'UNAVAILABLE'];
// What it was granted has ended before it heard of the grant.
const ENDED = 'NOT_HELD';

const [addresses, semaphore, limit, ttlMs, , path] = process.argv.slice(2);
const file = fs.openSync(path, 'a');
let stopping = false;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// One line in one write, so that it is there whole when the process is killed.
function write(kind, at, permit, detail = '-') {
  fs.writeSync(file, `${kind} ${at} ${semaphore} ${permit.slots[0]} ${permit.token} ${detail}\n`);
}

function stayMs() {
  const [least, most] = STAYS_MS[Math.floor(Math.random() * STAYS_MS.length)];
  return least + Math.random() * (most - least);
}

// Acts until the time is over; false if the permit was lost.
async function work(permit) {
  const until = performance.now() + stayMs();
  let kind = 'grant';
  for (;;) {
    // Before the check: the permit was held at this time, however long this process stands still.
    const at = process.hrtime.bigint();
    if (!permit.held) {
      write('lost', process.hrtime.bigint(), permit, permit.loss?.cause ?? 'NO_CONTACT');
      return false;
    }
    const isOver = performance.now() >= until || stopping;
    write(isOver ? 'done' : kind, at, permit);
    if (isOver) return true;
    kind = 'act';
    await sleep(ACT_EVERY_MS);
  }
}

async function turn(client) {
  const permit = await client.acquire(semaphore, { limit: Number(limit), waitMs: WAIT_MS });
  const isHeld = await work(permit);
  try {
    await permit.release();
  } catch (error) {
    if (!(error instanceof semaphored.PermitLostError)) throw error;
    if (isHeld) write('lost', process.hrtime.bigint(), permit, error.loss.cause);
  }
}

process.stdin.on('end', () => { stopping = true; }).resume();
const client = new semaphored.Client({ endpoints: addresses.split(','), ttlMs: Number(ttlMs) });
while (!stopping) {
  try {
    await turn(client);
  } catch (error) {
    if (!(error instanceof semaphored.SemaphoreError)) throw error;
    if (!PASSING.includes(error.code) && error.reason !== ENDED) throw error;
    await sleep(50);
  }
}
await client.close();
