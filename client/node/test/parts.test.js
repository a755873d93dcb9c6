// The small parts: options, errors as they come over the wire, containers, the clock.
'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { Backoff } = require('../lib/backoff.js');
const { Clock } = require('../lib/clock.js');
const { Fifo, Timetable } = require('../lib/collections.js');
const errors = require('../lib/errors.js');
const { TIMER_MOST_MS, checkAcquireOptions, checkClientOptions } = require('../lib/options.js');
const { UnaryCaller } = require('../lib/unary_caller.js');
const { enumName, plain, slotNumbers } = require('../lib/wire.js');
const { inOptions } = require('../lib/wording.js');
const exported = require('../index.js');

const refused = (given, pattern) =>
  assert.throws(() => checkClientOptions(given), (error) => {
    assert.equal(error.name, 'InvalidArgumentError');
    assert.equal(error.reason, 'INVALID_FIELD');
    assert.match(error.message, pattern);
    return true;
  });

test('options: what is wrong is named', () => {
  refused({ endpoints: [] }, /^endpoints: /);
  refused({ endpoints: [''] }, /^endpoints: /);
  refused({ endpoint: 'x' }, /no option endpoint/);
  refused({ endpoints: ['http://a:1'] }, /^endpoints: 'http:\/\/a:1' begins with http:\/\/.* such as 127.0.0.1:7420$/);
  refused({ endpoints: ['a'] }, /^endpoints: 'a' has no port/);
  refused({ endpoints: ['[::1]'] }, /has no port/);
  refused({ endpoints: ['a:1', 'a:99999'] }, /has the port 99999/);
  refused({ endpoints: ['::1:7420'] }, /is not in \[ \]/);
  refused({ ttlMs: -1 }, /^ttlMs: /);
  refused({ ttlMs: 1_000, marginMs: 500 }, /^marginMs: /);
  refused({ holder: 'x'.repeat(257) }, /^holder: /);
  refused({ connectTimeoutMs: NaN }, /^connectTimeoutMs: /);
  refused({ certFile: 'a' }, /^certFile and keyFile: /);
  refused({ tls: false, caFile: 'a' }, /^tls: /);
  refused({ token: 'a', tokenFile: 'b' }, /not both/);
  assert.throws(() => checkAcquireOptions('', {}), /^InvalidArgumentError: semaphore: /);
  assert.throws(() => checkAcquireOptions('db', { permits: 0 }), /permits: /);
  assert.throws(() => checkAcquireOptions('db', { priority: 1_001 }), /priority: /);
  assert.throws(() => checkAcquireOptions('db', { waitMs: 2 ** 32 }), /waitMs: /);
  assert.equal(checkAcquireOptions('db', { waitMs: Infinity }).waitMs, -1);
});

test('times: none is longer than a timer can wait, since that would fire at once', async () => {
  for (const name of ['connectTimeoutMs', 'reconnectTimeoutMs', 'releaseTimeoutMs']) {
    for (const given of [Infinity, 2 ** 31]) assert.equal(checkClientOptions({ [name]: given })[name], TIMER_MOST_MS);
    assert.equal(checkClientOptions({ [name]: 2 ** 31 - 1 })[name], 2 ** 31 - 1);
  }
  const transport = { callOnce: async (method, request, index, { timeoutMs }) => timeoutMs };
  const caller = new UnaryCaller(checkClientOptions({}), new Clock(), transport);
  for (const timeoutMs of [Infinity, 2 ** 31]) {
    assert.equal((await caller.call('Verify', {}, { timeoutMs })).response, TIMER_MOST_MS);
  }
  assert.equal((await caller.call('Verify', {})).response, 5_000);
});

test('options: a token goes to loopback, to a unix socket or over TLS, and nowhere else', () => {
  for (const endpoint of ['10.0.0.1:7420', 'db.example:7420', '[2001:db8::1]:7420', 'localhost.example:1', '127.evil:1']) {
    refused({ endpoints: [endpoint], token: 't' }, /^token: not sent to .* without TLS/);
    assert.equal(checkClientOptions({ endpoints: [endpoint], token: 't', caFile: 'ca.pem' }).tls, true);
  }
  for (const endpoint of ['127.0.0.1:1', '127.9.9.9:1', 'localhost:1', '[::1]:1', 'unix:/run/s', 'dns:///localhost:1']) {
    assert.equal(checkClientOptions({ endpoints: [endpoint], tokenFile: 't' }).tls, false);
  }
});

test('errors: reason and metadata are read from the details, and garbage is passed over', () => {
  const field = (number, bytes) => Buffer.concat([Buffer.from([number * 8 + 2, bytes.length]), bytes]);
  const text = (number, value) => field(number, Buffer.from(value));
  const entry = Buffer.concat([text(1, 'semaphore'), text(2, 'team/db')]);
  const info = Buffer.concat([text(1, 'FULL'), text(2, 'semaphored'), field(3, entry)]);
  const any = Buffer.concat([text(1, 'type.googleapis.com/google.rpc.ErrorInfo'), field(2, info)]);
  const details = Buffer.concat([Buffer.from([8, 8]), text(2, 'message'), field(3, any)]);
  const status = (bytes) => ({ code: 8, details: 'all taken', metadata: { get: () => [bytes] } });
  const error = errors.fromStatus(status(details));
  assert.equal(error.name, 'ResourceExhaustedError');
  assert.equal(error.reason, 'FULL');
  assert.deepEqual(error.metadata, { semaphore: 'team/db' });
  for (let length = 0; length < details.length; length += 1) {
    assert.equal(errors.fromStatus(status(details.subarray(0, length))).code, 'RESOURCE_EXHAUSTED');
  }
  assert.equal(errors.fromStatus(status(Buffer.alloc(40, 0xff))).reason, '');
});

test('errors: they speak of the options of the library', () => {
  for (const [said, shown] of [
    ['open.ttl_ms: must be 1000 to 86400000, not 5', 'ttlMs: must be 1000 to 86400000, not 5'],
    ['my_wait_ms: its limit is 3; see limit_mismatch', 'my_wait_ms: its limit is 3; see adoptLimit'],
    ['limit_mismatch: must be a value of LimitMismatch', 'adoptLimit: must be a value of LimitMismatch'],
    ['create.settings.longest_hold_ms: must be 1', 'create.settings.longestHoldMs: must be 1'],
    ['wait (wait_ms), or try again later', 'wait (waitMs), or try again later'],
    ['the table semaphored_claims has gone', 'the table semaphored_claims has gone'],
    ['', ''],
  ]) assert.equal(inOptions(said, 'my_wait_ms'), shown);
});

test('errors: each class is exported', () => {
  for (const name of Object.keys(errors)) {
    if (name.endsWith('Error') && /^[A-Z]/.test(name)) assert.equal(exported[name], errors[name], name);
  }
});

test('messages: slots, enums and times as they are handed out', () => {
  assert.deepEqual(slotNumbers([{ first: 1, last: 3 }, { first: 7, last: 7 }]), [1, 2, 3, 7]);
  assert.deepEqual(slotNumbers(undefined), []);
  assert.equal(enumName('END_CAUSE_EXPIRED', 'END_CAUSE_'), 'EXPIRED');
  assert.equal(enumName('END_CAUSE_UNSPECIFIED', 'END_CAUSE_'), '');
  assert.equal(enumName(undefined, 'END_CAUSE_'), '');
  assert.equal(enumName(77, 'END_CAUSE_'), '');
  const message = {
    rows: [{ endedAt: { seconds: '1700000000', nanos: 123_456_789 }, grantedAt: null, slots: [{ first: 1, last: 2 }] }],
    payload: Buffer.from('x'),
  };
  assert.deepEqual(plain(message), {
    rows: [{ endedAt: new Date(1_700_000_000_123), slots: [{ first: 1, last: 2 }] }],
    payload: Buffer.from('x'),
  });
});

test('containers: in order of their calls, and of their times', () => {
  const fifo = new Fifo();
  for (let i = 0; i < 100; i += 1) fifo.push(i);
  for (let i = 0; i < 60; i += 1) assert.equal(fifo.shift(), i);
  fifo.push(100);
  assert.equal(fifo.size, 41);
  assert.equal(fifo.peek(), 60);
  const table = new Timetable();
  for (const at of [5, 3, 9, 1, 7, 3]) table.add(at, at);
  assert.equal(table.takeDue(0), undefined);
  const taken = [];
  for (let item; (item = table.takeDue(7)) !== undefined; ) taken.push(item);
  assert.deepEqual(taken, [1, 3, 3, 5, 7]);
  assert.equal(table.nextAt, 9);
});

test('back-off: doubles up to its bound, from the upper half', () => {
  const backoff = new Backoff(50, 300);
  for (const most of [50, 100, 200, 300, 300]) {
    const delay = backoff.next();
    assert.ok(delay >= most / 2 && delay <= most, `${delay} of ${most}`);
  }
  backoff.reset();
  assert.ok(backoff.next() <= 50);
});

test('the clock never goes back', () => {
  const clock = new Clock();
  let last = clock.now();
  for (let i = 0; i < 1_000; i += 1) {
    const now = clock.now();
    assert.ok(now >= last);
    last = now;
  }
});
