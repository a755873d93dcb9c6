// Uses the Node client as programs do, and writes what it called and was answered; as driver.py beside it.
//
//   driver.mjs ADDRESS[,ADDRESS...] NAME=LIMIT[,...] ADMINISTERED[,...] SEED LABEL WORKERS PERMITS_MAX
import semaphored from '../../../client/node/index.js';

const TTL_MS = 1_500;
const WAIT_MS = 3_000;
const LINGERS_NS = 30_000_000_000n;
const REFUSALS = ['FULL', 'PAUSED', 'EXCEEDS_LIMIT'];
const REPORTED = ['EXPIRED', 'REVOKED', 'RECALLED', 'MOVED', 'UNKNOWN'];

const [addresses, limits, administeredNames, seed, label, workers, permitsMax] = process.argv.slice(2);
const semaphores = new Map(limits.split(',').map((each) => each.split('=')).map(([name, limit]) => [name, Number(limit)]));
const administered = new Set(administeredNames.split(','));
let stopping = false;

const nowNs = () => process.hrtime.bigint();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// One line; 64-bit numbers are written as numbers, which JSON does not bound.
function write(operation) {
  const big = [];
  const text = JSON.stringify(operation, (_, value) => (typeof value === 'bigint' ? `@${big.push(value) - 1}@` : value));
  process.stdout.write(`${text.replace(/"@(\d+)@"/g, (_, place) => String(big[Number(place)]))}\n`);
}

// mulberry32: the choices follow from the seed.
function randomOf(text) {
  let state = 0;
  for (const letter of text) state = Math.imul(state ^ letter.codePointAt(0), 0x9e3779b1);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

class Held {
  constructor(common, permit, note) {
    Object.assign(this, { common, permit, note, vouchedNs: 0n, isLost: false });
  }

  // Until when it can be relied on; or that it is lost.
  look() {
    const at = nowNs();
    const goodForMs = this.permit.held ? this.permit.goodForMs : 0;
    if (goodForMs > 0) {
      const until = at + BigInt(Math.floor(goodForMs * 1e6));
      if (until > this.vouchedNs) this.vouchedNs = until;
    } else if (!this.isLost) {
      this.isLost = true;
      this.writeLoss();
    }
  }

  writeLoss() {
    const at = nowNs();
    const cause = this.permit.loss?.cause ?? 'NO_CONTACT';
    // Of a recall the client itself says when the grace is over, a margin before the daemon does; and on a busy machine
    // before our handler of recalls has had its turn.
    const recalled = this.note.recalledNs !== 0n
      || (cause === 'RECALLED' && !this.permit.loss.message.startsWith('the daemon says'));
    const reported = REPORTED.includes(cause) && !recalled;
    const until = recalled && at < this.vouchedNs ? at : this.vouchedNs;
    write({
      ...this.common, kind: 'end', begin_ns: at, end_ns: at, outcome: 'left', reason: reported ? 'lost' : 'left',
      vouched_ns: until, cause: reported && cause !== 'UNKNOWN' ? cause : '',
    });
  }

  async stay(ms) {
    const until = performance.now() + ms;
    while (performance.now() < until && !this.isLost) {
      await sleep(Math.min(10, until - performance.now()));
      this.look();
    }
  }

  async verify(client) {
    const operation = { ...this.common, kind: 'verify', begin_ns: nowNs(), vouched_ns: this.isLost ? 0n : this.vouchedNs };
    try {
      const verdict = await client.verify(this.permit);
      const said = verdict.held ? { outcome: 'held', slots: verdict.slots, token: verdict.token }
        : { outcome: 'ended', cause: verdict.ended };
      write({ ...operation, end_ns: nowNs(), ...said });
    } catch (error) {
      if (!(error instanceof semaphored.SemaphoreError)) throw error;
      write(operation);
    }
  }

  async release() {
    this.look();
    const at = this.note.recalledNs;
    if (at !== 0n) write({ ...this.common, kind: 'recalled', begin_ns: at, end_ns: at, outcome: 'left' });
    const operation = { ...this.common, kind: 'release', begin_ns: nowNs(), vouched_ns: this.isLost ? 0n : this.vouchedNs };
    try {
      await this.permit.release();
      write({ ...operation, end_ns: nowNs(), outcome: 'released' });
    } catch (error) {
      if (!(error instanceof semaphored.SemaphoreError)) throw error;
      // After a loss the release is still sent, and its answer is not said.
      const cause = error instanceof semaphored.PermitLostError && !this.isLost ? error.loss.cause : '';
      const known = cause === 'REVOKED' || cause === 'UNKNOWN';
      write(known ? { ...operation, end_ns: nowNs(), outcome: 'ended', reason: cause } : operation);
    }
  }
}

class Worker {
  constructor(client, name) {
    Object.assign(this, { client, name, random: randomOf(`${seed}-${name}`), calls: 0 });
  }

  pick(list) {
    return list[Math.floor(this.random() * list.length)];
  }

  async run() {
    while (!stopping) await this.turn();
  }

  async turn() {
    const semaphore = this.pick([...semaphores.keys()]);
    const note = { recalledNs: 0n, queuedNs: 0n };
    const permit = await this.acquire(semaphore, note);
    if (permit === undefined) return;
    const held = new Held({ client: this.name, semaphore, lease: permit.leaseId }, permit, note);
    held.look();
    if (this.random() < 0.3) await held.stay(this.random() * 4);
    else if (administered.has(semaphore) && this.random() < 0.08) await held.stay(this.random() * 250);
    if (this.random() < 0.25) await held.verify(this.client);
    await held.release();
  }

  async acquire(semaphore, note) {
    const limit = semaphores.get(semaphore);
    const waitMs = this.random() < 0.25 ? 0 : WAIT_MS;
    this.calls += 1;
    const operation = {
      kind: 'acquire', client: this.name, semaphore, request: `${this.name}/${this.calls}`, holder: this.name,
      steady: false, permits: 1 + Math.floor(this.random() * Math.min(Number(permitsMax), limit)),
      priority: this.pick([0, 0, 0, 1]), wait_ms: Math.max(0, waitMs - 1), begin_ns: nowNs(),
    };
    const abort = new AbortController();
    let timer;
    if (waitMs > 0 && this.random() < 0.08) timer = setTimeout(() => abort.abort(), this.random() * 50);
    try {
      const permit = await this.client.acquire(semaphore, {
        limit, adoptLimit: administered.has(semaphore), permits: operation.permits, waitMs, holder: this.name,
        priority: operation.priority, signal: abort.signal,
        onQueued: () => { note.queuedNs ||= nowNs(); },
        onRecall: () => { note.recalledNs = nowNs(); },
      });
      write({
        ...operation, end_ns: nowNs(), outcome: 'granted', lease: permit.leaseId, slots: permit.slots,
        token: permit.token, queued_ns: note.queuedNs,
      });
      return permit;
    } catch (error) {
      const aborted = abort.signal.aborted && error === abort.signal.reason;
      if (!aborted && !(error instanceof semaphored.SemaphoreError)) throw error;
      const reason = aborted ? 'CANCELLED' : error.reason || error.code;
      const end = nowNs();
      const until = REFUSALS.includes(reason) ? 0n : end + LINGERS_NS;
      write({ ...operation, end_ns: end, outcome: 'error', reason, until_ns: until });
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}

const client = new semaphored.Client({ endpoints: addresses.split(','), ttlMs: TTL_MS });
process.stdin.on('end', () => { stopping = true; }).resume();
await Promise.all(Array.from({ length: Number(workers) }, (_, number) => new Worker(client, `${label}-${number}`).run()));
await client.close();
