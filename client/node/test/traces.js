// Plays the traces of tests/conformance on this client's session machine. Their format: tests/conformance/README.md.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');

const protoLoader = require('@grpc/proto-loader');

const { CODES } = require('../lib/errors.js');
const { SessionMachine } = require('../lib/session_machine.js');

const ROOT = path.join(__dirname, '..', '..', '..');
const FOLDER = path.join(ROOT, 'tests', 'conformance');
const START_MS = 1_000_000;
const TURNS_MAX = 1_000;
const DEFAULTS = ['false', '0', '', 'null'];

const read = (...name) => JSON.parse(fs.readFileSync(path.join(FOLDER, ...name), 'utf8'));

// ---- messages as the stub gives them: see transport.js ----

const { Session } = protoLoader.loadSync('semaphore/v1/semaphore.proto', {
  longs: String, enums: String, defaults: true, arrays: true, includeDirs: [path.join(ROOT, 'proto')],
})['semaphore.v1.SemaphoreService'];

// An Any in proto3 JSON, as bytes. The only one in the traces is an ErrorInfo with nothing but a reason.
function packed(value) {
  if (Array.isArray(value)) return value.map(packed);
  if (typeof value !== 'object' || value === null) return value;
  if ('@type' in value) {
    const bytes = Buffer.concat([Buffer.from([10, value.reason.length]), Buffer.from(value.reason)]);
    return { type_url: value['@type'], value: bytes };
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, packed(each)]));
}

const response = (json) => Session.responseDeserialize(Session.responseSerialize(packed(json)));

// ---- comparing ----

// Compares what is expected with what is there. Placeholders keep their values.
class Matcher {
  #values = new Map();

  matches(expected, actual) {
    if (Array.isArray(expected)) {
      const list = actual ?? [];
      return Array.isArray(list) && list.length === expected.length
        && expected.every((each, i) => this.matches(each, list[i]));
    }
    if (typeof expected === 'object' && expected !== null) {
      return typeof (actual ?? {}) === 'object'
        && Object.entries(expected).every(([name, each]) => this.matches(each, actual?.[name]));
    }
    if (Array.isArray(actual)) return expected === actual.length;
    if (String(expected).startsWith('$')) {
      if (!this.#values.has(expected) && [...this.#values.values()].includes(actual)) return false;
      if (!this.#values.has(expected)) this.#values.set(expected, actual);
      return this.#values.get(expected) === actual;
    }
    if (actual === undefined || actual === null) return DEFAULTS.includes(String(expected));
    return String(expected) === String(actual);
  }

  // All fields of a message are named; what is in them may be named in part.
  isWire(expected, actual) {
    const fields = (message) => Object.keys(message).sort().join();
    return expected.length === actual.length
      && expected.every((each, i) => fields(each) === fields(actual[i]) && this.matches(each, actual[i]));
  }

  areReports(expected, actual) {
    const left = [...actual];
    for (const report of expected) {
      const found = left.findIndex((each) => this.matches(report, each));
      if (found < 0) return false;
      left.splice(found, 1);
    }
    return left.length === 0;
  }
}

// ---- playing ----

// One trace: a machine, its clock, and what was seen since the last step.
class Run {
  constructor({ endpoints, ...options }) {
    const named = Object.entries(options).map(([name, value]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), value]);
    this.now = START_MS;
    this.clients = 0;
    this.calls = new Map(); // By name: {operation, lease}.
    this.errors = new Map(); // By name of the call.
    this.recalls = [];
    this.wire = [];
    this.reports = [];
    const endpointNames = Array.from({ length: endpoints }, (_, i) => `e${i}:1`);
    const machineOptions = { endpoints: endpointNames, ...Object.fromEntries(named) };
    this.machine = new SessionMachine(machineOptions, () => `client-${++this.clients}`, {
      onLost: (lease) => {
        if (lease.loss.cause !== 'CLOSED') this.reports.push({ lost: lease, cause: lease.loss.cause });
      },
      onRecalled: (lease, { graceMs, reason }, acknowledgement) => {
        this.recalls.push({ lease, acknowledgement });
        this.reports.push({ recalled: lease, grace_ms: graceMs, reason });
      },
    });
  }

  // Does what the machine wants, until it wants nothing more at this time.
  settle() {
    for (let turn = 0; turn < TURNS_MAX; turn += 1) {
      if (!this.#turn()) return;
    }
    assert.fail('the machine does not come to rest');
  }

  #turn() {
    const effects = this.machine.takeEffects();
    if (effects.dropStream) {
      this.hasStream = false;
      this.wire.push({ drop: true });
    }
    for (const run of effects.run) run();
    if (this.machine.closed && !this.wasClosed) {
      this.wasClosed = true;
      this.reports.push({ closed: true });
    }
    const endpoint = this.machine.startConnecting(this.now);
    if (endpoint !== undefined) {
      this.hasStream = true;
      this.wire.push({ connect: endpoint });
    }
    const message = this.hasStream ? this.machine.nextMessage(this.now) : undefined;
    if (message !== undefined) {
      Session.requestSerialize(message); // It can be sent.
      this.wire.push(message);
      return true;
    }
    if (!this.machine.closed && this.machine.nextDue(Boolean(this.hasStream)) <= this.now) {
      this.machine.tick(this.now);
      return true;
    }
    return endpoint !== undefined || effects.dropStream;
  }

  // ---- what goes in ----

  acquire({ call, request = { semaphore: 'db' }, wait_ms: waitMs = -1, times }) {
    const names = times === undefined ? [call] : Array.from({ length: times }, (_, i) => `${call}${i + 1}`);
    for (const name of names) this.#acquire(name, request, waitMs);
  }

  #acquire(name, request, waitMs) {
    const call = {};
    this.calls.set(name, call);
    call.operation = this.machine.acquire({
      request,
      waitMs,
      onQueued: ({ position, expectedWaitMs, reason }) => {
        this.reports.push({ queued: name, position, reason, expected_wait_ms: expectedWaitMs });
      },
      resolve: (lease) => {
        call.lease = lease;
        this.reports.push({ granted: name, lease_id: lease.leaseId, slots: [...lease.slots], token: lease.token });
      },
      reject: (error) => this.#refused(name, error),
    }, this.now);
  }

  #refused(name, error) {
    this.errors.set(name, error);
    this.reports.push({ refused: name, code: error.code, reason: error.reason });
  }

  cancel(name) {
    this.machine.cancel(this.calls.get(name).operation, this.now);
  }

  release({ call, lease }) {
    const answer = { resolve: () => this.reports.push({ released: call }), reject: (error) => this.#refused(call, error) };
    this.machine.release(this.calls.get(lease).lease.leaseId, answer, this.now);
  }

  handled({ call, recall, times = 1 }) {
    const { lease } = this.calls.get(call);
    const { acknowledgement } = this.recalls.filter((each) => each.lease === lease)[recall];
    if (acknowledgement === undefined) return;
    for (let i = 0; i < times; i += 1) this.machine.acknowledge(acknowledgement);
  }

  close() {
    this.machine.close(this.now);
  }

  message(json) {
    this.machine.onMessage(response(json), this.now);
  }

  end({ code, message = '' }) {
    this.hasStream = false;
    this.machine.onStreamEnd({ code: CODES.indexOf(code), details: message }, this.now);
  }

  advance_ms(by) {
    const target = this.now + by;
    while (!this.machine.closed) {
      const due = this.machine.nextDue(Boolean(this.hasStream));
      if (due > target) break;
      this.now = Math.max(this.now, due);
      this.machine.tick(this.now);
      this.settle();
    }
    this.now = target;
    this.machine.tick(this.now);
  }

  stall_ms(by) {
    this.now += by;
  }

  // ---- what is seen ----

  get seenReports() {
    const names = new Map([...this.calls].map(([name, { lease }]) => [lease, name]));
    return this.reports.map((report) => {
      const kind = ['lost', 'recalled'].find((each) => each in report);
      return kind === undefined ? report : { ...report, [kind]: names.get(report[kind]) };
    });
  }

  lease(name) {
    return this.calls.get(name).lease;
  }

  get nextDueMs() {
    const due = this.machine.nextDue(Boolean(this.hasStream));
    return due === Infinity ? null : due - START_MS;
  }
}

const EXPECTATIONS = ['wire', 'reports', 'good_until_ms', 'held', 'next_due_ms', 'why'];

function show(value) {
  return JSON.stringify(value, (_, each) => (typeof each === 'bigint' ? String(each) : each));
}

function compare(what, expected, actual, holds = expected === actual) {
  assert.ok(holds, `${what}: ${show(expected)} expected, ${show(actual)} seen`);
}

function check(run, matcher, step) {
  const { wire = [], reports = [] } = step;
  const seen = run.seenReports;
  compare('wire', wire, run.wire, matcher.isWire(wire, run.wire));
  compare('reports', reports, seen, matcher.areReports(reports, seen));
  for (const [name, expected] of Object.entries(step.good_until_ms ?? {})) {
    compare('good until', expected, run.lease(name).goodUntil - START_MS);
  }
  for (const [name, expected] of Object.entries(step.held ?? {})) {
    compare('held', expected, run.lease(name).isHeld(run.now));
  }
  if ('next_due_ms' in step) compare('next due', step.next_due_ms, run.nextDueMs);
  run.wire = [];
  run.reports = [];
}

const basis = read('basis.json');

// Returns the run, for what a trace cannot say.
function play(trace) {
  const run = new Run({ ...basis.options, ...trace.options });
  const matcher = new Matcher();
  const steps = [...(basis.prologues[trace.after] ?? []), ...trace.steps];
  steps.forEach((step, i) => {
    try {
      const [kind, ...others] = Object.keys(step).filter((key) => !EXPECTATIONS.includes(key));
      assert.deepEqual(others, [], 'one input in each step');
      run[kind](step[kind]);
      if (kind !== 'stall_ms') run.settle();
      check(run, matcher, step);
    } catch (error) {
      error.message = `step ${i + 1} of ${steps.length}, ${show(step)}: ${error.message}`;
      throw error;
    }
  });
  return run;
}

function traces() {
  return fs.readdirSync(path.join(FOLDER, 'traces')).sort().flatMap((file) => read('traces', file).traces);
}

module.exports = { play, traces };
