// The client: checks what is asked, and turns the session's answers into permits and errors.
'use strict';

const { randomUUID } = require('node:crypto');

const { Clock } = require('./clock.js');
const { invalid, makeError } = require('./errors.js');
const { HeldLease } = require('./held_lease.js');
const { goodUntil } = require('./lease_state.js');
const { checkAcquireOptions, checkClientOptions } = require('./options.js');
const { Permit } = require('./permit.js');
const { SessionThread } = require('./session_thread.js');
const { SharedTime } = require('./shared_time.js');
const { Transport } = require('./transport.js');
const { UnaryCaller } = require('./unary_caller.js');
const { enumName, plain, slotNumbers } = require('./wire.js');

// What each function promises stands in index.d.ts.
class Client {
  #options;
  #clock = new Clock();
  #transport;
  #session;
  #unary;
  #clientId = randomUUID(); // Of the unary calls; the sessions have their own.
  #sequence = 0;
  #closed = false;

  constructor(options) {
    this.#options = checkClientOptions(options);
    this.#transport = new Transport(this.#options);
    this.#transport.check();
    this.#session = new SessionThread(this.#options, this.#clock);
    this.#unary = new UnaryCaller(this.#options, this.#clock, this.#transport);
  }

  async acquire(semaphore, given) {
    const options = checkAcquireOptions(semaphore, given);
    let lease;
    try {
      lease = await this.#waitForLease(semaphore, options);
    } catch (error) {
      if (!this.#options.failOpen || error?.reason !== 'UNREACHABLE') throw error;
      lease = leaseOfNothing(semaphore);
    }
    const permit = new Permit(lease, this.#session, this.#options);
    if (!options.signal?.aborted) return permit;
    permit.release().catch(() => {});
    throw options.signal.reason;
  }

  #waitForLease(semaphore, options) {
    const { signal } = options;
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      let operation;
      const onAbort = () => {
        this.#session.cancel(operation);
        reject(signal.reason);
      };
      operation = this.#session.acquire({
        request: {
          semaphore,
          permits: options.permits,
          limit: options.limit,
          limitMismatch: options.adoptLimit ? 'LIMIT_MISMATCH_ADOPT' : 'LIMIT_MISMATCH_FAIL',
          priority: options.priority,
          holder: options.holder,
        },
        waitMs: options.waitMs,
        onQueued: options.onQueued && ((place) => queueMicrotask(() => options.onQueued(place))),
        resolve: (lease) => {
          signal?.removeEventListener('abort', onAbort);
          if (signal?.aborted) {
            // It was given up while the grant was on its way.
            this.#session.release(lease, { resolve() {}, reject() {} });
            return;
          }
          // Before anything else can happen to the lease: not one loss may go untold.
          if (options.onLost) lease.onLost(options.onLost);
          if (options.onRecall) lease.onRecall(options.onRecall);
          resolve(lease);
        },
        reject: (error) => {
          signal?.removeEventListener('abort', onAbort);
          reject(error);
        },
      });
      if (operation !== undefined) signal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  tryAcquire(semaphore, options) {
    return this.acquire(semaphore, { ...options, waitMs: 0 });
  }

  async withPermit(semaphore, options, work) {
    if (typeof options === 'function') [options, work] = [undefined, options];
    if (typeof work !== 'function') throw invalid('work: a function that gets the permit');
    const permit = await this.acquire(semaphore, options);
    try {
      const result = await work(permit);
      if (!permit.released) permit.throwIfLost();
      return result;
    } finally {
      // What becomes of the release changes nothing of the work's result: at the latest the TTL gives the permits back.
      await permit.release().catch(() => {});
    }
  }

  async verify(asked) {
    let request = asked;
    if (asked instanceof Permit) request = { leaseId: asked.leaseId };
    else if (asked?.token !== undefined) request = { ...asked, token: String(asked.token) };
    if (!request?.leaseId && !request?.semaphore) {
      throw invalid('verify: a permit, {leaseId}, or {semaphore, slot, token}');
    }
    const { response, sentAt } = await this.#unary.call('Verify', request);
    const validity = response.validity ?? { elapsedMs: 0, validForMs: 0 };
    const until = goodUntil(sentAt + Number(validity.elapsedMs), validity.validForMs, this.#options.marginMs);
    return {
      held: response.held,
      ended: response.held ? '' : enumName(response.ended, 'END_CAUSE_'),
      holder: response.lease?.holder ?? '',
      slots: slotNumbers(response.lease?.slots),
      token: BigInt(response.lease?.token ?? 0),
      slotToken: BigInt(response.slotToken),
      goodForMs: response.held ? Math.max(until - this.#clock.now(), 0) : 0,
      recalled: Boolean(response.recall),
    };
  }

  #requestId() {
    this.#sequence += 1;
    return { numbered: { clientId: this.#clientId, sequence: this.#sequence } };
  }

  async administer(semaphore, act, { expectedRevision = 0, ...call } = {}) {
    const [name, ...more] = Object.keys(act ?? {});
    if (name === undefined || more.length > 0) throw invalid('act: exactly one, such as { describe: {} }');
    const waitMs = Number(act[name]?.waitMs ?? 0);
    const request = { requestId: this.#requestId(), semaphore, expectedRevision: String(expectedRevision), ...act };
    const timeoutMs = call.timeoutMs ?? this.#options.connectTimeoutMs + waitMs;
    const { response } = await this.#unary.call('Administer', request, { ...call, timeoutMs });
    if (!response[name]) throw makeError('INTERNAL', `the daemon's answer is not one to ${name}`);
    return plain(response[name]);
  }

  async enqueue(semaphore, payload, { traceparent, adoptLimit = false, ...options } = {}) {
    const request = {
      requestId: this.#requestId(),
      semaphore,
      payload: typeof payload === 'string' ? Buffer.from(payload) : payload,
      limitMismatch: adoptLimit ? 'LIMIT_MISMATCH_ADOPT' : 'LIMIT_MISMATCH_FAIL',
      traceparent,
      ...options,
    };
    const { response } = await this.#unary.call('Enqueue', request);
    return { ticketId: response.ticketId, position: Number(response.position) };
  }

  async close() {
    if (this.#closed) return;
    this.#closed = true;
    await this.#session.close();
    this.#transport.close();
  }
}

if (Symbol.asyncDispose !== undefined) {
  Object.defineProperty(Client.prototype, Symbol.asyncDispose, {
    configurable: true,
    writable: true,
    value() {
      return this.close();
    },
  });
}

// See ClientOptions.failOpen.
function leaseOfNothing(semaphore) {
  const lease = new HeldLease({
    semaphore,
    leaseId: '',
    slots: [],
    token: 0n,
    ttlMs: 0,
    session: new SharedTime(),
  });
  lease.failOpen = true;
  return lease;
}

module.exports = { Client };
