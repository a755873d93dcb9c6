// The leases of one session, and until when they can be relied on. Part of the session's rules, see session_machine.js.
//
// Invariant: a lease in here is one that the daemon may still hold for us. Only an answered release, a `lost` event, a
// resume that does not list it or the loss of the session takes it out. That it is lost *here* (the deadline passed) does
// not: its release must still be sent, or we would keep it alive for ever.
'use strict';

const { Timetable } = require('./collections.js');
const { LOSS_TEXTS, LeaseState, causeOf, goodUntil } = require('./lease_state.js');
const { SharedTime } = require('./shared_time.js');
const { slotNumbers } = require('./wire.js');

class Leases {
  #marginMs;
  #earlyMax;
  #effect;
  #listener;
  #byId = new Map();
  #recalls = new Timetable();
  // Recalls of leases that are not known here: their grant may still be on its way. [recall, sentAt, stream] by lease id.
  #early = new Map();
  #session; // A SharedTime: until when all leases of the session are good.
  #deadlineTold = true; // No lease that is not lost hangs on the session's deadline.
  // The last answer vouched for less than pings go by, since all leases were recalled, and no ping was sent after it.
  #shortened = false;
  #pingWanted = false; // Before it is due.

  // `effect` takes a function that is to be run outside of the machine. `listener`: see SessionMachine.
  constructor({ marginMs, operationsMax }, effect, listener) {
    this.#marginMs = marginMs;
    this.#earlyMax = operationsMax;
    this.#effect = effect;
    this.#listener = listener;
  }

  get size() {
    return this.#byId.size;
  }

  get pingWanted() {
    return this.#pingWanted;
  }

  pinged() {
    this.#pingWanted = false;
    this.#shortened = false;
  }

  get #allRecalled() {
    const isRecalled = ({ loss, recallDeadline }) => (loss ? loss.cause === 'RECALLED' : recallDeadline !== Infinity);
    for (const lease of this.#byId.values()) {
      if (!isRecalled(lease)) return false;
    }
    return this.size > 0;
  }

  // undefined if the daemon does not hold it for us.
  get(leaseId) {
    return this.#byId.get(leaseId);
  }

  // REQUIRES: extend() was called for this session.
  add(granted, ttlMs) {
    const lease = new LeaseState({
      semaphore: granted.semaphore,
      leaseId: granted.leaseId,
      slots: slotNumbers(granted.slots),
      token: BigInt(granted.token),
      ttlMs,
      session: this.#session,
    });
    this.#byId.set(lease.leaseId, lease);
    this.#deadlineTold = false;
    // Up to the next answer it is good for no longer than those that were recalled.
    if (this.#shortened) this.#pingWanted = true;
    const early = this.#early.get(lease.leaseId);
    this.#early.delete(lease.leaseId);
    if (early !== undefined) this.#recall(lease, ...early);
    return lease;
  }

  remove(leaseId) {
    // The next lease is good for longer.
    if (this.#byId.delete(leaseId) && this.size === 0 && this.#shortened) this.#pingWanted = true;
    this.#early.delete(leaseId);
  }

  // Whether the last answer vouches for less than `vouchedMs` only because all leases are recalled.
  isShortened(answerMs, vouchedMs) {
    this.#shortened = answerMs < vouchedMs && this.#allRecalled;
    return this.#shortened;
  }

  // All leases can be relied on for `validForMs` after `made`, less the margin. A later answer does not take an earlier
  // promise back; an event reports what has ended.
  extend(made, validForMs) {
    this.#session ??= new SharedTime(0);
    this.#session.set(Math.max(this.#session.get(), goodUntil(made, validForMs, this.#marginMs)));
  }

  #lose(lease, cause, message) {
    if (!lease.markLost(cause, message)) return;
    this.#effect(() => this.#listener.onLost(lease));
  }

  loseAll(cause, message) {
    for (const lease of this.#byId.values()) this.#lose(lease, cause, message);
  }

  // The session is gone, and its leases with it.
  clear() {
    this.#byId.clear();
    this.#recalls.clear();
    this.#early.clear();
    this.#session = undefined;
    this.#deadlineTold = true;
  }

  // What the daemon recalls, it recalls again on the next stream.
  disconnected() {
    this.#early.clear();
  }

  // What a resumed session does not list is lost. Returns the ids that are listed and not known here.
  keepListed(leaseIds) {
    const listed = new Set(leaseIds);
    for (const [leaseId, lease] of this.#byId) {
      if (listed.delete(leaseId)) continue;
      this.#byId.delete(leaseId);
      this.#lose(lease, 'UNKNOWN', 'the daemon does not list it after the session was resumed');
    }
    return listed;
  }

  // The message LeaseLost.
  onLost(lost) {
    const lease = this.#byId.get(lost.leaseId);
    this.remove(lost.leaseId);
    if (lease === undefined) return;
    const cause = causeOf(lost.cause);
    this.#lose(lease, cause, `the daemon says: ${LOSS_TEXTS[cause]}`);
  }

  // The message LeaseRecalled, on the stream of this number. `sentAt`: when the message was sent from whose arrival the
  // recall counts.
  onRecalled({ leaseId, recall }, sentAt, stream) {
    const lease = this.#byId.get(leaseId);
    if (lease !== undefined) {
      if (lease.loss === undefined) this.#recall(lease, recall, sentAt, stream);
      return;
    }
    if (this.#early.size >= this.#earlyMax) this.#early.delete(this.#early.keys().next().value);
    this.#early.set(leaseId, [recall, sentAt, stream]);
  }

  #recall(lease, recall, sentAt, stream) {
    const { graceMs = 0, reason = '', recallId = '0', elapsedMs = '0' } = recall ?? {};
    const deadline = goodUntil(sentAt + Number(elapsedMs), graceMs, this.#marginMs);
    if (deadline < lease.recallDeadline) {
      lease.recallDeadline = deadline;
      this.#recalls.add(deadline, lease);
    }
    const { leaseId } = lease;
    const acknowledgement = recallId === '0' ? undefined : { leaseId, recallId, stream };
    const last = lease.acknowledgement;
    if (last !== undefined && last.recallId === recallId && last.stream === stream) return; // The same once more.
    lease.acknowledgement = acknowledgement;
    this.#effect(() => this.#listener.onRecalled(lease, Object.freeze({ graceMs, reason }), acknowledgement));
  }

  checkDeadlines(now) {
    // A recall first: it is the reason, if the session was vouched for no longer because of it.
    for (let lease; (lease = this.#recalls.takeDue(now)) !== undefined; ) {
      if (this.get(lease.leaseId) === lease) this.#lose(lease, 'RECALLED', 'its grace after a recall has passed');
    }
    if (!this.#deadlineTold && now >= this.#session.get()) {
      this.#deadlineTold = true;
      this.loseAll('NO_CONTACT', 'no daemon vouched for it up to its deadline');
    }
  }

  get nextDue() {
    const deadline = !this.#deadlineTold && this.#byId.size > 0 ? this.#session.get() : Infinity;
    return Math.min(deadline, this.#recalls.nextAt);
  }
}

module.exports = { Leases };
