// What becomes of acquires and releases: sent, sent again, answered, given up. Part of the session's rules, see
// session_machine.js: no sockets, timers or clock here either.
//
// Invariants:
//   * an operation is in `#all` from its call until its last answer; its caller is answered exactly once;
//   * a sequence number is given out when a command is first sent, and the command is sent again with the same number
//     and the same content until it is answered, or its session is lost;
//   * a release whose caller was answered with an error stays, and is sent again: the session's pings would keep the lease
//     alive for ever.
'use strict';

const { Fifo, Timetable } = require('./collections.js');
const { PermitLostError, fromStatusMessage, makeError } = require('./errors.js');
const { LOSS_TEXTS, causeOf } = require('./lease_state.js');
const { enumName } = require('./wire.js');

// The daemon's own bound is 1000.
const COMMANDS_PER_MESSAGE_MAX = 1000;
// The daemon remembers a client's last 1024 answers; what is sent again must be among them.
const WINDOW = 1000;
// A wait that the daemon should have ended is ended here after this much more.
const WAIT_SLACK_MS = 250;
// Between attempts of a command that the daemon cannot carry out now.
const RETRY_PAUSE_MS = 200;
// Between attempts to give a lease back the pause doubles up to this.
const GIVE_BACK_PAUSE_MOST_MS = 10_000;
// After these answers a lease is not held any more, or this client never may give it back.
const ENDS_GIVING_BACK = new Set(['NOT_FOUND', 'INVALID_ARGUMENT', 'PERMISSION_DENIED']);
const WAIT_MOST_MS = 2 ** 32 - 1;

class Operations {
  #options;
  #session;
  #all = new Set(); // In the order of their calls.
  #toSend = new Fifo(); // May name some that are gone.
  #bySequence = new Map();
  #nextSequence = 1;
  // Sequence numbers that were sent, and neither answered nor reported as queued, in rising order: the daemon's window
  // must reach back to the first of them.
  #inFlight = new Set();
  #localEnds = new Timetable();
  #retries = new Timetable();
  // Leases that a resumed session holds and we do not know: the answers to commands that are sent again claim them, or
  // they are given back.
  #unclaimed = new Set();
  #claimants = new Set();

  // `session`: {addLease(granted), removeLease(leaseId), knowsLease(leaseId), effect(function)}.
  constructor(options, session) {
    this.#options = options;
    this.#session = session;
  }

  get size() {
    return this.#all.size;
  }

  // Whether anything is still to be written.
  get hasUnsent() {
    while (this.#toSend.size > 0 && !this.#all.has(this.#toSend.peek())) this.#toSend.shift();
    return this.#toSend.size > 0;
  }

  // ---- calls ----

  #add(kind, now, fields) {
    const operation = {
      kind,
      sequence: 0, // Until it is sent.
      command: undefined,
      calledAt: now,
      waitEnd: Infinity, // By the caller's wish.
      localEnd: Infinity, // When we stop to wait for the daemon's answer.
      unavailableSince: Infinity,
      retrying: false, // It is sent again after a pause.
      pauseMs: 0, // Before a release is sent again whose caller has an error.
      queued: false, // The daemon said so.
      abandoned: false, // The caller was answered; a grant that still comes is given back.
      reissued: false, // Under a new number, since the daemon has forgotten the old one.
      call: undefined,
      ...fields,
    };
    if (operation.localEnd !== Infinity) this.#localEnds.add(operation.localEnd, operation);
    this.#all.add(operation);
    this.#toSend.push(operation);
    return operation;
  }

  // See SessionMachine.acquire.
  acquire(call, now) {
    if (this.#all.size >= this.#options.operationsMax) {
      const message = `this client has operationsMax (${this.#options.operationsMax}) requests under way`;
      this.#session.effect(() => call.reject(makeError('RESOURCE_EXHAUSTED', message, { reason: 'LIMIT_REACHED' })));
      return undefined;
    }
    const fields = { call, command: { acquire: { ...call.request, reportQueued: true } } };
    if (call.waitMs > 0) {
      fields.waitEnd = now + call.waitMs;
      fields.localEnd = fields.waitEnd + WAIT_SLACK_MS;
    } else if (call.waitMs === 0) {
      fields.localEnd = now + this.#options.connectTimeoutMs;
    }
    return this.#add('acquire', now, fields);
  }

  cancel(operation, now) {
    if (!this.#all.has(operation) || operation.abandoned) return;
    this.#abandon(operation, makeError('CANCELLED', 'the wait was given up', { reason: 'WAIT_CANCELLED' }), now);
  }

  // `answer` may be undefined.
  release(leaseId, answer, now) {
    this.#add('release', now, {
      command: { release: { leaseId } },
      call: answer,
      abandoned: answer === undefined,
    });
  }

  #addCancel(sequence, now) {
    this.#add('cancel', now, { command: { cancel: sequence }, abandoned: true });
  }

  #giveBackUnclaimed(now) {
    if (this.#claimants.size > 0) return;
    for (const leaseId of this.#unclaimed) this.release(leaseId, undefined, now);
    this.#unclaimed.clear();
  }

  forgetUnclaimed(leaseId) {
    this.#unclaimed.delete(leaseId);
  }

  // Answers the caller now. If the daemon may know of the acquire, the operation stays until the daemon has answered it.
  #abandon(operation, error, now) {
    this.#reject(operation, error);
    if (operation.sequence === 0) {
      this.#erase(operation);
      return;
    }
    operation.abandoned = true;
    if (operation.retrying) this.#sendAgain(operation); // Before the cancel, which then ends what it asks for.
    this.#addCancel(operation.sequence, now);
  }

  #erase(operation) {
    this.#all.delete(operation);
    this.#forgetSequence(operation.sequence);
  }

  // 0: nothing happens.
  #forgetSequence(sequence) {
    this.#bySequence.delete(sequence);
    this.#inFlight.delete(sequence);
    this.#claimants.delete(sequence);
  }

  #resolve(operation, value) {
    const { call } = operation;
    operation.call = undefined;
    if (call !== undefined) this.#session.effect(() => call.resolve(value));
  }

  #reject(operation, error) {
    const { call } = operation;
    operation.call = undefined;
    if (call !== undefined) this.#session.effect(() => call.reject(error));
  }

  failAcquires(error) {
    for (const operation of this.#all) {
      if (operation.kind !== 'acquire') continue;
      this.#reject(operation, error);
      this.#erase(operation);
    }
  }

  // The session has ended: with `error`, or cleanly, and then all is given back.
  finishReleases(error) {
    for (const operation of this.#all) {
      if (error === undefined) this.#resolve(operation, undefined);
      else this.#reject(operation, error);
    }
    this.#all.clear();
  }

  // ---- sending ----

  // The commands of the next message.
  takeCommands(now) {
    const commands = [];
    while (this.hasUnsent && commands.length < COMMANDS_PER_MESSAGE_MAX) {
      const operation = this.#toSend.peek();
      if (operation.sequence === 0 && !this.#giveSequence(operation, now)) break;
      if (!operation.queued) this.#inFlight.add(operation.sequence);
      commands.push({ sequence: operation.sequence, ...operation.command });
      this.#toSend.shift();
    }
    return commands;
  }

  #giveSequence(operation, now) {
    const [first] = this.#inFlight;
    if (first !== undefined && this.#nextSequence - first >= WINDOW) return false;
    operation.sequence = this.#nextSequence++;
    this.#bySequence.set(operation.sequence, operation);
    if (operation.kind === 'acquire') {
      // Now, and never again: what is sent once more with this number must be the same.
      const left = Math.max(Math.floor(operation.waitEnd - now), 1);
      const { waitMs } = operation.call;
      // What the field cannot say ends here.
      if (waitMs < 0 || (waitMs > 0 && left > WAIT_MOST_MS)) operation.command.acquire.waitForever = true;
      else operation.command.acquire.waitMs = operation.waitEnd === Infinity ? 0 : left;
    }
    return true;
  }

  // After the stream was opened again: sends all unanswered commands, in the old order. `unclaimed`: leases that the
  // daemon holds for this client, and that the client does not know.
  resendAll(unclaimed, now) {
    this.#toSend.clear();
    this.#retries.clear();
    this.#unclaimed = new Set(unclaimed);
    this.#claimants.clear();
    for (const operation of this.#all) {
      this.#sendAgain(operation);
      if (operation.kind === 'acquire' && operation.sequence !== 0) this.#claimants.add(operation.sequence);
      if (operation.kind === 'release') this.#unclaimed.delete(operation.command.release.leaseId);
    }
    this.#giveBackUnclaimed(now);
  }

  // Acquires are new requests to the next session; the rest has no meaning any more.
  forgetSession() {
    this.#nextSequence = 1;
    this.#bySequence.clear();
    this.#inFlight.clear();
    this.#unclaimed.clear();
    this.#claimants.clear();
    const loss = { cause: 'EXPIRED', message: 'its session expired at the daemon' };
    for (const operation of this.#all) {
      if (operation.kind === 'acquire' && !operation.abandoned) {
        operation.sequence = 0;
        operation.queued = false;
        continue;
      }
      if (operation.kind === 'release') this.#reject(operation, new PermitLostError(loss));
      this.#all.delete(operation);
    }
  }

  // ---- answers ----

  onResult(result, now) {
    const sequence = Number(result.sequence);
    // A waiter holds no listed lease. An acquire that is to be sent again may: see #erase.
    if (result.queued) this.#claimants.delete(sequence);
    const operation = this.#bySequence.get(sequence);
    if (operation === undefined) {
      // An acquire that failed for its caller long ago; or the second report of a grant whose lease is in use.
      if (result.granted && !this.#session.knowsLease(result.granted.leaseId)) {
        this.#unclaimed.delete(result.granted.leaseId);
        this.release(result.granted.leaseId, undefined, now);
      }
    } else if (operation.kind === 'acquire') {
      this.#onAcquireResult(operation, result, now);
    } else if (operation.kind === 'release') {
      this.#onReleaseResult(operation, result, now);
    } else {
      this.#erase(operation);
    }
    if (this.#unclaimed.size > 0) this.#giveBackUnclaimed(now);
  }

  #onAcquireResult(operation, result, now) {
    if (result.queued) {
      operation.queued = true;
      operation.unavailableSince = Infinity;
      this.#inFlight.delete(operation.sequence);
      const { onQueued } = operation.call ?? {};
      const { position, expectedWaitMs, reason } = result.queued;
      const place = { position: Number(position), expectedWaitMs, reason: enumName(reason, 'WAIT_REASON_') };
      if (onQueued) this.#session.effect(() => onQueued(place));
    } else if (result.granted) {
      this.#unclaimed.delete(result.granted.leaseId);
      this.#erase(operation);
      if (operation.abandoned) this.release(result.granted.leaseId, undefined, now);
      else this.#resolve(operation, this.#session.addLease(result.granted));
    } else {
      const error = result.error ? fromStatusMessage(result.error)
        : makeError('INTERNAL', "the daemon's answer is not one to an acquire");
      if (!operation.abandoned && this.#retryAfterError(operation, error, now)) return;
      this.#reject(operation, error);
      this.#erase(operation);
    }
  }

  #onReleaseResult(operation, result, now) {
    let error;
    if (result.error) {
      error = fromStatusMessage(result.error);
      if (this.#retryAfterError(operation, error, now)) return;
    } else if (!result.released) {
      error = makeError('INTERNAL', "the daemon's answer is not one to a release");
    } else if (result.released.released === 0 && !operation.reissued) {
      const cause = causeOf(result.released.ended);
      error = new PermitLostError({ cause, message: `the daemon says: ${LOSS_TEXTS[cause]}` });
    }
    if (error === undefined) this.#resolve(operation, undefined);
    else this.#reject(operation, error);
    this.#session.removeLease(operation.command.release.leaseId);
    if (error === undefined || ENDS_GIVING_BACK.has(error.code)) this.#erase(operation);
    else this.#giveBackLater(operation, now);
  }

  // Its caller has an error, and the daemon still holds the lease. Under a new number each time: an old one would hold up
  // the window.
  #giveBackLater(operation, now) {
    operation.abandoned = true;
    operation.pauseMs = Math.min(Math.max(operation.pauseMs * 2, RETRY_PAUSE_MS), GIVE_BACK_PAUSE_MOST_MS);
    this.#renumber(operation);
    this.#retryAt(operation, now + operation.pauseMs);
  }

  #retryAt(operation, at) {
    operation.retrying = true;
    this.#retries.add(at, operation);
  }

  #sendAgain(operation) {
    operation.retrying = false;
    this.#toSend.push(operation);
  }

  // True if the command will be sent again.
  #retryAfterError(operation, error, now) {
    if (error.reason === 'REQUEST_TOO_OLD' && !operation.reissued) {
      this.#reissue(operation, now);
      return true;
    }
    if (error.code !== 'UNAVAILABLE') return false;
    // Nothing is known to have been done: the same again, until the caller has waited long enough.
    operation.unavailableSince = Math.min(operation.unavailableSince, now);
    if (now - operation.unavailableSince >= this.#options.reconnectTimeoutMs) return false;
    this.#retryAt(operation, now + RETRY_PAUSE_MS);
    return true;
  }

  // The daemon has forgotten the number, and so whether it carried the command out. The client cancels the old wait and
  // sends the command under a new number. A grant that still comes under the old number is given back.
  #reissue(operation, now) {
    const oldSequence = operation.sequence;
    this.#renumber(operation);
    if (operation.kind === 'acquire') this.#addCancel(oldSequence, now);
    this.#toSend.push(operation);
  }

  // It gets its next number when it is sent.
  #renumber(operation) {
    this.#forgetSequence(operation.sequence);
    Object.assign(operation, { sequence: 0, queued: false, reissued: true });
  }

  // ---- time ----

  // Ends waits whose time is over, and sends again what is due.
  tick(now, lastError) {
    for (let operation; (operation = this.#retries.takeDue(now)) !== undefined; ) {
      if (operation.retrying) this.#sendAgain(operation);
    }
    for (let operation; (operation = this.#localEnds.takeDue(now)) !== undefined; ) {
      if (!this.#all.has(operation) || operation.abandoned) continue;
      const waited = operation.sequence !== 0 && operation.call.waitMs > 0;
      this.#abandon(operation, waited
        ? makeError('DEADLINE_EXCEEDED', 'the permits did not come free in time', { reason: 'WAIT_EXPIRED' })
        : unreachable('no daemon answered in time', lastError), now);
    }
  }

  get nextDue() {
    this.#localEnds.dropGone((operation) => !this.#all.has(operation) || operation.abandoned);
    this.#retries.dropGone((operation) => !this.#all.has(operation) || !operation.retrying);
    return Math.min(this.#localEnds.nextAt, this.#retries.nextAt);
  }

  // When giveUpUnreachable has something to do. Those after the first were called later.
  giveUpAt(disconnectedSince, afterMs) {
    for (const operation of this.#all) {
      if (!operation.abandoned) return Math.max(operation.calledAt, disconnectedSince) + afterMs;
    }
    return Infinity;
  }

  // After a round in which no endpoint was reached: what must not wait does not.
  giveUpNotWaiting(now, lastError) {
    for (const operation of this.#all) {
      if (operation.kind !== 'acquire' || operation.abandoned || operation.call.waitMs !== 0) continue;
      this.#abandon(operation, unreachable('no endpoint could be reached', lastError), now);
    }
  }

  // Answers who has waited for a daemon for longer than `afterMs`.
  giveUpUnreachable(now, disconnectedSince, afterMs, lastError) {
    for (const operation of this.#all) {
      if (operation.abandoned) continue;
      if (now < Math.max(operation.calledAt, disconnectedSince) + afterMs) return;
      const error = unreachable('no endpoint could be reached', lastError);
      if (operation.kind === 'acquire') {
        this.#abandon(operation, error, now);
      } else {
        this.#reject(operation, error);
        operation.abandoned = true;
      }
    }
  }
}

function unreachable(what, lastError) {
  const said = lastError?.message ?? 'nothing yet';
  return makeError('UNAVAILABLE', `${what}; the last one said: ${said}`, { reason: 'UNREACHABLE', cause: lastError });
}

module.exports = { Operations };
