// Compiled, never run: what a caller may write, and what the compiler must turn away.
import { Client, Permit, PermitLostError, SemaphoreError, type LeaseInfo, type Loss, type Verdict } from '../index';

export async function use(): Promise<string> {
  const client = new Client({ endpoints: ['127.0.0.1:7420'], ttlMs: 2_000, tokenFile: 'token' });
  const text: string = await client.withPermit('team/db', { limit: 5, waitMs: Infinity }, async (permit) => {
    const first: number = permit.slots[0];
    const newer: boolean = permit.token > 7n;
    permit.onLost((loss: Loss) => console.log(loss.cause === 'NO_CONTACT', loss.message));
    permit.throwIfLost();
    return `${first} ${newer} ${permit.signal.aborted}`;
  });
  const permit: Permit = await client.acquire('team/db', { signal: new AbortController().signal });
  const verdict: Verdict = await client.verify({ semaphore: 'team/db', slot: 1, token: permit.token });
  try {
    await permit.release();
  } catch (error) {
    if (error instanceof PermitLostError) console.log(error.loss.cause, error.code);
    else if (error instanceof SemaphoreError) console.log(error.reason, error.metadata.advice);
  }
  await client.enqueue('jobs', new Uint8Array(3), { contentType: 'text/plain', backOff: { initialMs: 10 } });
  const { semaphore, recalled } = await client.administer('db', { resize: { limit: 3, policy: 'SHRINK_POLICY_RECALL' } });
  await client.administer('db', { revoke: { all: true, now: true } });
  await client.administer('db', { revoke: { holder: 'a', graceMs: 500 } });
  await client.administer('db', { destroy: { policy: 'DESTROY_POLICY_FORCE', waitMs: 500, graceMs: 500 } });
  const held: number | undefined = semaphore?.held;
  const leases: LeaseInfo[] = [];
  let pageToken = '';
  do {
    const page = await client.administer('db', { describe: { pageSize: 10, pageToken } });
    leases.push(...page.leases);
    pageToken = page.nextPageToken;
  } while (pageToken !== '');
  const { rows } = await client.administer('db', { history: {} }, { timeoutMs: 100 });
  const endedAt: Date | undefined = rows[0].endedAt;
  console.log(recalled + 1, held, leases[0].lease?.slots[0].last, endedAt, rows[0].cause === 'END_CAUSE_EXPIRED');
  await client.acquire('db', { onQueued: ({ expectedWaitMs, reason }) => console.log((expectedWaitMs ?? 0) + 1, reason) });
  await client.close();
  return text + verdict.ended;
}

export function misuse(client: Client, permit: Permit): void {
  // @ts-expect-error  no such option
  new Client({ endpoint: 'x' });
  // @ts-expect-error  a number
  void client.acquire('db', { limit: '5' });
  // @ts-expect-error  tryAcquire does not wait
  void client.tryAcquire('db', { waitMs: 5 });
  // @ts-expect-error  no such act
  void client.administer('db', { shrink: {} });
  // @ts-expect-error  no such field of the act
  void client.administer('db', { describe: { rowsMax: 5 } });
  // @ts-expect-error  a grace, or now
  void client.administer('db', { revoke: { all: true, graceMs: 500, now: true } });
  // @ts-expect-error  pages are of listings
  void client.administer('db', { pause: {} }).then((result) => result.nextPageToken);
  // @ts-expect-error  given out by a client alone
  new Permit();
  // @ts-expect-error  a bigint is not a number
  const token: number = permit.token;
  console.log(token);
}
