// The rules of a session, with a clock that the test moves. No socket, no timer, no sleep.
'use strict';

const assert = require('node:assert/strict');
const { describe, test } = require('node:test');

const { SessionMachine } = require('../lib/session_machine.js');

const OPTIONS = {
  endpoints: ['a', 'b'],
  ttlMs: 10_000,
  marginMs: 50,
  holder: 'test',
  connectTimeoutMs: 5_000,
  reconnectTimeoutMs: 60_000,
  releaseTimeoutMs: 5_000,
  operationsMax: 10,
  releaseOnDisconnect: false,
};

// google.rpc.Status as the stub reads it: the only detail is an ErrorInfo with nothing but a reason.
function status(code, message, reason) {
  const value = Buffer.concat([Buffer.from([10, reason.length]), Buffer.from(reason)]);
  return { code, message, details: [{ type_url: 'type.googleapis.com/google.rpc.ErrorInfo', value }] };
}

// A machine, the time, and a daemon that says what the test lets it say.
class Bench {
  constructor(options = {}) {
    this.now = 1_000;
    this.clients = 0;
    this.machine = new SessionMachine({ ...OPTIONS, ...options }, () => `client-${++this.clients}`);
    this.endpoint = undefined; // Of the stream that is up.
    this.dropped = 0;
  }

  // Carries out what is wanted; returns the messages that were sent.
  run() {
    const sent = [];
    for (;;) {
      const effects = this.machine.takeEffects();
      if (effects.dropStream) {
        this.dropped += 1;
        this.endpoint = undefined;
      }
      for (const effect of effects.run) effect();
      const endpoint = this.machine.startConnecting(this.now);
      if (endpoint !== undefined) this.endpoint = endpoint;
      const message = this.endpoint === undefined ? undefined : this.machine.nextMessage(this.now);
      if (message === undefined && effects.run.length === 0) return sent;
      if (message !== undefined) sent.push(message);
    }
  }

  tick(ms = 0) {
    this.now += ms;
    this.machine.tick(this.now);
    return this.run();
  }

  hear(message) {
    this.machine.onMessage({ opened: null, pong: null, results: [], events: [], ...message }, this.now);
    return this.run();
  }

  end(code, details = '') {
    this.endpoint = undefined;
    this.machine.onStreamEnd({ code, details }, this.now);
    return this.run();
  }

  // Answers `open`.
  opened(fields = {}) {
    const { epoch = '1', validForMs = 10_000, elapsedMs = '0', ...rest } = fields;
    const validity = { elapsedMs, validForMs, epoch };
    return this.hear({
      opened: { sessionId: 's1', ttlMs: 10_000, validity, resumed: false, leases: [], more: false, ...rest },
    });
  }

  granted(sequence, leaseId = `db#${sequence}`) {
    const lease = { leaseId, semaphore: 'db', slots: [{ first: 1, last: 1 }], token: '9007199254740993' };
    return this.hear({ results: [{ sequence: String(sequence), granted: lease }] });
  }

  pong(pingId, fields = {}) {
    const validity = { elapsedMs: '0', validForMs: 10_000, epoch: '1', ...fields };
    return this.hear({ pong: { pingId: String(pingId), validity } });
  }

  // An acquire; `.value` or `.error` once it is answered.
  acquire(waitMs = -1) {
    const answer = { request: { semaphore: 'db', permits: 1 }, waitMs };
    answer.resolve = (value) => Object.assign(answer, { value });
    answer.reject = (error) => Object.assign(answer, { error });
    answer.operation = this.machine.acquire(answer, this.now);
    return answer;
  }

  release(lease) {
    const answer = { done: false };
    answer.resolve = () => Object.assign(answer, { done: true });
    answer.reject = (error) => Object.assign(answer, { error });
    this.machine.release(lease, answer, this.now);
    return answer;
  }

  // A session with one lease.
  static withLease(options) {
    const bench = new Bench(options);
    const answer = bench.acquire();
    bench.run();
    bench.opened();
    bench.granted(1);
    return { bench, lease: answer.value };
  }
}

const commands = (messages) => messages.flatMap((message) => message.commands ?? []);

describe('deadline', () => {
  test('counts from the time that open was sent, and by the answer, less the margin', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    assert.equal(bench.run()[0].open.clientId, 'client-1');
    bench.now += 400;
    bench.opened({ elapsedMs: '100', validForMs: 3_000 });
    bench.granted(1);
    assert.equal(answer.value.goodUntil, 1_000 + 100 + 3_000 - 50);
    assert.equal(answer.value.token, 9007199254740993n);
  });

  test('1 % of the promise is the margin where that is more', () => {
    const { lease } = Bench.withLease();
    assert.equal(lease.goodUntil, 1_000 + 10_000 - 100);
  });

  test('a pong counts from when its ping was sent; pings go out every third of what is vouched for', () => {
    const { bench, lease } = Bench.withLease();
    assert.deepEqual(bench.tick(3_000), []);
    const [message] = bench.tick(334);
    assert.equal(message.ping.pingId, 1);
    bench.now += 2_000;
    bench.pong(1);
    assert.equal(lease.goodUntil, 4_334 + 10_000 - 100);
  });

  test('a pong that nobody asked for, or of a daemon that was overtaken, counts for nothing', () => {
    const { bench, lease } = Bench.withLease();
    const before = lease.goodUntil;
    bench.pong(1);
    bench.tick(3_400);
    bench.pong(1, { epoch: '0' });
    assert.equal(lease.goodUntil, before);
  });

  test('silence: the loss is told at the deadline, not after, and stays', () => {
    const { bench, lease } = Bench.withLease();
    bench.end(14, 'gone');
    bench.tick(9_899);
    assert.equal(lease.abort.signal.aborted, false);
    assert.equal(bench.machine.nextDue(true) <= lease.goodUntil, true);
    bench.tick(1);
    assert.equal(lease.loss.cause, 'NO_CONTACT');
    assert.equal(lease.abort.signal.reason.name, 'PermitLostError');
    assert.equal(lease.isHeld(0), false);
  });

  test('an answer that is read too late brings nothing back, as after a blocked event loop', () => {
    const { bench, lease } = Bench.withLease();
    bench.tick(3_400);
    bench.now += 8_000; // Nothing ran meanwhile; the pong had come in time.
    assert.equal(lease.isHeld(bench.now), false);
    bench.pong(1);
    assert.equal(lease.loss.cause, 'NO_CONTACT');
  });

  test('a lost lease is still given back, and its release says that it was lost', () => {
    const { bench, lease } = Bench.withLease();
    bench.end(14);
    bench.tick(10_000);
    const answer = bench.release(lease);
    bench.run();
    assert.equal(answer.error.reason, 'NOT_HELD');
    while (bench.endpoint === undefined) bench.tick(100);
    const sent = bench.opened({ resumed: true, leases: [{ leaseId: 'db#1' }] });
    assert.deepEqual(commands(sent).map((command) => command.release.leaseId), ['db#1']);
  });
});

describe('resuming', () => {
  test('the next endpoint at once, then a pause; the same session, lease and unanswered commands', () => {
    const { bench, lease } = Bench.withLease();
    const waiting = bench.acquire();
    assert.equal(commands(bench.run())[0].sequence, 2);
    const [open] = bench.end(14);
    assert.equal(bench.endpoint, 1);
    assert.equal(open.open.resumeSessionId, 's1');
    assert.equal(open.open.clientId, 'client-1');
    bench.end(14);
    assert.equal(bench.endpoint, undefined, 'both have failed');
    bench.tick(50);
    assert.equal(bench.endpoint, 0);
    const sent = bench.opened({ resumed: true, leases: [{ leaseId: 'db#1' }], epoch: '2' });
    assert.equal(commands(sent)[0].sequence, 2);
    bench.granted(2);
    assert.equal(waiting.value.leaseId, 'db#2');
    assert.equal(lease.loss, undefined);
  });

  test('what the resumed session does not list is lost', () => {
    const { bench, lease } = Bench.withLease();
    bench.end(14);
    bench.opened({ resumed: true, leases: [] });
    assert.equal(lease.loss.cause, 'UNKNOWN');
  });

  test('the list of a resumed session comes in pages: nothing is lost, sent or extended before the last', () => {
    const { bench, lease } = Bench.withLease();
    const waiting = bench.acquire();
    bench.run();
    bench.granted(2);
    bench.end(14);
    bench.now += 1_000;
    const lost = { lost: { leaseId: 'db#2', cause: 'END_CAUSE_REVOKED' } };
    assert.deepEqual(bench.opened({ resumed: true, more: true, leases: [{ leaseId: 'db#2' }] }), []);
    bench.hear({ opened: null, results: [], events: [] });
    bench.tick(2_000); // Each page counts as an answer to `open`: the next one has its own time.
    bench.opened({ resumed: true, more: true, leases: [{ leaseId: 'db#7' }] });
    bench.tick(2_000);
    assert.equal(bench.dropped, 0);
    assert.equal(lease.goodUntil, 1_000 + 10_000 - 100);
    const validity = { elapsedMs: '4000', validForMs: 10_000, epoch: '2' };
    const opened = { sessionId: 's1', ttlMs: 10_000, validity, resumed: true, leases: [{ leaseId: 'db#1' }], more: false };
    const sent = bench.hear({ opened, events: [lost] });
    assert.equal(lease.loss, undefined);
    assert.equal(lease.goodUntil, 1_000 + 4_000 + 10_000 - 100);
    assert.equal(waiting.value.loss.cause, 'REVOKED');
    assert.deepEqual(commands(sent).map((command) => command.release.leaseId), ['db#7']);
  });

  test('pages of a stream that broke count for nothing', () => {
    const { bench, lease } = Bench.withLease();
    bench.end(14);
    bench.opened({ resumed: true, more: true, leases: [{ leaseId: 'db#1' }] });
    bench.end(14);
    while (bench.endpoint === undefined) bench.tick(100);
    bench.opened({ resumed: true, leases: [] });
    assert.equal(lease.loss.cause, 'UNKNOWN');
  });

  test('a lease that is listed and unknown is given back once no command can claim it', () => {
    const { bench } = Bench.withLease();
    bench.acquire();
    bench.run();
    bench.end(14);
    const leases = [{ leaseId: 'db#1' }, { leaseId: 'db#2' }, { leaseId: 'db#9' }];
    assert.deepEqual(commands(bench.opened({ resumed: true, leases })).map((each) => each.sequence), [2]);
    const [release, ...more] = commands(bench.granted(2));
    assert.equal(release.release.leaseId, 'db#9');
    assert.deepEqual(more, []);
  });

  test('a lease that is listed is not given back while its acquire is to be sent again', () => {
    const { bench } = Bench.withLease();
    const answer = bench.acquire();
    bench.run();
    bench.end(14);
    const leases = [{ leaseId: 'db#1' }, { leaseId: 'db#2' }];
    const [again] = commands(bench.opened({ resumed: true, leases }));
    const error = status(14, 'not now', 'NOT_VOUCHED');
    assert.deepEqual(commands(bench.hear({ results: [{ sequence: '2', error }] })), []);
    assert.deepEqual(commands(bench.tick(200)), [again]);
    assert.deepEqual(commands(bench.granted(2)), []);
    assert.equal(answer.value.leaseId, 'db#2');
  });

  test('a lease that is listed is given back when its acquire has failed', () => {
    const { bench } = Bench.withLease();
    bench.acquire();
    bench.run();
    bench.end(14);
    bench.opened({ resumed: true, leases: [{ leaseId: 'db#1' }, { leaseId: 'db#2' }] });
    const error = status(7, 'never', 'PERMISSION_DENIED');
    const [release] = commands(bench.hear({ results: [{ sequence: '2', error }] }));
    assert.equal(release.release.leaseId, 'db#2');
  });

  test('a session that has expired: its leases are lost, waits begin anew under another client id, here', () => {
    const { bench, lease } = Bench.withLease();
    const waiting = bench.acquire();
    bench.run();
    bench.end(14);
    const [open] = bench.end(5, 'no such session');
    assert.equal(lease.loss.cause, 'EXPIRED');
    assert.equal(bench.endpoint, 1);
    assert.equal(open.open.resumeSessionId, '');
    assert.notEqual(open.open.clientId, 'client-1');
    assert.equal(commands(bench.opened({ sessionId: 's2' }))[0].sequence, 1);
    bench.granted(1);
    assert.equal(waiting.value.leaseId, 'db#1');
  });

  test('a stream that goes silent after a ping is dropped before the deadline', () => {
    const { bench, lease } = Bench.withLease();
    bench.tick(3_400);
    bench.tick(2_500);
    assert.equal(bench.dropped, 1);
    assert.equal(bench.endpoint, 1);
    assert.equal(lease.loss, undefined);
  });

  test('an endpoint that does not answer open in time gives way to the next', () => {
    const bench = new Bench();
    bench.acquire();
    bench.run();
    assert.equal(bench.endpoint, 0);
    bench.tick(2_500);
    assert.equal(bench.dropped, 1);
    assert.equal(bench.endpoint, 1);
  });
});

describe('requests', () => {
  test('fail closed when no endpoint answers', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    bench.run();
    for (let ms = 0; ms < 5_100; ms += 50) {
      if (bench.endpoint !== undefined) bench.end(14, 'refused');
      bench.tick(50);
    }
    assert.equal(answer.error.code, 'UNAVAILABLE');
    assert.equal(answer.error.reason, 'UNREACHABLE');
    assert.match(answer.error.message, /refused/);
  });

  test('an error that another endpoint would not mend is told at once', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    bench.run();
    bench.end(16, 'no token');
    assert.equal(answer.error.name, 'UnauthenticatedError');
  });

  test('a wait that is given up is cancelled; a grant that still comes is given back', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    bench.run();
    bench.opened();
    bench.machine.cancel(answer.operation, bench.now);
    assert.equal(commands(bench.run())[0].cancel, 1);
    assert.equal(answer.error.reason, 'WAIT_CANCELLED');
    assert.equal(commands(bench.granted(1))[0].release.leaseId, 'db#1');
  });

  test('a grant that is told twice is not given back while it is in use', () => {
    const bench = new Bench();
    bench.acquire();
    bench.run();
    bench.opened();
    bench.granted(1);
    assert.deepEqual(commands(bench.granted(1)), []);
    assert.equal(commands(bench.granted(1, 'unknown'))[0].release.leaseId, 'unknown');
  });

  test('UNAVAILABLE is sent again with the same number after a pause', () => {
    const bench = new Bench();
    bench.acquire(5_000);
    bench.run();
    const [first] = commands(bench.opened());
    bench.hear({ results: [{ sequence: '1', error: status(14, 'engine', 'X') }] });
    assert.deepEqual(bench.tick(199), []);
    assert.deepEqual(commands(bench.tick(1)), [first]);
  });

  test('another answer ends the time for which the daemon was unavailable', () => {
    const bench = new Bench({ reconnectTimeoutMs: 1_000 });
    const answer = bench.acquire();
    bench.run();
    const [first] = commands(bench.opened());
    for (let i = 0; i < 3; i += 1) {
      bench.hear({ results: [{ sequence: '1', error: status(14, 'engine', 'X') }] });
      assert.deepEqual(commands(bench.tick(600)), [first]);
      bench.hear({ results: [{ sequence: '1', queued: { position: '1', reason: 'WAIT_REASON_FULL' } }] });
    }
    assert.equal(answer.error, undefined);
  });

  test('a number that the daemon has forgotten is given up, and asked anew', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    bench.run();
    bench.opened();
    const error = status(10, 'old', 'REQUEST_TOO_OLD');
    const [cancel, again] = commands(bench.hear({ results: [{ sequence: '1', error }] }));
    assert.equal(cancel.cancel, 1);
    assert.equal(again.sequence, 3);
    bench.granted(3);
    assert.equal(answer.value.leaseId, 'db#3');
  });

  test('the wait is a number, or for ever; slots come one by one, and a place with what is known of it', () => {
    const bench = new Bench();
    const places = [];
    const forever = bench.acquire();
    forever.onQueued = (place) => places.push(place);
    for (const waitMs of [0, 700]) bench.acquire(waitMs);
    bench.run();
    const waits = commands(bench.opened()).map(({ acquire }) => [acquire.waitMs, acquire.waitForever]);
    assert.deepEqual(waits, [[undefined, true], [0, undefined], [700, undefined]]);
    const queued = (fields) => bench.hear({ results: [{ sequence: '1', queued: { position: '3', ...fields } }] });
    queued({ reason: 'WAIT_REASON_HOLDER_CAP' });
    queued({ expectedWaitMs: 0, reason: 99 }); // Of a newer daemon.
    assert.deepEqual(places, [
      { position: 3, expectedWaitMs: undefined, reason: 'HOLDER_CAP' },
      { position: 3, expectedWaitMs: 0, reason: '99' },
    ]);
    const slots = [{ first: 2, last: 4 }, { first: 9, last: 9 }];
    bench.hear({ results: [{ sequence: '1', granted: { leaseId: 'x', semaphore: 'db', slots, token: '1' } }] });
    assert.deepEqual(forever.value.slots, [2, 3, 4, 9]);
  });

  test('an error whose reason a newer daemon has added is still told', () => {
    const bench = new Bench();
    const answer = bench.acquire();
    bench.run();
    bench.opened();
    bench.hear({ results: [{ sequence: '1', error: status(9, 'new', 'OF_A_NEWER_DAEMON') }] });
    assert.deepEqual([answer.error.name, answer.error.reason], ['FailedPreconditionError', 'OF_A_NEWER_DAEMON']);
  });

  test('a wait ends here when the daemon does not end it', () => {
    const bench = new Bench();
    const answer = bench.acquire(1_000);
    bench.run();
    bench.opened();
    bench.tick(1_249);
    assert.equal(answer.error, undefined);
    bench.tick(1);
    assert.equal(answer.error.reason, 'WAIT_EXPIRED');
  });

  test('more than operationsMax are refused', () => {
    const bench = new Bench({ operationsMax: 1 });
    bench.acquire();
    const answer = bench.acquire();
    bench.run();
    assert.equal(answer.error.reason, 'LIMIT_REACHED');
  });

  test('never more numbers under way than the daemon remembers, nor commands in a message than it takes', () => {
    const bench = new Bench({ operationsMax: 5_000 });
    for (let i = 0; i < 2_500; i += 1) bench.acquire();
    bench.run();
    const sent = bench.opened();
    assert.equal(commands(sent).length, 1_000);
    const queued = { position: '1', reason: 'WAIT_REASON_FULL' };
    const results = Array.from({ length: 1_000 }, (_, i) => ({ sequence: String(i + 1), queued }));
    assert.equal(commands(bench.hear({ results })).length, 1_000);
  });
});

describe('the end', () => {
  test('a recall is told with its grace, which ends the lease a margin before', () => {
    const { bench, lease } = Bench.withLease();
    bench.hear({ events: [{ recalled: { leaseId: 'db#1', recall: { graceMs: 1_000, reason: 'shrunk' } } }] });
    assert.deepEqual(lease.recall, { graceMs: 1_000, reason: 'shrunk' });
    assert.equal(lease.goodUntil, bench.now + 950);
    bench.tick(950);
    assert.equal(lease.loss.cause, 'RECALLED');
  });

  test('what the daemon says is lost is lost', () => {
    const { bench, lease } = Bench.withLease();
    bench.hear({ events: [{ lost: { leaseId: 'db#1', cause: 'END_CAUSE_REVOKED' } }] });
    assert.equal(lease.loss.cause, 'REVOKED');
  });

  test('a release is answered, and the lease is forgotten', () => {
    const { bench, lease } = Bench.withLease();
    const answer = bench.release(lease);
    const [command] = commands(bench.run());
    bench.hear({ results: [{ sequence: String(command.sequence), released: { released: 1, remaining: 0 } }] });
    assert.equal(answer.done, true);
    assert.equal(bench.machine.holdsLeases, false);
  });

  test('close: waits are rejected and leases lost before the daemon is told', () => {
    const { bench, lease } = Bench.withLease();
    const waiting = bench.acquire();
    bench.run();
    bench.machine.close(bench.now);
    const [message] = bench.run();
    assert.equal(lease.loss.cause, 'CLOSED');
    assert.equal(waiting.error.code, 'CANCELLED');
    assert.equal(message.close, true);
    bench.end(0);
    assert.equal(bench.machine.closed, true);
  });

  test('close gives up when no daemon answers', () => {
    const { bench } = Bench.withLease();
    bench.end(14);
    bench.machine.close(bench.now);
    bench.tick(5_000);
    assert.equal(bench.machine.closed, true);
    assert.equal(bench.machine.nextDue(true), Infinity);
  });
});
