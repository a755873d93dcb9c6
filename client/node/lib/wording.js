// Errors in the words of the library: the daemon speaks of fields of its protocol, which are options here.
'use strict';

// Those that are called otherwise than in camelCase.
const OPTIONS = { limit_mismatch: 'adoptLimit', LIMIT_MISMATCH_ADOPT: 'adoptLimit', wait_forever: 'waitMs' };
// Those that messages name beside the field that they begin with.
const NAMED = new Set([...Object.keys(OPTIONS), 'ttl_ms', 'wait_ms', 'grace_ms', 'delay_ms', 'max_attempts',
  'attempts_unbounded', 'page_token', 'expected_revision', 'lease_id', 'ticket_id']);

const camelCase = (name) => name.replace(/_([a-z0-9])/g, (_, letter) => letter.toUpperCase());

// Of a field's path. Options of a session are options of the client.
function optionOf(field) {
  const path = field.replace(/^open\./, '').split('.');
  return path.map((name) => OPTIONS[name] ?? camelCase(name)).join('.');
}

// Options in the place of fields.
function withOptions(text) {
  return text.replace(/[A-Za-z0-9_]+/g, (word) => (NAMED.has(word) ? optionOf(word) : word));
}

// The message of an error about this semaphore, whose name stays as it is.
function inOptions(message, semaphore = '') {
  const before = semaphore !== '' && message.startsWith(`${semaphore}: `) ? `${semaphore}: ` : '';
  const rest = message.slice(before.length);
  const field = /^[a-z][a-z0-9_.[\]]*(?=: )/.exec(rest)?.[0] ?? '';
  return before + optionOf(field) + withOptions(rest.slice(field.length));
}

module.exports = { inOptions, withOptions };
