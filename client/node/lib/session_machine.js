// The rules of a session, without sockets, timers or a clock of their own: connecting, resuming, pings, deadlines.
// The leases are kept in leases.js, and what becomes of requests is in operations.js.
//
// Its driver (session_driver.js; a test) calls it with the time in milliseconds, hands it what the stream reported,
// asks it for the next message and carries out its effects. So every rule about deadlines, resuming and retrying can be
// tested by moving a number. REQUIRES of all functions: `now` never goes back.
'use strict';

const { Backoff } = require('./backoff.js');
const { PermitLostError, fromStatus, makeError } = require('./errors.js');
const { LOSS_TEXTS } = require('./lease_state.js');
const { Leases } = require('./leases.js');
const { Operations } = require('./operations.js');
const { Pings } = require('./pings.js');

const BACKOFF_FIRST_MS = 50;
const BACKOFF_MOST_MS = 2_000;
// So many that what is vouched for outlasts an outage of two thirds of it, with time to spare for a holder that wants to
// stop its work first.
const PINGS_IN_PACE = 8;
// However little a daemon vouches for, pings go as if it were this.
const VOUCHED_LEAST_MS = 300;
// The daemon's own bound.
const ACKNOWLEDGEMENTS_PER_MESSAGE_MAX = 1000;
// For one endpoint to answer `open`, before the next one is tried: between these, a quarter of the TTL.
const OPEN_TIMEOUT_LEAST_MS = 500;
const OPEN_TIMEOUT_MOST_MS = 3_000;
// Taken for the TTL until the daemon has reported it.
const TTL_ASSUMED_MS = 30_000;

// Errors that another attempt, or another endpoint, would not mend.
const FINAL_CODES = new Set([
  'INVALID_ARGUMENT', 'FAILED_PRECONDITION', 'PERMISSION_DENIED', 'UNAUTHENTICATED', 'UNIMPLEMENTED',
  'RESOURCE_EXHAUSTED',
]);
// The session of before does not help a client that is not let in: its acquires fail.
const REFUSED_IDENTITY = new Set(['PERMISSION_DENIED', 'UNAUTHENTICATED']);

class SessionMachine {
  #options;
  #makeClientId;
  #effects = [];
  #dropStream = false;

  // ---- the stream ----
  #phase = 'idle'; // idle: none is wanted. waiting: for #connectAt. opening: for `opened`. open. closed.
  #backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MOST_MS);
  #endpoint = 0;
  #attemptsInRound = 0;
  #connectAt = Infinity;
  #openSentAt = Infinity; // Infinity: `open` has not been sent on this stream.
  #openDeadline = Infinity;
  #streamNumber = 0;
  #acknowledgements = []; // To be sent on this stream.
  #pages = []; // The messages with `opened` so far, while `more` of them are to come.
  #disconnectedSince = 0;
  #everConnected = false;
  #lastError;
  #closing = false;
  #closeSent = false;
  #closeDeadline = Infinity;

  // ---- the session ----
  #clientId = '';
  #sessionId = ''; // Empty: there is none.
  #ttlMs;
  #vouchedMs = 0; // As pings take it; 0: there was no answer.
  #epoch = 0n;
  #leases;

  // ---- pings ----
  #pings = new Pings();
  #pingDue = Infinity;

  #operations;

  // `options` were checked. `makeClientId` gives a new unique id at each call. `listener`, among the effects:
  //   onLost(lease)  once for each, with lease.loss
  //   onRecalled(lease, notice, acknowledgement)  the latter for acknowledge(), when the application knows of the recall;
  //                                               undefined: it cannot be acknowledged
  constructor(options, makeClientId, listener) {
    this.#options = options;
    this.#makeClientId = makeClientId;
    this.#ttlMs = options.ttlMs > 0 ? options.ttlMs : TTL_ASSUMED_MS;
    const effect = (run) => this.#effects.push(run);
    this.#leases = new Leases(options, effect, listener);
    this.#operations = new Operations(options, {
      addLease: (granted) => this.#leases.add(granted, this.#ttlMs),
      removeLease: (leaseId) => this.#leases.remove(leaseId),
      knowsLease: (leaseId) => this.#leases.get(leaseId) !== undefined,
      effect,
    });
  }

  // ---- requests ----

  // `call`: {request, waitMs, onQueued, resolve, reject}; resolve gets a LeaseState. Returns what cancel() takes.
  acquire(call, now) {
    if (this.#closing) {
      this.#effects.push(() => call.reject(makeError('CANCELLED', 'the client was closed')));
      return undefined;
    }
    const operation = this.#operations.acquire(call, now);
    if (operation !== undefined) this.#wantStream(now);
    return operation;
  }

  // Gives up a wait: it is rejected with CANCELLED. Nothing happens if it was answered before.
  cancel(operation, now) {
    this.#operations.cancel(operation, now);
  }

  // `answer`: {resolve, reject}. A lease that is lost here is rejected at once, and still given back to the daemon.
  release(leaseId, answer, now) {
    const lease = this.#leases.get(leaseId);
    const loss = lease === undefined ? { cause: 'UNKNOWN', message: LOSS_TEXTS.UNKNOWN } : lease.loss;
    if (loss !== undefined) this.#effects.push(() => answer.reject(new PermitLostError(loss)));
    if (lease === undefined || this.closed) return;
    this.#operations.release(leaseId, loss === undefined ? answer : undefined, now);
    this.#wantStream(now);
  }

  // The application knows of the recall. It goes to the daemon that sent the recall, on the same stream, or nowhere: after
  // a resume the daemon sends the recall again, with the lease.
  acknowledge({ leaseId, recallId, stream }) {
    if (stream !== this.#streamNumber || this.#phase !== 'open' || this.#leases.get(leaseId) === undefined) return;
    this.#acknowledgements.push({ leaseId, recallId });
  }

  // Rejects the waits, reports the leases as lost, and ends the session if a daemon answers within releaseTimeoutMs.
  close(now) {
    if (this.#closing) return;
    this.#closing = true;
    this.#operations.failAcquires(makeError('CANCELLED', 'the client was closed'));
    this.#leases.loseAll('CLOSED');
    this.#closeDeadline = now + this.#options.releaseTimeoutMs;
    if (this.#phase !== 'open' && !this.#isWanted) {
      this.#dropStream = this.#phase === 'opening';
      this.#phase = 'closed';
    }
  }

  get closed() {
    return this.#phase === 'closed';
  }

  get holdsLeases() {
    return this.#leases.size > 0;
  }

  // Whether the daemon may hold something for this client, or is to be asked for something.
  get #isWanted() {
    return this.#leases.size > 0 || this.#operations.size > 0;
  }

  // ---- connecting ----

  #wantStream(now) {
    if (this.#phase !== 'idle') return;
    this.#phase = 'waiting';
    this.#connectAt = now;
    this.#disconnectedSince = now;
  }

  // The index of the endpoint to which a stream must be opened now; it then counts as being opened. Otherwise undefined.
  startConnecting(now) {
    if (this.#phase !== 'waiting' || now < this.#connectAt || !this.#isWanted) return undefined;
    this.#phase = 'opening';
    this.#streamNumber += 1;
    this.#openSentAt = Infinity;
    this.#pages = [];
    this.#awaitOpened(now);
    return this.#endpoint;
  }

  #awaitOpened(now) {
    this.#openDeadline = now + Math.min(Math.max(this.#ttlMs / 4, OPEN_TIMEOUT_LEAST_MS), OPEN_TIMEOUT_MOST_MS);
  }

  #openMessage(now) {
    // Without a session the daemon need not remember anything of this client, so the client takes a new client id.
    if (this.#sessionId === '') this.#forgetSession();
    this.#openSentAt = now;
    this.#pings.opened(now);
    return {
      open: {
        clientId: this.#clientId,
        ttlMs: this.#options.ttlMs,
        resumeSessionId: this.#sessionId,
        holder: this.#options.holder,
        releaseOnDisconnect: this.#options.releaseOnDisconnect,
      },
    };
  }

  #disconnect(why, now) {
    if (this.#phase === 'open') {
      this.#disconnectedSince = now;
      this.#attemptsInRound = 0;
    }
    this.#lastError = why;
    this.#acknowledgements = [];
    this.#leases.disconnected();
    this.#pingDue = Infinity;
    this.#endpoint = (this.#endpoint + 1) % this.#options.endpoints.length;
    this.#attemptsInRound += 1;
    this.#connectAt = now;
    if (this.#attemptsInRound >= this.#options.endpoints.length) {
      this.#attemptsInRound = 0;
      this.#connectAt += this.#backoff.next();
      if (!this.#everConnected) this.#operations.giveUpNotWaiting(now, this.#lastError);
    }
    this.#phase = 'waiting'; // The next tick sees whether a stream is still wanted.
  }

  #drop(message, now) {
    this.#dropStream = true;
    this.#disconnect(makeError('UNAVAILABLE', message), now);
  }

  // `status` is as @grpc/grpc-js gives it.
  onStreamEnd(status, now) {
    this.tick(now);
    if (this.#phase !== 'opening' && this.#phase !== 'open') return;
    const error = status.code === 0 ? undefined : fromStatus(status);
    if (this.#closeSent) {
      this.#finish(error);
      return;
    }
    const sessionIsGone = this.#sessionId !== '' && error?.code === 'NOT_FOUND';
    if (sessionIsGone) {
      this.#loseSession(now);
    } else if (FINAL_CODES.has(error?.code)
      && (this.#sessionId === '' || this.#phase === 'open' || REFUSED_IDENTITY.has(error.code))) {
      this.#operations.failAcquires(error);
    }
    this.#disconnect(error ?? makeError('UNAVAILABLE', "the daemon ended the session's stream"), now);
    if (!sessionIsGone) return;
    // This endpoint answers: the new session is opened here.
    const count = this.#options.endpoints.length;
    this.#endpoint = (this.#endpoint + count - 1) % count;
    this.#connectAt = now;
  }

  #finish(error) {
    this.#operations.finishReleases(error);
    this.#phase = 'closed';
  }

  // ---- messages ----

  // The next message, or undefined. The caller sends it at once: `now` counts as the time sent.
  nextMessage(now) {
    if (this.#phase === 'opening' && this.#openSentAt === Infinity) return this.#openMessage(now);
    if (this.#phase !== 'open' || this.#closeSent) return undefined;
    const message = {};
    const commands = this.#operations.takeCommands(now);
    if (commands.length > 0) message.commands = commands;
    if (this.#closing && !this.#operations.hasUnsent) {
      this.#closeSent = true;
      message.close = true;
    }
    if (this.#acknowledgements.length > 0) {
      message.acknowledgedRecalls = this.#acknowledgements.splice(0, ACKNOWLEDGEMENTS_PER_MESSAGE_MAX);
    }
    if (this.#leases.pingWanted || now >= this.#pingDue) {
      message.ping = { pingId: this.#pings.send(now) };
      this.#leases.pinged();
      this.#pingDue = now + this.#paceMs / PINGS_IN_PACE;
    }
    return Object.keys(message).length > 0 ? message : undefined;
  }

  onMessage(message, now) {
    // First what the time has decided: an answer that comes too late must not bring back what was lost.
    this.tick(now);
    let messages = [message];
    if (this.#phase === 'opening' && message.opened && this.#openSentAt !== Infinity) {
      this.#pages.push(message);
      if (message.opened.more) {
        this.#awaitOpened(now);
        return;
      }
      messages = this.#pages;
      this.#pages = [];
      this.#onOpened(messages.map((page) => page.opened), now);
    }
    if (this.#phase !== 'open') return;
    for (const each of messages) this.#take(each, now);
  }

  #take(message, now) {
    this.#onRecalledLeases(message.results.flatMap((result) => result.granted ?? []));
    if (message.pong) this.#onPong(message.pong);
    for (const result of message.results) this.#operations.onResult(result, now);
    for (const event of message.events) this.#onEvent(event);
    if (message.events.length > 0) this.#leases.checkDeadlines(now);
  }

  #onOpened(pages, now) {
    const opened = pages.at(-1); // Only its leases are others than those of the pages before.
    if (this.#sessionId !== '' && !opened.resumed) {
      this.#loseSession(now);
      this.#drop('the daemon opened another session than the one to resume', now);
      return;
    }
    if (this.#isOvertaken(opened.validity)) {
      this.#drop('this daemon does not host the session any more', now);
      return;
    }
    const listed = pages.flatMap((page) => page.leases);
    const unclaimed = opened.resumed ? this.#leases.keepListed(listed.map((lease) => lease.leaseId)) : [];
    this.#onRecalledLeases(listed);
    this.#extend(opened.validity, this.#openSentAt);
    this.#phase = 'open';
    this.#everConnected = true;
    this.#attemptsInRound = 0;
    this.#backoff.reset();
    this.#sessionId = opened.sessionId;
    if (opened.ttlMs > 0) this.#ttlMs = opened.ttlMs;
    this.#backoff.setMost(Math.min(BACKOFF_MOST_MS, this.#ttlMs / 8));
    this.#pingDue = this.#openSentAt + this.#paceMs / PINGS_IN_PACE;
    this.#operations.resendAll(unclaimed, now);
  }

  #onPong(pong) {
    const sentAt = this.#pings.unanswered(Number(pong.pingId));
    if (sentAt === undefined || !this.#extend(pong.validity, sentAt)) return;
    // It may vouch for less than before: then the next is due sooner.
    this.#pingDue = Math.min(this.#pingDue, sentAt + this.#paceMs / PINGS_IN_PACE);
    this.#pings.answered(Number(pong.pingId));
  }

  #onRecalledLeases(leases) {
    for (const { leaseId, recall } of leases) {
      if (recall) this.#onEvent({ recalled: { leaseId, recall } });
    }
  }

  #onEvent(event) {
    if (event.lost) {
      this.#operations.forgetUnclaimed(event.lost.leaseId);
      this.#leases.onLost(event.lost);
    } else if (event.recalled) {
      const sentAt = this.#pings.arrived(Number(event.recalled.recall?.afterPingId ?? 0));
      this.#leases.onRecalled(event.recalled, sentAt, this.#streamNumber);
    }
  }

  // ---- time ----

  // It comes from a daemon that has been overtaken by another.
  #isOvertaken(validity) {
    return BigInt(validity?.epoch ?? 0) < this.#epoch;
  }

  // Counts an answer to what was sent at `sentAt`. False if it is overtaken.
  #extend(validity, sentAt) {
    if (this.#isOvertaken(validity)) return false;
    this.#epoch = BigInt(validity?.epoch ?? 0);
    const validForMs = validity?.validForMs ?? 0;
    const vouchedMs = Math.max(validForMs, VOUCHED_LEAST_MS);
    // Where all leases are recalled the daemon vouches for less, but pings need not go faster.
    if (!this.#leases.isShortened(vouchedMs, this.#vouchedMs)) this.#vouchedMs = vouchedMs;
    this.#leases.extend(sentAt + Number(validity?.elapsedMs ?? 0), validForMs);
    return true;
  }

  #loseSession(now) {
    this.#leases.loseAll('EXPIRED', 'its session expired at the daemon');
    this.#sessionId = '';
    this.#forgetSession();
    this.#disconnectedSince = now;
  }

  // The next session is another client to the daemon.
  #forgetSession() {
    this.#clientId = this.#makeClientId();
    this.#epoch = 0n;
    this.#leases.clear();
    this.#operations.forgetSession();
  }

  // Pings go by what the daemon vouches for: with a long TTL, on an engine that daemons share, that is less than the TTL.
  get #paceMs() {
    return Math.min(this.#ttlMs, this.#vouchedMs || this.#ttlMs);
  }

  // When a stream that says nothing counts as broken: a quarter of the time that is vouched for after a ping was sent, or
  // should have been.
  get #contactDeadline() {
    if (this.#phase !== 'open') return Infinity;
    return (this.#pings.oldestUnanswered ?? this.#pingDue) + this.#paceMs / 4;
  }

  // Does what is due. To be called at nextDue(), and may be called at any time.
  tick(now) {
    if (this.#phase === 'closed') return;
    this.#leases.checkDeadlines(now);
    this.#operations.tick(now, this.#lastError);
    if (this.#closing && now >= this.#closeDeadline) {
      this.#dropStream = this.#phase === 'opening' || this.#phase === 'open';
      this.#finish(makeError('UNAVAILABLE', 'the client was closed, and no daemon answered in time'));
      return;
    }
    if (this.#phase === 'opening' && now >= this.#openDeadline) {
      this.#drop('no answer in time', now);
    } else if (now >= this.#contactDeadline) {
      this.#drop('the connection has gone silent', now);
    } else if (this.#phase === 'waiting' && !this.#isWanted) {
      this.#phase = this.#closing ? 'closed' : 'idle';
    }
    if (this.#phase !== 'waiting' && this.#phase !== 'opening') return;
    this.#operations.giveUpUnreachable(now, this.#disconnectedSince, this.#giveUpAfterMs, this.#lastError);
  }

  get #giveUpAfterMs() {
    return this.#everConnected ? this.#options.reconnectTimeoutMs : this.#options.connectTimeoutMs;
  }

  // `canSend`: a message can be sent now; otherwise the end of the one under way is waited for anyway. Infinity: nothing.
  nextDue(canSend) {
    if (this.closed) return Infinity;
    const closeDeadline = this.#closing ? this.#closeDeadline : Infinity;
    const due = Math.min(closeDeadline, this.#operations.nextDue, this.#leases.nextDue);
    if (this.#phase === 'open') return Math.min(due, canSend ? this.#pingDue : Infinity, this.#contactDeadline);
    if (this.#phase !== 'opening' && this.#phase !== 'waiting') return due;
    const giveUpAt = this.#operations.giveUpAt(this.#disconnectedSince, this.#giveUpAfterMs);
    return Math.min(due, giveUpAt, this.#phase === 'opening' ? this.#openDeadline : this.#connectAt);
  }

  // What is to be done outside: `dropStream`, cancel it and report nothing of it any more; `run`, functions, in order.
  takeEffects() {
    const effects = { dropStream: this.#dropStream, run: this.#effects };
    this.#dropStream = false;
    this.#effects = [];
    return effects;
  }
}

module.exports = { SessionMachine };
