// The thread of a client's session: its stream, its pings and its rules run here, whatever the application's thread does.
//
// Items come one by one from session_thread.js, and go there in lists. Each has one field, which names what it is. A recall
// is acknowledged when an item says that the application knows of it; nothing else here acknowledges one.
'use strict';

const { parentPort, workerData } = require('node:worker_threads');

const { Clock } = require('./clock.js');
const { toMessage } = require('./errors.js');
const { SessionDriver } = require('./session_driver.js');
const { Transport } = require('./transport.js');

Transport.load();
const clock = new Clock(workerData.clock);
const operations = new Map(); // Acquires that were not answered, by their number.
let taken = 0; // Items of the other thread.
let items = [];

// What this thread says in one turn goes into one message.
function tell(item) {
  items.push(item);
  if (items.length > 1) return;
  queueMicrotask(() => {
    parentPort.postMessage(items);
    items = [];
  });
}

const driver = new SessionDriver(workerData.options, clock, new Transport(workerData.options), {
  onLost: (lease) => tell({ lost: { leaseId: lease.leaseId, loss: lease.loss } }),
  onRecalled: (lease, notice, acknowledgement) => tell({ recalled: { leaseId: lease.leaseId, notice, acknowledgement } }),
  onSettled() {
    if (driver.idle) tell({ idle: taken });
  },
});

const handlers = {
  acquire({ id, request, waitMs, calledAt }) {
    const answered = (item) => {
      operations.delete(id);
      tell(item);
    };
    const operation = driver.acquire({
      request,
      waitMs: waitMs > 0 ? Math.max(waitMs - (clock.now() - calledAt), 1) : waitMs,
      onQueued: (place) => tell({ queued: { id, place } }),
      resolve: (lease) => answered({ granted: { id, lease: lease.toMessage() } }),
      reject: (error) => answered({ failed: { id, error: toMessage(error) } }),
    });
    if (operation !== undefined) operations.set(id, operation);
  },
  cancel(id) {
    if (operations.has(id)) driver.cancel(operations.get(id));
  },
  release({ id, leaseId }) {
    driver.release(leaseId, {
      resolve: () => tell({ released: { id } }),
      reject: (error) => tell({ failed: { id, error: toMessage(error) } }),
    });
  },
  acknowledge: (acknowledgement) => driver.acknowledge(acknowledgement),
  close: () => driver.close().then(() => tell({ closed: true })),
};

parentPort.on('message', (item) => {
  taken += 1;
  const [[name, value]] = Object.entries(item);
  handlers[name](value);
});
