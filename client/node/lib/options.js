// What a caller may choose, checked where it is said.
'use strict';

const os = require('node:os');

const { invalid } = require('./errors.js');

const ENDPOINTS_MAX = 64;
const HOLDER_BYTES_MAX = 256;
// The longest that Node's timers can wait, 24 days: one that is to wait for longer fires at once.
const TIMER_MOST_MS = 2 ** 31 - 1;

// All of them are in index.d.ts.
const DEFAULTS = {
  endpoints: ['127.0.0.1:7420'],
  ttlMs: 0,
  marginMs: 50,
  holder: '',
  connectTimeoutMs: 5_000,
  reconnectTimeoutMs: 60_000,
  releaseTimeoutMs: 5_000,
  operationsMax: 200_000,
  failOpen: false,
  releaseOnDisconnect: false,
  tls: undefined,
  caFile: '',
  certFile: '',
  keyFile: '',
  serverName: '',
  token: '',
  tokenFile: '',
};
const ACQUIRE_DEFAULTS = {
  limit: 0,
  adoptLimit: false,
  permits: 1,
  waitMs: -1,
  priority: 0,
  holder: '',
  signal: undefined,
  onQueued: undefined,
  onLost: undefined,
  onRecall: undefined,
};

// `given` over `defaults`; undefined counts as not given. A misspelt name must not be a silent default.
function merge(what, defaults, given) {
  const result = { ...defaults };
  for (const [name, value] of Object.entries(given ?? {})) {
    if (!(name in defaults)) throw invalid(`${what}: there is no option ${name}`);
    if (value !== undefined) result[name] = value;
  }
  return result;
}

function checkNumber(options, name, least, most = Infinity) {
  const value = options[name];
  if (typeof value === 'number' && !Number.isNaN(value) && value >= least && value <= most) return;
  throw invalid(`${name}: a number ${most === Infinity ? `of at least ${least}` : `from ${least} to ${most}`}`);
}

function checkInteger(options, name, least, most) {
  checkNumber(options, name, least, most);
  if (!Number.isInteger(options[name])) throw invalid(`${name}: a whole number`);
}

function checkText(options, ...names) {
  for (const name of names) {
    if (typeof options[name] !== 'string') throw invalid(`${name}: a string`);
  }
}

function checkHolder(options) {
  checkText(options, 'holder');
  if (Buffer.byteLength(options.holder) > HOLDER_BYTES_MAX) throw invalid('holder: at most 256 bytes');
}

// What is wrong with it; empty if nothing is.
function wrongWith(endpoint) {
  if (typeof endpoint !== 'string') return 'is no string';
  if (endpoint === '') return 'is empty';
  if (/^unix(-abstract)?:/.test(endpoint)) return endpoint.endsWith(':') ? 'has no path' : '';
  const address = endpoint.replace(/^(dns:\/\/\/|dns:|ipv4:|ipv6:)/, '');
  const scheme = /^[^/]*:\/\//.exec(address);
  if (scheme) return `begins with ${scheme[0]}, which is left out`;
  if (/[ \t/]/.test(address)) return 'has a blank or a slash';
  const colon = address.lastIndexOf(':');
  const bracketed = address.startsWith('[');
  if (colon < 0 || (bracketed && address.endsWith(']'))) return 'has no port';
  const host = address.slice(0, colon);
  const port = address.slice(colon + 1);
  if (host === '') return 'has no host';
  if (bracketed !== host.endsWith(']') || (!bracketed && host.includes(':'))) {
    return 'has an IPv6 address that is not in [ ]';
  }
  if (port === '') return 'has no port';
  const isPort = /^[0-9]{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535;
  return isPort ? '' : `has the port ${port}, which is not one of 1 to 65535`;
}

// The same rules and words as in the clients of other languages.
function checkEndpoints(endpoints) {
  const right = 'HOST:PORT, [HOST]:PORT or unix:PATH, such as 127.0.0.1:7420';
  if (!Array.isArray(endpoints) || endpoints.length < 1 || endpoints.length > ENDPOINTS_MAX) {
    throw invalid(`endpoints: give 1 to ${ENDPOINTS_MAX}, each ${right}`);
  }
  for (const endpoint of endpoints) {
    const wrong = wrongWith(endpoint);
    if (wrong) throw invalid(`endpoints: '${endpoint}' ${wrong}; give ${right}`);
  }
}

// Where a token may travel without TLS.
function isLocal(endpoint) {
  if (/^unix(-abstract)?:/.test(endpoint)) return true;
  const address = endpoint.replace(/^(dns|ipv4|ipv6):(\/\/\/?)?/, '');
  const host = address.startsWith('[') ? address.slice(1, address.indexOf(']')) : address.replace(/:\d+$/, '');
  return host === 'localhost' || host === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host);
}

function checkSecurity(options) {
  checkText(options, 'caFile', 'certFile', 'keyFile', 'serverName', 'token', 'tokenFile');
  const needsTls = ['caFile', 'certFile', 'keyFile', 'serverName'].filter((name) => options[name] !== '');
  if (options.tls === false && needsTls.length > 0) throw invalid(`tls: not false together with ${needsTls[0]}`);
  options.tls ??= needsTls.length > 0;
  if (typeof options.tls !== 'boolean') throw invalid('tls: true or false');
  if ((options.certFile === '') !== (options.keyFile === '')) {
    throw invalid('certFile and keyFile: both, or neither');
  }
  if (options.token !== '' && options.tokenFile !== '') throw invalid('token and tokenFile: not both');
  if (options.token === '' && options.tokenFile === '') return;
  const open = options.tls ? undefined : options.endpoints.find((endpoint) => !isLocal(endpoint));
  if (open !== undefined) {
    throw invalid(`token: not sent to ${open} without TLS, where others could read it; set tls or caFile`);
  }
}

// Throws InvalidArgumentError, which names the option that is wrong.
function checkClientOptions(given) {
  const options = merge('Client', DEFAULTS, given);
  const { endpoints } = options;
  checkEndpoints(endpoints);
  options.endpoints = [...endpoints];
  checkInteger(options, 'ttlMs', 0, 2 ** 32 - 1);
  checkNumber(options, 'marginMs', 0);
  if (options.ttlMs > 0 && options.marginMs * 2 >= options.ttlMs) throw invalid('marginMs: less than half of ttlMs');
  for (const name of ['connectTimeoutMs', 'reconnectTimeoutMs', 'releaseTimeoutMs', 'operationsMax']) {
    checkNumber(options, name, 1);
  }
  for (const name of ['connectTimeoutMs', 'reconnectTimeoutMs', 'releaseTimeoutMs']) {
    options[name] = Math.min(options[name], TIMER_MOST_MS);
  }
  checkHolder(options);
  if (options.holder === '') options.holder = `${os.hostname()}:${process.pid}`;
  checkSecurity(options);
  return Object.freeze(options);
}

function checkAcquireOptions(semaphore, given) {
  if (typeof semaphore !== 'string' || semaphore === '') throw invalid('semaphore: its name, a string');
  const options = merge('acquire', ACQUIRE_DEFAULTS, given);
  checkInteger(options, 'limit', 0, 2 ** 32 - 1);
  checkInteger(options, 'permits', 1, 2 ** 32 - 1);
  checkInteger(options, 'priority', -1000, 1000);
  if (options.waitMs === Infinity) options.waitMs = -1;
  checkNumber(options, 'waitMs', -Infinity, 2 ** 32 - 1);
  options.waitMs = options.waitMs < 0 ? -1 : Math.ceil(options.waitMs);
  checkHolder(options);
  return options;
}

module.exports = { TIMER_MOST_MS, checkClientOptions, checkAcquireOptions, isLocal };
