// The session as the application's thread sees it: a thread of its own keeps it alive, so that work which blocks the event
// loop loses nothing. See session_worker.js for the other end.
//
// The thread starts with the first acquire. Node ends it with the process, and it keeps the process alive for as long as
// it has something to do.
'use strict';

const path = require('node:path');
const { Worker } = require('node:worker_threads');

const { PermitLostError, fromMessage, makeError } = require('./errors.js');
const { HeldLease } = require('./held_lease.js');
const { LeaseState, LOSS_TEXTS } = require('./lease_state.js');

const PROGRAM = path.join(__dirname, 'session_worker.js');

class SessionThread {
  #options;
  #clock;
  #worker;
  #sent = 0; // Items, to this worker.
  #lastId = 0;
  #calls = new Map(); // Not answered, by id: {resolve, reject}, of acquires also onQueued, of releases leaseId.
  #leases = new Map(); // By id: neither given back nor lost.
  #closed;

  constructor(options, clock) {
    this.#options = options;
    this.#clock = clock;
  }

  now() {
    return this.#clock.now();
  }

  // `call`: {request, waitMs, onQueued, resolve, reject}; resolve gets a HeldLease. Returns what cancel() takes.
  acquire(call) {
    if (this.#closed !== undefined) {
      call.reject(makeError('CANCELLED', 'the client was closed'));
      return undefined;
    }
    const id = this.#remember(call);
    const { request, waitMs } = call;
    this.#tell({ acquire: { id, request, waitMs, calledAt: this.now() } });
    return id;
  }

  // Gives up a wait: it is rejected with CANCELLED, unless it is answered otherwise first.
  cancel(id) {
    if (this.#calls.has(id)) this.#tell({ cancel: id });
  }

  // `answer`: {resolve, reject}. A lease that is lost is rejected at once, and still given back to the daemon.
  release({ leaseId, loss }, answer) {
    const known = loss ?? (this.#worker === undefined ? { cause: 'UNKNOWN', message: LOSS_TEXTS.UNKNOWN } : undefined);
    if (known !== undefined) answer.reject(new PermitLostError(known));
    if (this.#worker === undefined) return;
    const id = known === undefined ? this.#remember({ ...answer, leaseId }) : 0;
    this.#tell({ release: { id, leaseId } });
  }

  // Resolves when the stream has ended, at the latest after releaseTimeoutMs.
  close() {
    this.#closed ??= new Promise((resolve) => {
      if (this.#worker === undefined) {
        resolve();
        return;
      }
      this.#worker.once('exit', resolve);
      this.#tell({ close: true });
    });
    return this.#closed;
  }

  #remember(call) {
    this.#lastId += 1;
    this.#calls.set(this.#lastId, call);
    return this.#lastId;
  }

  // At once: the caller may block the event loop next.
  #tell(item) {
    if (this.#worker === undefined) this.#start();
    this.#worker.ref();
    this.#sent += 1;
    this.#worker.postMessage(item);
  }

  #start() {
    const workerData = { options: this.#options, clock: this.#clock.toMessage() };
    // Options of Node's command line, such as modules to load first, are for the program alone.
    const worker = new Worker(PROGRAM, { name: 'semaphored', workerData, execArgv: [] });
    this.#sent = 0;
    this.#worker = worker;
    let failure;
    worker.on('message', (items) => {
      for (const item of items) this.#take(item);
    });
    worker.on('error', (error) => {
      failure = error;
    });
    worker.on('exit', () => this.#onExit(failure));
  }

  #take(item) {
    const [[name, value]] = Object.entries(item);
    const answered = (id) => {
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (call?.leaseId !== undefined) this.#leases.delete(call.leaseId);
      return call;
    };
    switch (name) {
      case 'queued': return this.#calls.get(value.id)?.onQueued?.(value.place);
      case 'granted': return this.#onGranted(answered(value.id), value.lease);
      case 'released': return answered(value.id)?.resolve();
      case 'failed': return answered(value.id)?.reject(fromMessage(value.error));
      case 'lost': return this.#onLost(value);
      case 'recalled': return this.#leases.get(value.leaseId)?.tellRecall(value.notice, value.acknowledgement);
      case 'idle': return this.#onIdle(value);
      case 'closed': return this.#worker.terminate();
    }
  }

  // The thread has nothing to do after so many items: the process may end, unless it waits for the thread.
  #onIdle(taken) {
    if (taken === this.#sent && this.#calls.size === 0 && this.#closed === undefined) this.#worker.unref();
  }

  #onGranted(call, fields) {
    const acknowledge = (acknowledgement) => {
      if (this.#worker !== undefined) this.#tell({ acknowledge: acknowledgement });
    };
    const lease = new HeldLease(LeaseState.fieldsOf(fields), acknowledge);
    this.#leases.set(lease.leaseId, lease);
    call.resolve(lease);
  }

  #onLost({ leaseId, loss }) {
    const lease = this.#leases.get(leaseId);
    this.#leases.delete(leaseId);
    lease?.tellLoss(loss);
  }

  // The thread has ended: after close(), or because it failed, and then nothing keeps the leases alive any more.
  #onExit(failure) {
    this.#worker = undefined;
    const leases = [...this.#leases.values()];
    const calls = [...this.#calls.values()];
    this.#leases.clear();
    this.#calls.clear();
    const message = `the thread of the session has ended${failure === undefined ? '' : `: ${failure.message}`}`;
    for (const lease of leases) {
      lease.markLost('NO_CONTACT', message);
      lease.tellLoss(lease.loss);
    }
    for (const call of calls) call.reject(makeError('INTERNAL', message, { cause: failure }));
  }
}

module.exports = { SessionThread };
