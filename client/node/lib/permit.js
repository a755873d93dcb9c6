// Permits of one semaphore, held.
'use strict';

const { PermitLostError, makeError } = require('./errors.js');

// What each function promises stands in index.d.ts.
class Permit {
  #lease;
  #session;
  #options;
  #lost;
  #released;

  constructor(lease, session, options) {
    this.#lease = lease;
    this.#session = session;
    this.#options = options;
  }

  get semaphore() {
    return this.#lease.semaphore;
  }

  get slots() {
    return this.#lease.slots;
  }

  get token() {
    return this.#lease.token;
  }

  get leaseId() {
    return this.#lease.leaseId;
  }

  get ttlMs() {
    return this.#lease.ttlMs;
  }

  get failOpen() {
    return this.#lease.failOpen;
  }

  get held() {
    return this.#released === undefined && this.#lease.isHeld(this.#session.now());
  }

  get released() {
    return this.#released !== undefined;
  }

  get goodForMs() {
    return this.held ? this.#lease.goodUntil - this.#session.now() : 0;
  }

  get signal() {
    return this.#lease.abort.signal;
  }

  get loss() {
    return this.#lease.loss;
  }

  get lost() {
    this.#lost ??= new Promise((resolve) => this.#lease.onLost(resolve));
    return this.#lost;
  }

  get recall() {
    return this.#lease.recall;
  }

  onLost(callback) {
    this.#lease.onLost(callback);
  }

  onRecall(callback) {
    this.#lease.onRecall(callback);
  }

  throwIfLost() {
    if (this.held) return;
    if (this.#released !== undefined) throw makeError('FAILED_PRECONDITION', 'the permits have been given back');
    const overdue = { cause: 'NO_CONTACT', message: 'no daemon vouched for it up to its deadline' };
    throw new PermitLostError(this.#lease.loss ?? overdue);
  }

  release() {
    this.#released ??= this.#lease.failOpen ? Promise.resolve() : this.#giveBack();
    return this.#released;
  }

  #giveBack() {
    return new Promise((resolve, reject) => {
      const late = 'no daemon answered in time; it is still tried, and at the latest the TTL gives the permits back';
      const timer = setTimeout(
        () => reject(makeError('UNAVAILABLE', late, { reason: 'UNREACHABLE' })),
        this.#options.releaseTimeoutMs,
      );
      const answered = (done) => (value) => {
        clearTimeout(timer);
        done(value);
      };
      this.#session.release(this.#lease, { resolve: answered(resolve), reject: answered(reject) });
    });
  }
}

// Node knows the symbol from 18.18 and 20 on; `await using` itself comes later, or from a compiler.
if (Symbol.asyncDispose !== undefined) {
  Object.defineProperty(Permit.prototype, Symbol.asyncDispose, {
    configurable: true,
    writable: true,
    value() {
      return this.release();
    },
  });
}

module.exports = { Permit };
