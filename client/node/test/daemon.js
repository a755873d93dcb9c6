// A real daemon for the tests, on a free port with a folder of its own. SEMAPHORED_BIN_DIR names the binaries' folder.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const { Client } = require('../index.js');

// Long enough for a loaded machine, short enough to fail a test rather than a whole run.
const BOUND_MS = 20_000;

function freePort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer();
    server.on('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

// `promise`, or a failure that says what did not happen.
function within(promise, what) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${BOUND_MS} ms: ${what}`)), BOUND_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function until(condition, what) {
  const endsAt = performance.now() + BOUND_MS;
  while (!(await condition())) {
    if (performance.now() >= endsAt) throw new Error(`not within ${BOUND_MS} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

class Daemon {
  // `ports`: free ones, taken in turn by each start(). The daemon and its folder go when the test `t` has ended.
  static async start(t, ports) {
    const daemon = new Daemon();
    daemon.ports = ports ?? [await freePort()];
    daemon.folder = fs.mkdtempSync(path.join(os.tmpdir(), 'semaphored-node-'));
    daemon.starts = 0;
    daemon.clients = [];
    t.after(() => daemon.remove());
    await daemon.start();
    return daemon;
  }

  async start() {
    const address = `127.0.0.1:${this.ports[this.starts++ % this.ports.length]}`;
    const program = path.join(process.env.SEMAPHORED_BIN_DIR, 'semaphored');
    const log = fs.openSync(path.join(this.folder, 'log'), 'a');
    this.process = spawn(program, ['--store', `sqlite://${this.folder}/state.db`, '--listen', address], {
      stdio: ['ignore', log, log],
      env: { ...process.env, SEMAPHORED_NODE_ID: 'test' },
    });
    fs.closeSync(log);
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    const asked = new Client({ endpoints: [address], connectTimeoutMs: BOUND_MS });
    try {
      await asked.administer('', { list: {} });
    } catch (error) {
      throw new Error(`the daemon does not serve: ${error.message}\n${fs.readFileSync(`${this.folder}/log`)}`);
    } finally {
      await asked.close();
    }
  }

  get endpoints() {
    return this.ports.map((port) => `127.0.0.1:${port}`);
  }

  // A client that ends with the daemon.
  client(options = {}) {
    const client = new Client({ endpoints: this.endpoints, ttlMs: 5_000, ...options });
    this.clients.push(client);
    return client;
  }

  async kill9() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  pause() {
    this.process.kill('SIGSTOP');
  }

  goOn() {
    this.process.kill('SIGCONT');
  }

  async remove() {
    this.process.kill('SIGCONT');
    await Promise.all(this.clients.map((client) => client.close()));
    await this.kill9();
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}

module.exports = { BOUND_MS, Daemon, freePort, until, within };
