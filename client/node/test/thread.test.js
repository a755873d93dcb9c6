// The thread of the session: what a program that blocks keeps, hears of and acknowledges, and how processes end. With a TTL
// of two seconds, a block of five stands for any longer one.
'use strict';

const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const workerThreads = require('node:worker_threads');

// Each thread that a client starts, so that a test can end one.
const threads = [];
workerThreads.Worker = class extends workerThreads.Worker {
  constructor(program, ...more) {
    super(program, ...more);
    if (path.basename(program) === 'session_worker.js') threads.push(this);
  }
};

const { Client } = require('../index.js');
const { Daemon, freePort, until, within } = require('./daemon.js');
const { RecallingDaemon } = require('./recalling_daemon.js');

const ROOT = path.join(__dirname, '..');
const TTL_MS = 2_000;
const BLOCK_MS = 5_000;

// For `node -e`, in ROOT.
function program(options, text) {
  return `const { Client } = require('./index.js'); const client = new Client(${JSON.stringify(options)}); ${text}`;
}

function block(ms) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

async function assertKept(client, permit) {
  assert.equal(permit.held, true);
  const { held, token } = await client.verify(permit);
  assert.deepEqual([held, token], [true, permit.token]);
  assert.equal(permit.loss, undefined);
}

test('work that blocks the event loop for longer than the TTL keeps its permit', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: TTL_MS });
  await client.withPermit('db', { limit: 1 }, async (permit) => {
    block(BLOCK_MS);
    await assertKept(client, permit);
    for (const end = performance.now() + BLOCK_MS; performance.now() < end; );
    await assertKept(client, permit);
  });
});

test('what is given back before a block is given back at once', async (t) => {
  const daemon = await Daemon.start(t);
  const permit = await daemon.client({ ttlMs: 30_000 }).acquire('db', { limit: 1 });
  const released = permit.release();
  const acquire = "client.acquire('db', { waitMs: 15_000 }).then(() => client.close()).then(() => console.log('granted'));";
  const said = execFileSync(process.execPath, ['-e', program({ endpoints: daemon.endpoints }, acquire)], { cwd: ROOT });
  assert.equal(said.toString(), 'granted\n');
  await released;
});

test("all threads of Node's pool may be blocked", async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: TTL_MS });
  const fifo = path.join(daemon.folder, 'fifo');
  execFileSync('mkfifo', [fifo]);
  await client.withPermit('db', { limit: 1 }, async (permit) => {
    const opened = Array.from({ length: 4 }, () => fs.promises.open(fifo, 'r')); // Each waits for a writer, in the pool.
    await new Promise((resolve) => setTimeout(resolve, BLOCK_MS));
    await assertKept(client, permit);
    const writer = fs.openSync(fifo, 'w');
    for (const file of await Promise.all(opened)) await file.close();
    fs.closeSync(writer);
  });
});

test('a loss during a block is known at once after it', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: 30_000 });
  const work = client.withPermit('db', { limit: 1 }, (permit) => {
    const revoke = "client.administer('db', { revoke: { all: true, now: true } }).then(() => client.close());";
    execFileSync(process.execPath, ['-e', program({ endpoints: daemon.endpoints }, revoke)], { cwd: ROOT });
    for (const end = performance.now() + 20_000; permit.held && performance.now() < end; );
    assert.equal(permit.held, false);
    assert.equal(permit.loss.cause, 'REVOKED');
    assert.equal(permit.signal.aborted, false); // No message has been read since.
    return 'overlapped';
  });
  await assert.rejects(work, (error) => error.name === 'PermitLostError' && error.loss.cause === 'REVOKED');
});

test('work that blocks past the deadline of a daemon that stands still finds its permit lost', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: TTL_MS });
  const work = client.withPermit('db', { limit: 1 }, (permit) => {
    const { goodForMs } = permit;
    assert.ok(goodForMs > 0 && goodForMs <= TTL_MS - 50);
    daemon.pause();
    block(TTL_MS);
    assert.equal(permit.held, false);
    assert.equal(permit.signal.aborted, false);
    return 'overlapped';
  });
  await assert.rejects(work, (error) => error.name === 'PermitLostError' && error.loss.cause === 'NO_CONTACT');
});

test('a recall is acknowledged when its handler has run, and not by the thread that pings', async (t) => {
  const daemon = await RecallingDaemon.start(t);
  const client = new Client({ endpoints: daemon.endpoints });
  t.after(() => client.close());
  const notices = [];
  const onRecall = (notice) => {
    daemon.blockForPings(8);
    notices.push([notice, daemon.acknowledged]);
  };
  const permit = await client.acquire('db', { onRecall });
  await until(() => daemon.acknowledged > 0, 'the acknowledgement');
  assert.deepEqual(notices, [[{ graceMs: 600_000, reason: 'shrunk' }, 0]]);
  assert.equal(permit.held, true);
  permit.onRecall(() => {}); // Of a recall that is acknowledged already.
  daemon.blockForPings(1);
  await permit.release();
  assert.equal(daemon.acknowledged, 1);
});

test('without a handler a recall is not acknowledged; a handler that comes later does it', async (t) => {
  const daemon = await RecallingDaemon.start(t);
  const client = new Client({ endpoints: daemon.endpoints });
  t.after(() => client.close());
  const permit = await client.acquire('db');
  await until(() => permit.recall, 'the recall');
  daemon.blockForPings(8);
  assert.equal(daemon.acknowledged, 0);
  permit.onRecall(() => {});
  await until(() => daemon.acknowledged === 1, 'the acknowledgement');
});

test('a thread of the session that ends loses its permits, fails its requests, and is started again', async (t) => {
  const daemon = await Daemon.start(t);
  const client = daemon.client({ ttlMs: TTL_MS });
  const permit = await client.acquire('db', { limit: 1 });
  const waiting = assert.rejects(client.acquire('db'), { name: 'InternalError' });
  await threads.at(-1).terminate();
  assert.equal((await within(permit.lost, 'the loss')).cause, 'NO_CONTACT');
  assert.equal(permit.held, false);
  await within(waiting, 'the rejection');
  await assert.rejects(permit.release(), { name: 'PermitLostError' });
  const again = await within(client.acquire('db'), 'a permit, after the TTL');
  assert.ok(again.token > permit.token);
});

const PROGRAMS = {
  'one that closes an idle client waits for it': {
    program: `client.acquire('db', { limit: 1 }).catch(async () => {
      await new Promise((resolve) => setTimeout(resolve, 200));
      await client.close();
      console.log('closed');
    });`,
    endpoint: async () => `127.0.0.1:${await freePort()}`,
    connectTimeoutMs: 100,
    said: 'closed\n',
    code: 0,
  },
  'one that has asked for nothing ends by itself': { program: '', code: 0 },
  'one that reached no daemon ends by itself': {
    program: "client.acquire('db', { limit: 1 }).catch((error) => console.log(error.reason));",
    endpoint: async () => `127.0.0.1:${await freePort()}`,
    connectTimeoutMs: 100,
    said: 'UNREACHABLE\n',
    code: 0,
  },
  'one that has closed its client ends': {
    program: "client.withPermit('db', { limit: 1 }, () => {}).then(() => client.close());",
    code: 0,
  },
  'process.exit ends one that holds': {
    program: "client.acquire('db', { limit: 1 }).then(() => process.exit(7));",
    code: 7,
  },
  'one that holds does not end by itself': {
    program: "client.acquire('db', { limit: 1 }).then(() => setTimeout(() => process.exit(8), 1_000).unref());",
    code: 8,
  },
};

test('processes', async (t) => {
  const daemon = await Daemon.start(t);
  for (const [name, { program: text, endpoint, connectTimeoutMs, said = '', code }] of Object.entries(PROGRAMS)) {
    const options = { endpoints: [endpoint ? await endpoint() : daemon.endpoints[0]], ttlMs: 1_000, connectTimeoutMs };
    const child = spawn(process.execPath, ['-e', program(options, text)], { cwd: ROOT });
    t.after(() => child.kill('SIGKILL'));
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => { output += chunk; });
    const ended = await within(new Promise((resolve) => child.on('close', resolve)), name);
    assert.deepEqual([ended, output], [code, said], name);
  }
});
