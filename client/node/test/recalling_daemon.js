// A daemon in a thread of its own, so that it goes on while the test blocks its event loop. It grants a lease to each
// acquire and recalls it at once, answers pings, and counts. `RecallingDaemon.start(t)` is for the test; the rest runs in
// the thread.
'use strict';

const assert = require('node:assert/strict');
const path = require('node:path');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

const TTL_MS = 2_000;
const PINGS = 0;
const ACKNOWLEDGED = 1;

class RecallingDaemon {
  static async start(t) {
    const daemon = new RecallingDaemon();
    daemon.counts = new Int32Array(new SharedArrayBuffer(8));
    const worker = new Worker(__filename, { workerData: daemon.counts });
    t.after(() => worker.terminate());
    const port = await new Promise((resolve, reject) => {
      worker.once('message', resolve);
      worker.once('error', reject);
    });
    worker.on('error', (error) => assert.fail(error));
    daemon.endpoints = [`127.0.0.1:${port}`];
    return daemon;
  }

  get acknowledged() {
    return Atomics.load(this.counts, ACKNOWLEDGED);
  }

  // Blocks the event loop until so many more pings have come.
  blockForPings(count) {
    const last = Atomics.load(this.counts, PINGS) + count;
    for (let seen; (seen = Atomics.load(this.counts, PINGS)) < last; ) {
      if (Atomics.wait(this.counts, PINGS, seen, 20_000) === 'timed-out') throw new Error('no ping within 20 s');
    }
  }
}

function serve() {
  const grpc = require('@grpc/grpc-js');
  const protoLoader = require('@grpc/proto-loader');
  const options = { longs: String, enums: String, defaults: true, oneofs: true, includeDirs: [path.join(__dirname, '../../../proto')] };
  const definition = protoLoader.loadSync('semaphore/v1/semaphore.proto', options);
  const validity = { validForMs: TTL_MS, epoch: 1 };
  const answers = {
    acquire({ sequence }) {
      const leaseId = `db#${sequence}`;
      const recall = { graceMs: 600_000, reason: 'shrunk', recallId: '18446744073709551615' };
      const granted = { leaseId, semaphore: 'db', slots: [{ first: 1, last: 1 }], token: sequence };
      return { results: [{ sequence, granted }], events: [{ recalled: { leaseId, recall } }] };
    },
    release: ({ sequence }) => ({ results: [{ sequence, released: { released: 1 } }] }),
  };
  const server = new grpc.Server();
  server.addService(grpc.loadPackageDefinition(definition).semaphore.v1.SemaphoreService.service, {
    Session(call) {
      call.on('data', (request) => {
        if (request.open) call.write({ opened: { sessionId: 's1', ttlMs: TTL_MS, validity } });
        for (const command of request.commands) call.write(answers[command.command](command));
        for (const { recallId } of request.acknowledgedRecalls) {
          if (recallId === '18446744073709551615') Atomics.add(workerData, ACKNOWLEDGED, 1);
        }
        if (request.ping) {
          call.write({ pong: { pingId: request.ping.pingId, validity } });
          Atomics.add(workerData, PINGS, 1);
          Atomics.notify(workerData, PINGS);
        }
        if (request.close) call.end();
      });
      call.on('error', () => {});
    },
  });
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    parentPort.postMessage(port);
  });
}

if (isMainThread) module.exports = { RecallingDaemon };
else serve();
