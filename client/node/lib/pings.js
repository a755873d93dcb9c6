// When the pings of a session were sent. Part of the session's rules, see session_machine.js.
'use strict';

// At eight within the time that is vouched for, those of several such times: what a recall names was sent long after the
// oldest of them.
const REMEMBERED = 64;

// Numbers rise over all streams. Answers and recalls name a number, and count from the time at which its ping was sent.
class Pings {
  #sent = []; // {id, sentAt}
  #lastId = 0;
  #answeredId = 0; // The last number that is not awaited any more.
  #openedAt = 0;

  // The first message of a stream is sent. What was not answered on the one before never will be.
  opened(now) {
    this.#openedAt = now;
    this.#answeredId = this.#lastId;
  }

  // The number of a ping that is sent now.
  send(now) {
    this.#lastId += 1;
    this.#sent.push({ id: this.#lastId, sentAt: now });
    if (this.#sent.length > REMEMBERED) this.#sent.shift();
    return this.#lastId;
  }

  #sentAt(id) {
    return this.#sent.find((ping) => ping.id === id)?.sentAt;
  }

  // When it was sent; undefined if no answer to it is awaited.
  unanswered(id) {
    return id > this.#answeredId ? this.#sentAt(id) : undefined;
  }

  get oldestUnanswered() {
    return this.#sentAt(this.#answeredId + 1);
  }

  // And all before it.
  answered(id) {
    this.#answeredId = Math.max(this.#answeredId, id);
  }

  // When the message was sent that arrived last at the daemon before it sent a recall; 0: the first message of the
  // stream. Of a ping that is not known any more: a time that is no later.
  arrived(id) {
    if (id === 0) return this.#openedAt;
    return this.#sentAt(id) ?? Math.min(this.#openedAt, this.#sent[0]?.sentAt ?? Infinity);
  }
}

module.exports = { Pings };
