// Holds many leases in one session of the Node client, and says how they stand; as holder.cc beside it.
//
//   holder.mjs ADDRESS NAME COUNT PERMITS TTL_MS
import readline from 'node:readline';

import semaphored from '../../../client/node/index.js';

const AT_ONCE = 500;
const [address, name, ...numbers] = process.argv.slice(2);
const [count, permits, ttlMs] = numbers.map(Number);
const client = new semaphored.Client({ endpoints: [address], ttlMs });
const taken = [];

async function take() {
  while (taken.length < count) {
    const place = taken.push(undefined) - 1;
    taken[place] = await client.acquire(name, { limit: count * permits, permits });
  }
}

await Promise.all(Array.from({ length: AT_ONCE }, take));
console.log('held');
for await (const line of readline.createInterface({ input: process.stdin })) {
  if (line !== '') break;
  let held = 0;
  let leastMs = Infinity;
  for (const permit of taken) {
    held += permit.held ? 1 : 0;
    leastMs = Math.min(leastMs, permit.goodForMs);
  }
  console.log(`${held} ${Math.floor(leastMs)}`);
}
process.exit(0);
