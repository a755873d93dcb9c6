// The clock that every deadline of the client is on, in milliseconds from some point in the past.
//
// It is steady, and on Linux it goes on while the machine is suspended: a laptop that slept past the TTL of its
// permits must find them lost when it wakes, although Node's own clocks stood still meanwhile.
'use strict';

const os = require('node:os');

const { SharedTime } = require('./shared_time.js');

// os.uptime() counts suspended time on Linux, but in steps of 10 ms: less than this is no suspension.
const SUSPENDED_LEAST_MS = 50;

function monotonicMs() {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1e3 + nanoseconds / 1e6;
}

class Clock {
  #countsSuspension = process.platform === 'linux';
  #base = 0;
  #suspended;

  // `shared`: toMessage() of another thread's Clock, to have the same time as that one.
  constructor(shared) {
    this.#suspended = new SharedTime(0, shared?.suspended);
    if (!this.#countsSuspension) return;
    const monotonic = monotonicMs();
    this.#base = shared?.base ?? os.uptime() * 1e3 - monotonic;
  }

  toMessage() {
    return { base: this.#base, suspended: this.#suspended.buffer };
  }

  // Never goes back.
  now() {
    if (!this.#countsSuspension) return monotonicMs();
    // In this order, and above in the other: a pause between the two then looks like less time asleep, never like more.
    const uptime = os.uptime() * 1e3;
    const monotonic = monotonicMs();
    const suspended = uptime - monotonic - this.#base;
    for (let known; suspended > (known = this.#suspended.get()) + SUSPENDED_LEAST_MS; ) {
      this.#suspended.replace(known, suspended);
    }
    return monotonic + this.#suspended.get();
  }
}

module.exports = { Clock };
