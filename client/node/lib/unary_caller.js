// Calls of one request and one answer, over the list of endpoints.
'use strict';

const { Backoff } = require('./backoff.js');
const { makeError } = require('./errors.js');
const { TIMER_MOST_MS } = require('./options.js');

const PAUSE_FIRST_MS = 50;
const PAUSE_MOST_MS = 1_000;
// An attempt that lasted this long had reached a daemon, and waited there.
const REACHED_MS = 1_000;

class UnaryCaller {
  #options;
  #clock;
  #transport;
  #current = 0;

  constructor(options, clock, transport) {
    this.#options = options;
    this.#clock = clock;
    this.#transport = transport;
  }

  // The same request again after UNAVAILABLE, at the next endpoint, until none could be reached for connectTimeoutMs.
  // So `request` must be safe to repeat: a question, or with a request id. Resolves with {response, sentAt}.
  async call(method, request, { timeoutMs = this.#options.connectTimeoutMs, signal, metadata } = {}) {
    const { endpoints, connectTimeoutMs } = this.#options;
    const attempt = { timeoutMs: Math.min(timeoutMs, TIMER_MOST_MS), signal, metadata };
    const backoff = new Backoff(PAUSE_FIRST_MS, PAUSE_MOST_MS);
    let reachedAt = this.#clock.now();
    for (let attempts = 1; ; attempts += 1) {
      signal?.throwIfAborted();
      const index = this.#current;
      const sentAt = this.#clock.now();
      try {
        const response = await this.#transport.callOnce(method, request, index, attempt);
        return { response, sentAt };
      } catch (error) {
        if (signal?.aborted || error.code !== 'UNAVAILABLE') throw error;
        if (this.#current === index) this.#current = (index + 1) % endpoints.length;
        const now = this.#clock.now();
        if (now - sentAt >= REACHED_MS) reachedAt = now;
        if (now - reachedAt >= connectTimeoutMs) {
          if (error.reason) throw error; // A daemon said why.
          const message = `no endpoint could be reached; ${endpoints[index]} said: ${error.message}`;
          throw makeError('UNAVAILABLE', message, { reason: 'UNREACHABLE', cause: error });
        }
      }
      if (attempts % endpoints.length === 0) await pause(backoff.next(), signal);
    }
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
  });
}

module.exports = { UnaryCaller };
