// Between the daemon's messages and what the library hands out.
'use strict';

// SlotRange messages as single numbers.
function slotNumbers(ranges) {
  return (ranges ?? []).flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
}

// An enum's value without its prefix; empty if unspecified. A value that a newer daemon has added, which comes as a number,
// counts as unspecified.
function enumName(value, prefix) {
  const name = String(value ?? '');
  return name.startsWith(prefix) && name !== `${prefix}UNSPECIFIED` ? name.slice(prefix.length) : '';
}

// A google.protobuf.Timestamp; undefined if it is not set.
function toDate(time) {
  return time ? new Date(Number(time.seconds) * 1e3 + Math.floor(time.nanos / 1e6)) : undefined;
}

const isTimestamp = (value) => Object.keys(value).length === 2 && 'seconds' in value && 'nanos' in value;

// A message, and all in it: times of day become Date, and a message that is not set is left out.
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null || Buffer.isBuffer(value)) return value;
  if (isTimestamp(value)) return toDate(value);
  const entries = Object.entries(value).filter(([, each]) => each !== null);
  return Object.fromEntries(entries.map(([name, each]) => [name, plain(each)]));
}

module.exports = { enumName, plain, slotNumbers };
