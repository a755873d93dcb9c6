// One lease, as the thread of the session and the thread of the application share it.
'use strict';

const { SharedTime } = require('./shared_time.js');

// Why a permit that was not given back is held no more.
const LOSS_TEXTS = {
  NO_CONTACT: 'no contact with a daemon',
  EXPIRED: 'expired',
  REVOKED: 'revoked',
  RECALLED: 'recalled and not given back in time',
  DESTROYED: 'the semaphore was destroyed',
  DISCONNECTED: 'the connection broke',
  ENGINE_LOST: 'taken back by the engine',
  MOVED: 'moved to another session',
  CLOSED: 'the client was closed',
  UNKNOWN: 'not known to the daemon',
};
const CAUSES = Object.keys(LOSS_TEXTS);
const CAUSE_OF_END = {
  END_CAUSE_EXPIRED: 'EXPIRED',
  END_CAUSE_RELEASED: 'REVOKED', // By another program that knew the lease id.
  END_CAUSE_REVOKED: 'REVOKED',
  END_CAUSE_RECALLED: 'RECALLED',
  END_CAUSE_DESTROYED: 'DESTROYED',
  END_CAUSE_DISCONNECTED: 'DISCONNECTED',
  END_CAUSE_ENGINE_LOST: 'ENGINE_LOST',
  END_CAUSE_MOVED: 'MOVED',
};

// Of an EndCause; one that a newer daemon has added is an unknown one.
function causeOf(ended) {
  return CAUSE_OF_END[ended] ?? 'UNKNOWN';
}

// How a promise of `validForMs` that was made at `made`, or later, is counted here; see ClientOptions.marginMs.
function goodUntil(made, validForMs, marginMs) {
  return made + validForMs - Math.max(marginMs, validForMs / 100);
}

// Invariant: `loss` is set once, and never changes again.
class LeaseState {
  #session;
  #end; // Of this lease alone: when the grace of a recall is over. Lost: negative, and says by which cause.
  #loss;

  // `session`: a SharedTime, until when all leases of the session are good. `end`: by default a new one.
  constructor({ semaphore, leaseId, slots, token, ttlMs, session, end = new SharedTime() }) {
    this.semaphore = semaphore;
    this.leaseId = leaseId;
    this.slots = Object.freeze([...slots]);
    this.token = token;
    this.ttlMs = ttlMs;
    this.failOpen = false;
    this.acknowledgement = undefined; // Of the last recall; see SessionMachine.
    this.#session = session;
    this.#end = end;
  }

  // For another thread, and back: what a LeaseState there is made of.
  toMessage() {
    const { semaphore, leaseId, slots, token, ttlMs } = this;
    return { semaphore, leaseId, slots, token, ttlMs, session: this.#session.buffer, end: this.#end.buffer };
  }

  static fieldsOf({ session, end, ...fields }) {
    return { ...fields, session: new SharedTime(undefined, session), end: new SharedTime(undefined, end) };
  }

  get goodUntil() {
    return Math.min(this.#session.get(), this.#end.get());
  }

  isHeld(now) {
    return now < this.goodUntil;
  }

  // The end of the grace of a recall; Infinity if there was none.
  get recallDeadline() {
    return this.#end.get();
  }

  // REQUIRES: not lost.
  set recallDeadline(at) {
    this.#end.set(Math.max(at, 0));
  }

  // In the words of the thread that marked it, where they have arrived.
  get loss() {
    const end = this.#loss === undefined ? this.#end.get() : 0;
    if (end < 0) {
      const cause = CAUSES[-1 - end];
      this.#loss = Object.freeze({ cause, message: LOSS_TEXTS[cause] });
    }
    return this.#loss;
  }

  // The first call wins and returns true: the caller then sees to it that the application hears of it.
  markLost(cause, message) {
    if (this.loss !== undefined) return false;
    this.adoptLoss({ cause, message: message || LOSS_TEXTS[cause] });
    this.#end.set(-1 - CAUSES.indexOf(cause));
    return true;
  }

  // The loss as another thread has marked it. It changes nothing if it was read before.
  adoptLoss(loss) {
    this.#loss ??= Object.freeze({ ...loss });
  }
}

module.exports = { LOSS_TEXTS, LeaseState, causeOf, goodUntil };
