// Two small containers for what thousands of requests wait in.
'use strict';

// First in, first out; both ends in constant time.
class Fifo {
  #items = [];
  #head = 0;

  get size() {
    return this.#items.length - this.#head;
  }

  push(item) {
    this.#items.push(item);
  }

  // undefined when empty.
  peek() {
    return this.#items[this.#head];
  }

  shift() {
    const item = this.#items[this.#head];
    if (this.size === 0) return undefined;
    this.#items[this.#head] = undefined;
    this.#head += 1;
    if (this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  clear() {
    this.#items = [];
    this.#head = 0;
  }
}

// What is due next. An entry cannot be taken out before its time: the caller that takes it checks that it still counts.
class Timetable {
  #entries = []; // A binary heap by `at`.

  get size() {
    return this.#entries.length;
  }

  add(at, item) {
    const entries = this.#entries;
    let index = entries.push({ at, item }) - 1;
    while (index > 0) {
      const parent = (index - 1) >> 1;
      if (entries[parent].at <= entries[index].at) break;
      [entries[parent], entries[index]] = [entries[index], entries[parent]];
      index = parent;
    }
  }

  // Infinity when empty.
  get nextAt() {
    return this.#entries.length > 0 ? this.#entries[0].at : Infinity;
  }

  // The first entry's item if it is due at `now`; otherwise undefined.
  takeDue(now) {
    return this.nextAt <= now ? this.#takeFirst() : undefined;
  }

  // Takes entries out from the front for as long as `isGone` says that they do not count.
  dropGone(isGone) {
    while (this.#entries.length > 0 && isGone(this.#entries[0].item)) this.#takeFirst();
  }

  clear() {
    this.#entries = [];
  }

  #takeFirst() {
    const entries = this.#entries;
    const first = entries[0].item;
    const last = entries.pop();
    if (entries.length === 0) return first;
    entries[0] = last;
    let index = 0;
    while (true) {
      let least = index;
      for (const child of [2 * index + 1, 2 * index + 2]) {
        if (child < entries.length && entries[child].at < entries[least].at) least = child;
      }
      if (least === index) return first;
      [entries[least], entries[index]] = [entries[index], entries[least]];
      index = least;
    }
  }
}

module.exports = { Fifo, Timetable };
