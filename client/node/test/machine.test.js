// What only this client has of a session's rules. What all clients share is in the traces of tests/conformance.
'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { play } = require('./traces.js');

const holding = () => play({ after: 'holding', steps: [] });

test('a token is a BigInt: it may need all of its 64 bits', () => {
  const granted = { leaseId: 'L1', semaphore: 'db', token: '18446744073709551615' };
  const message = { results: [{ sequence: '1', granted }] };
  const run = play({ after: 'asked', steps: [{ message, reports: [{ granted: 'a' }] }] });
  assert.equal(run.lease('a').token, 18446744073709551615n);
});

test('close: permits are lost before the daemon frees them', () => {
  const run = holding();
  run.close();
  assert.equal(run.lease('a').loss.cause, 'CLOSED');
  run.settle();
  assert.deepEqual(run.wire, [{ close: true }]);
  run.end({ code: 'OK' });
  assert.equal(run.machine.nextDue(true), Infinity);
});

test('errors have the class of their code, and say what the last endpoint said', () => {
  const steps = [{ end: { code: 'UNAUTHENTICATED', message: 'no token' }, reports: [{ refused: 'b' }], wire: [{ connect: 1 }, { open: {} }] }];
  const acquire = { acquire: { call: 'b' }, wire: [{ commands: 1 }] };
  assert.equal(play({ after: 'holding', steps: [acquire, ...steps] }).errors.get('b').name, 'UnauthenticatedError');
  const run = holding();
  run.end({ code: 'UNAVAILABLE', message: 'refused' });
  run.acquire({ call: 'b' });
  run.advance_ms(60_000);
  run.settle();
  assert.match(run.errors.get('b').message, /the last one said: /);
});

test('leases are held until they are given back', () => {
  const run = holding();
  assert.equal(run.machine.holdsLeases, true);
  run.release({ call: 'r', lease: 'a' });
  run.settle();
  run.message({ results: [{ sequence: '2', released: { released: 1 } }] });
  assert.equal(run.machine.holdsLeases, false);
});

test('a release of a permit that the daemon has ended says why', () => {
  const run = holding();
  run.release({ call: 'r', lease: 'a' });
  run.settle();
  run.message({ results: [{ sequence: '2', released: { released: 0, ended: 'END_CAUSE_RELEASED' } }] });
  run.settle();
  assert.equal(run.errors.get('r').loss.cause, 'REVOKED');
});
