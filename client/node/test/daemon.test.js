// The client with a real daemon, which is killed, paused and moved under its feet.
'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { PermitLostError } = require('../index.js');
const { Daemon, freePort, until, within } = require('./daemon.js');

test('withPermit: held inside, given back after it, also when the work throws', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  const tokens = [];
  const result = await client.withPermit('team/db', { limit: 1 }, async (permit) => {
    assert.deepEqual(permit.slots, [1]);
    assert.equal(permit.held, true);
    assert.equal((await client.verify(permit)).held, true);
    const asked = await client.verify({ semaphore: 'team/db', slot: 1, token: permit.token });
    assert.equal(asked.slotToken, permit.token);
    await assert.rejects(client.tryAcquire('team/db'), { name: 'ResourceExhaustedError', reason: 'FULL' });
    tokens.push(permit.token);
    return 'done';
  });
  assert.equal(result, 'done');
  const broken = client.withPermit('team/db', (permit) => {
    tokens.push(permit.token);
    throw new RangeError('broken');
  });
  await assert.rejects(broken, { name: 'RangeError' });
  assert.ok(tokens[1] > tokens[0]);
  const permit = await client.tryAcquire('team/db');
  if (Symbol.asyncDispose) await permit[Symbol.asyncDispose]();
  else await permit.release();
  assert.equal(permit.held, false);
  const old = await client.verify({ leaseId: permit.leaseId });
  assert.deepEqual([old.held, old.ended], [false, 'RELEASED']);
});

test('errors say what the daemon says', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  await assert.rejects(client.acquire('none'), { name: 'NotFoundError', reason: 'NO_SUCH_SEMAPHORE' });
  await assert.rejects(client.acquire('a b', { limit: 1 }), { name: 'InvalidArgumentError', message: /^semaphore: / });
  await client.administer('db', { create: { limit: 2 } });
  await assert.rejects(client.acquire('db', { limit: 3 }), { name: 'FailedPreconditionError', reason: 'LIMIT_MISMATCH' });
  const permit = await client.acquire('db', { limit: 3, adoptLimit: true, permits: 2 });
  assert.deepEqual(permit.slots, [1, 2]);
  await assert.rejects(client.acquire('db', { waitMs: 50 }), { name: 'DeadlineExceededError', reason: 'WAIT_EXPIRED' });
  const revision = (await client.administer('db', { describe: {} })).semaphore.revision;
  const stale = client.administer('db', { pause: {} }, { expectedRevision: BigInt(revision) - 1n });
  await assert.rejects(stale, { name: 'AbortedError', reason: 'REVISION_MISMATCH' });
  const ticket = await client.enqueue('db', 'work', { contentType: 'text/plain' });
  const shown = await client.administer('db', { showTicket: { ticketId: ticket.ticketId } });
  assert.equal(shown.payload.toString(), 'work');
  assert.ok(shown.ticket.enqueuedAt instanceof Date);
  await assert.rejects(client.administer('db', {}), { name: 'InvalidArgumentError', message: /^act: / });
  const unbounded = { attemptsUnbounded: true, maxAttempts: 3 };
  await assert.rejects(client.enqueue('db', 'work', unbounded), { name: 'InvalidArgumentError' });
  // In options, and not in fields of the protocol.
  await assert.rejects(client.acquire('db', { waitMs: 2 ** 31 }), { reason: 'INVALID_FIELD', message: /^waitMs: / });
  const short = daemon.client({ ttlMs: 200 });
  await assert.rejects(short.acquire('db'), { reason: 'INVALID_FIELD', message: /^ttlMs: must be 1000 to / });
});

test('administration answers the result of its act; listings come in pages', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  const settings = { recallGraceMs: 0, longestHoldMs: 60_000 };
  const created = await client.administer('db', { create: { limit: 5, settings } });
  assert.equal(created.created, true);
  assert.equal(created.semaphore.settings.recallGraceMs, 0);
  assert.equal((await client.administer('db', { create: { limit: 5, settings } })).created, false);
  const permits = [];
  for (let i = 0; i < 3; i += 1) permits.push(await client.acquire('db'));
  const seen = [];
  let pages = 0;
  for (let pageToken = ''; pages === 0 || pageToken !== ''; pages += 1) {
    const page = await client.administer('db', { describe: { pageSize: 1, pageToken } });
    seen.push(...page.leases);
    pageToken = page.nextPageToken;
  }
  assert.deepEqual(seen.map(({ lease }) => lease.slots), [1, 2, 3].map((slot) => [{ first: slot, last: slot }]));
  assert.ok(pages >= 3);
  assert.ok(Math.abs(seen[0].grantedAt - Date.now()) < 3_600_000);
  const { rows } = await client.administer('db', { history: {} });
  assert.deepEqual(rows, []);
  for (const permit of permits) await permit.release();
  const { gone, changed, semaphore } = await client.administer('db', { destroy: {} });
  assert.deepEqual([gone, changed, semaphore], [true, true, undefined]);
});

test('a wait can be given up, and leaves the queue', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  await client.acquire('db', { limit: 1 });
  const giveUp = new AbortController();
  const queued = [];
  const wait = client.acquire('db', { signal: giveUp.signal, onQueued: (place) => { queued.push(place); giveUp.abort(); } });
  await assert.rejects(wait, (error) => error === giveUp.signal.reason && error.name === 'AbortError');
  assert.equal(queued[0].position, 1);
  const waiting = async () => (await client.administer('db', { describe: {} })).semaphore.waiting;
  await until(async () => (await waiting()) === '0', 'the queue is empty');
  for (const reason of [new RangeError('of the caller'), 'a text', null]) {
    const aborted = AbortSignal.abort(reason);
    for (const call of [
      () => client.acquire('db', { signal: aborted }),
      () => client.withPermit('db', { signal: aborted }, () => assert.fail('it ran')),
      () => client.administer('db', { describe: {} }, { signal: aborted }),
    ]) await assert.rejects(call, (error) => error === aborted.reason);
  }
  const drained = new AbortController();
  const drain = client.administer('db', { drain: { waitMs: 60_000 } }, { signal: drained.signal });
  setTimeout(() => drained.abort('enough'), 50);
  await assert.rejects(drain, (error) => error === 'enough');
});

test('a wait that is given up as it is granted holds nothing', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  await client.withPermit('db', { limit: 1 }, () => {});
  for (let i = 0; i < 30; i += 1) {
    const giveUp = new AbortController();
    const wait = client.acquire('db', { signal: giveUp.signal }).then((permit) => permit.release(), () => {});
    await new Promise((resolve) => (i % 3 === 0 ? setImmediate(resolve) : setTimeout(resolve, i / 10)));
    giveUp.abort();
    await wait;
  }
  const held = async () => (await client.administer('db', { describe: {} })).semaphore.held;
  await until(async () => (await held()) === 0, 'nothing is held');
});

test('200 at once through 3: never more than 3 inside, each gets its turn, in the order of their calls', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  let inside = 0;
  let most = 0;
  const order = [];
  await Promise.all(Array.from({ length: 200 }, (_, i) => client.withPermit('db', { limit: 3 }, async () => {
    inside += 1;
    most = Math.max(most, inside);
    order.push(i);
    await new Promise(setImmediate);
    inside -= 1;
  })));
  assert.equal(most, 3);
  assert.deepEqual(order, [...order].sort((a, b) => a - b));
});

test('kill -9, and a new daemon on the next endpoint: same lease, slot and token, and who waits keeps its place', async (t) => {
  const daemon = await Daemon.start(t, [await freePort(), await freePort()]);
  const client = daemon.client({ ttlMs: 30_000 });
  const permit = await client.acquire('db', { limit: 1 });
  const waiting = client.acquire('db');
  await until(async () => (await client.administer('db', { describe: {} })).semaphore.waiting === '1', 'it waits');
  await daemon.kill9();
  await daemon.start();
  await until(async () => (await client.verify(permit)).held, 'the new daemon knows the lease');
  const { slots, token } = await client.verify(permit);
  assert.deepEqual([slots, token], [permit.slots, permit.token]);
  assert.equal(permit.held, true);
  await permit.release();
  const next = await within(waiting, 'the waiter gets its permit');
  assert.ok(next.token > permit.token);
});

test('a daemon that stands still: the loss is reported before another client gets the permit', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: 1_000 });
  const other = daemon.client({ ttlMs: 30_000 });
  const events = [];
  const permit = await client.acquire('db', { limit: 1 });
  permit.onLost(() => events.push('lost'));
  const next = other.acquire('db').then((granted) => { events.push('granted'); return granted; });
  await until(async () => (await other.administer('db', { describe: {} })).semaphore.waiting === '1', 'it waits');
  daemon.pause();
  const loss = await within(permit.lost, 'the loss');
  assert.equal(loss.cause, 'NO_CONTACT');
  assert.equal(permit.signal.reason instanceof PermitLostError, true);
  assert.throws(() => permit.throwIfLost(), { reason: 'NOT_HELD' });
  daemon.goOn();
  await assert.rejects(permit.release(), { name: 'PermitLostError' });
  assert.ok((await within(next, 'the grant')).token > permit.token);
  assert.deepEqual(events, ['lost', 'granted']);
});

test('a recall is reported with its grace; a permit given back in time is not lost', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client();
  const permits = [];
  for (let i = 0; i < 2; i += 1) permits.push(await client.acquire('db', { limit: 2 }));
  const recalled = new Promise((resolve) => permits[1].onRecall(resolve));
  await client.administer('db', { resize: { limit: 1, policy: 'SHRINK_POLICY_RECALL', graceMs: 60_000 } });
  const notice = await within(recalled, 'the recall');
  assert.ok(notice.graceMs > 59_000 && notice.graceMs <= 60_000); // What is left of it.
  assert.equal(permits[0].recall, undefined);
  await permits[1].release();
  assert.equal(permits[1].loss, undefined);
  await client.administer('db', { revoke: { all: true, now: true } });
  assert.equal((await within(permits[0].lost, 'the loss')).cause, 'REVOKED');
});

test('no daemon: fail closed, or open by choice', async () => {
  const { Client } = require('../index.js');
  const endpoints = [`127.0.0.1:${await freePort()}`];
  const closed = new Client({ endpoints, connectTimeoutMs: 100 });
  await assert.rejects(closed.acquire('db', { limit: 1 }), { name: 'UnavailableError', reason: 'UNREACHABLE' });
  await assert.rejects(closed.verify({ leaseId: 'x' }), { name: 'UnavailableError', reason: 'UNREACHABLE' });
  await closed.close();
  const open = new Client({ endpoints, connectTimeoutMs: 100, failOpen: true });
  await open.withPermit('db', { limit: 1 }, (permit) => {
    assert.equal(permit.failOpen, true);
    assert.equal(permit.token, 0n);
    assert.equal(permit.held, true);
  });
  await open.close();
});
