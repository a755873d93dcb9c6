// A time in memory that threads share.
'use strict';

const NEVER_US = 2n ** 62n;

function toUs(ms) {
  return ms === Infinity ? NEVER_US : BigInt(Math.floor(ms * 1e3));
}

// In milliseconds. What one thread writes, the others read at once; no order with anything else is promised.
class SharedTime {
  #cell;

  // `buffer`: that of another thread's SharedTime, to share it.
  constructor(at = Infinity, buffer = undefined) {
    this.#cell = new BigInt64Array(buffer ?? new SharedArrayBuffer(8));
    if (buffer === undefined) this.set(at);
  }

  get buffer() {
    return this.#cell.buffer;
  }

  get() {
    const us = Atomics.load(this.#cell, 0);
    return us === NEVER_US ? Infinity : Number(us) / 1e3;
  }

  set(at) {
    Atomics.store(this.#cell, 0, toUs(at));
  }

  // Nothing happens if it is another than `known`, a finite time that get() returned.
  replace(known, at) {
    Atomics.compareExchange(this.#cell, 0, BigInt(Math.round(known * 1e3)), toUs(at));
  }
}

module.exports = { SharedTime };
