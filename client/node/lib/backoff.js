// How long to wait before the next attempt to reach a daemon.
'use strict';

// Doubles from `firstMs` to `mostMs`. Each delay is drawn from the upper half, so that the clients of a daemon which
// came back do not all arrive at once.
class Backoff {
  #firstMs;
  #mostMs;
  #currentMs;

  constructor(firstMs, mostMs) {
    this.#firstMs = firstMs;
    this.#currentMs = firstMs;
    this.setMost(mostMs);
  }

  next() {
    const delay = Math.min(this.#currentMs, this.#mostMs);
    this.#currentMs = Math.min(this.#currentMs * 2, this.#mostMs);
    return delay / 2 + Math.random() * (delay / 2);
  }

  // After a success: begin again with the first.
  reset() {
    this.#currentMs = this.#firstMs;
  }

  // A new upper bound, for delays from now on. Never below the first.
  setMost(mostMs) {
    this.#mostMs = Math.max(this.#firstMs, mostMs);
  }
}

module.exports = { Backoff };
