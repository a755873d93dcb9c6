// The leases of one session, and until when they can be relied on. Part of the session's rules, see session_machine.js.
//
// Invariant: a lease in here is one that the daemon may still hold for us. Only an answered release, a `lost` event, a
// resume that does not list it or the loss of the session takes it out. That it is lost *here* (the deadline passed) does
// not: its release must still be sent, or we would keep it alive for ever.
'use strict';

const { Timetable } = require('./collections.js');
const { PermitLostError } = require('./errors.js');
const { LOSS_TEXTS, LeaseState, goodUntil } = require('./lease_state.js');
const { slotNumbers } = require('./wire.js');

const CAUSES = {
  END_CAUSE_EXPIRED: 'EXPIRED',
  END_CAUSE_RELEASED: 'REVOKED', // By another program that knew the lease id.
  END_CAUSE_REVOKED: 'REVOKED',
  END_CAUSE_RECALLED: 'RECALLED',
  END_CAUSE_DESTROYED: 'DESTROYED',
  END_CAUSE_DISCONNECTED: 'DISCONNECTED',
  END_CAUSE_ENGINE_LOST: 'ENGINE_LOST',
  END_CAUSE_MOVED: 'MOVED',
};

class Leases {
  #marginMs;
  #effect;
  #byId = new Map();
  #recalls = new Timetable();
  #session; // {goodUntil}, which all leases of the session share.
  #deadlineTold = true; // No lease that is not lost hangs on the session's deadline.

  // `effect` takes a function that is to be run outside of the machine.
  constructor(marginMs, effect) {
    this.#marginMs = marginMs;
    this.#effect = effect;
  }

  get size() {
    return this.#byId.size;
  }

  has(lease) {
    return this.#byId.get(lease.leaseId) === lease;
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
    return lease;
  }

  remove(leaseId) {
    this.#byId.delete(leaseId);
  }

  // Whether it is held: neither given back nor ended.
  knows(leaseId) {
    return this.#byId.has(leaseId);
  }

  // All leases can be relied on for `validForMs` after `made`, less the margin. A later answer does not take an earlier
  // promise back; what has ended is told by an event.
  extend(made, validForMs) {
    this.#session ??= { goodUntil: -Infinity };
    this.#session.goodUntil = Math.max(this.#session.goodUntil, goodUntil(made, validForMs, this.#marginMs));
  }

  #lose(lease, cause, message) {
    if (!lease.markLost(cause, message)) return;
    this.#effect(() => lease.tellLoss(new PermitLostError(lease.loss)));
  }

  loseAll(cause, message) {
    for (const lease of this.#byId.values()) this.#lose(lease, cause, message);
  }

  // The session is gone, and its leases with it.
  clear() {
    this.#byId.clear();
    this.#recalls.clear();
    this.#session = undefined;
    this.#deadlineTold = true;
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
    if (lease === undefined) return;
    this.#byId.delete(lost.leaseId);
    const cause = CAUSES[lost.cause] ?? 'UNKNOWN';
    this.#lose(lease, cause, `the daemon says: ${LOSS_TEXTS[cause]}`);
  }

  // The message LeaseRecalled.
  onRecalled(recalled, now) {
    const lease = this.#byId.get(recalled.leaseId);
    if (lease === undefined || lease.loss !== undefined) return;
    const notice = Object.freeze({
      graceMs: recalled.recall?.graceMs ?? 0,
      reason: recalled.recall?.reason ?? '',
    });
    const deadline = goodUntil(now, notice.graceMs, this.#marginMs);
    if (deadline < lease.recallDeadline) {
      lease.recallDeadline = deadline;
      this.#recalls.add(deadline, lease);
    }
    this.#effect(() => lease.tellRecall(notice));
  }

  checkDeadlines(now) {
    if (!this.#deadlineTold && now >= this.#session.goodUntil) {
      this.#deadlineTold = true;
      this.loseAll('NO_CONTACT', 'no daemon vouched for it up to its deadline');
    }
    for (let lease; (lease = this.#recalls.takeDue(now)) !== undefined; ) {
      if (this.has(lease)) this.#lose(lease, 'RECALLED', 'its grace after a recall has passed');
    }
  }

  get nextDue() {
    const deadline = !this.#deadlineTold && this.#byId.size > 0 ? this.#session.goodUntil : Infinity;
    return Math.min(deadline, this.#recalls.nextAt);
  }
}

module.exports = { Leases };
