// Runs a SessionMachine on real streams and timers, in the thread of the session: see session_worker.js.
'use strict';

const { randomUUID } = require('node:crypto');

const { SessionMachine } = require('./session_machine.js');

// A timer sleeps no longer than this while leases are held: Node's timers stand still while the machine is suspended.
const SLEEP_MOST_MS = 1_000;

class SessionDriver {
  #clock;
  #transport;
  #machine;
  #stream;
  #writing = false;
  #timer;
  #flushWanted = false;
  #streamsAlive = 0; // Started, and their end was not yet reported.
  #whenClosed = [];
  #onSettled;

  // `transport`: openSession(endpoint, listener), see transport.js. `listener`: see SessionMachine; and onSettled(), when
  // all that was due is done.
  constructor(options, clock, transport, listener) {
    this.#clock = clock;
    this.#transport = transport;
    this.#machine = new SessionMachine(options, randomUUID, listener);
    this.#onSettled = () => listener.onSettled();
  }

  now() {
    return this.#clock.now();
  }

  // These as SessionMachine's. What is asked for in one turn of the event loop goes into one message.

  acquire(call) {
    const operation = this.#machine.acquire(call, this.now());
    this.#flushSoon();
    return operation;
  }

  cancel(operation) {
    this.#machine.cancel(operation, this.now());
    this.#flushSoon();
  }

  release(leaseId, answer) {
    this.#machine.release(leaseId, answer, this.now());
    this.#flushSoon();
  }

  acknowledge(acknowledgement) {
    this.#machine.acknowledge(acknowledgement);
    this.#flushSoon();
  }

  // Whether nothing happens until it is called again.
  get idle() {
    return !this.#flushWanted && this.#streamsAlive === 0 && this.#timer === undefined;
  }

  // Resolves when the stream has ended, at the latest after releaseTimeoutMs.
  close() {
    this.#machine.close(this.now());
    this.#flush();
    if (this.#isDone) return Promise.resolve();
    return new Promise((resolve) => this.#whenClosed.push(resolve));
  }

  get #isDone() {
    return this.#machine.closed && this.#streamsAlive === 0;
  }

  // ---- the stream's listener ----

  onMessage(stream, message) {
    if (stream !== this.#stream) return;
    this.#machine.onMessage(message, this.now());
    this.#flush();
  }

  onWritten(stream) {
    if (stream !== this.#stream) return;
    this.#writing = false;
    this.#flush();
  }

  // The last call, exactly once for each stream.
  onEnd(stream, status) {
    this.#streamsAlive -= 1;
    if (stream === this.#stream) {
      this.#stream = undefined;
      this.#machine.onStreamEnd(status, this.now());
    }
    this.#flush();
  }

  // ---- effects ----

  #flushSoon() {
    if (this.#flushWanted) return;
    this.#flushWanted = true;
    queueMicrotask(() => {
      if (this.#flushWanted) this.#flush();
    });
  }

  // What is run in here may call any function above: everything is consistent before it.
  #flush() {
    this.#flushWanted = false;
    const effects = this.#machine.takeEffects();
    if (effects.dropStream && this.#stream !== undefined) {
      const dropped = this.#stream;
      this.#stream = undefined;
      dropped.cancel();
    }
    for (const run of effects.run) run();
    const endpoint = this.#machine.startConnecting(this.now());
    if (endpoint !== undefined) {
      this.#writing = false;
      this.#streamsAlive += 1;
      this.#stream = this.#transport.openSession(endpoint, this);
    }
    if (this.#stream !== undefined && !this.#writing) {
      const message = this.#machine.nextMessage(this.now());
      if (message !== undefined) {
        this.#writing = true;
        this.#stream.write(message);
      }
    }
    this.#schedule();
    if (this.#isDone) for (const resolve of this.#whenClosed.splice(0)) resolve();
    this.#onSettled();
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#machine.closed) return;
    const due = this.#machine.nextDue(this.#stream !== undefined && !this.#writing);
    const most = this.#machine.holdsLeases ? SLEEP_MOST_MS : 2 ** 31 - 1;
    if (due === Infinity && !this.#machine.holdsLeases) return;
    const sleep = Math.min(Math.max(Math.ceil(due - this.now()), 0), most);
    this.#timer = setTimeout(() => {
      this.#machine.tick(this.now());
      this.#flush();
    }, sleep);
  }
}

module.exports = { SessionDriver };
