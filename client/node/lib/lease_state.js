// One lease, as its Permit and the machine that keeps it alive share it.
'use strict';

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

// How a promise of `validForMs` that was made at `made`, or later, is counted here; see ClientOptions.marginMs.
function goodUntil(made, validForMs, marginMs) {
  return made + validForMs - Math.max(marginMs, validForMs / 100);
}

// Invariant: `loss` is set once, and never changes again.
class LeaseState {
  // `session` is {goodUntil}, one object for all the leases of a session.
  constructor({ semaphore, leaseId, slots, token, ttlMs, session }) {
    this.semaphore = semaphore;
    this.leaseId = leaseId;
    this.slots = Object.freeze([...slots]);
    this.token = token;
    this.ttlMs = ttlMs;
    this.failOpen = false;
    this.session = session;
    this.recallDeadline = Infinity;
    this.loss = undefined;
    this.recall = undefined; // The last notice.
    this.abort = new AbortController();
    this.lossCallbacks = [];
    this.recallCallbacks = [];
  }

  get goodUntil() {
    return Math.min(this.session.goodUntil, this.recallDeadline);
  }

  isHeld(now) {
    return this.loss === undefined && now < this.goodUntil;
  }

  // The first call wins and returns true: the caller then sees to it that tellLoss() is called.
  markLost(cause, message) {
    if (this.loss !== undefined) return false;
    this.loss = Object.freeze({ cause, message: message || LOSS_TEXTS[cause] });
    return true;
  }

  // Aborts the signal and runs the callbacks. REQUIRES: markLost() returned true to the caller, once.
  tellLoss(error) {
    this.abort.abort(error);
    const callbacks = this.lossCallbacks;
    this.lossCallbacks = undefined;
    for (const callback of callbacks) runApart(() => callback(this.loss));
  }

  // At once if the loss has been told.
  onLost(callback) {
    if (this.lossCallbacks === undefined) runApart(() => callback(this.loss));
    else this.lossCallbacks.push(callback);
  }

  tellRecall(notice) {
    this.recall = notice;
    for (const callback of this.recallCallbacks) runApart(() => callback(notice));
  }

  // With each notice; at once if there has been one.
  onRecall(callback) {
    this.recallCallbacks.push(callback);
    const notice = this.recall;
    if (notice !== undefined) runApart(() => callback(notice));
  }
}

// A callback that throws is its owner's affair (an uncaught exception), and stops nothing here.
function runApart(callback) {
  queueMicrotask(callback);
}

module.exports = { LOSS_TEXTS, LeaseState, goodUntil, runApart };
