// gRPC: the stub, credentials and calls. It knows no rules of a session; see session_machine.js for those.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const { fromStatus, makeError } = require('./errors.js');

// In the package, and in the source tree.
const PROTO_ROOTS = [path.join(__dirname, '..', 'proto'), path.join(__dirname, '..', '..', '..', 'proto')];
const PROTO = path.join('semaphore', 'v1', 'semaphore.proto');

let loadedService;

// Names in camelCase, enums by name, 64-bit numbers as decimal strings, empty lists and zeros filled in.
function serviceClass() {
  if (loadedService !== undefined) return loadedService;
  const root = PROTO_ROOTS.find((each) => fs.existsSync(path.join(each, PROTO)));
  const options = { longs: String, enums: String, defaults: true, arrays: true, includeDirs: [root] };
  const definition = protoLoader.loadSync(PROTO, options);
  loadedService = grpc.loadPackageDefinition(definition).semaphore.v1.SemaphoreService;
  return loadedService;
}

// A file's text, read again when the file has changed. While it is empty, or cannot be read any more, what was read last
// stays, and it is read again: it may be about to be replaced.
class WatchedText {
  #file;
  #seen = '';
  #text = '';

  constructor(file) {
    this.#file = file;
  }

  // Throws if it could never be read.
  read() {
    try {
      const { mtimeNs, ino, size } = fs.statSync(this.#file, { bigint: true });
      const seen = `${mtimeNs} ${ino} ${size}`;
      const text = seen === this.#seen ? '' : fs.readFileSync(this.#file, 'utf8').trim();
      if (text !== '') [this.#text, this.#seen] = [text, seen];
    } catch (error) {
      if (this.#text === '') throw error;
    }
    return this.#text;
  }
}

// One Session stream, on a connection of its own, so that a broken one is never used again.
class SessionStream {
  #connection;
  #call;
  #listener;

  constructor(connection, call, listener) {
    this.#connection = connection;
    this.#call = call;
    this.#listener = listener;
    call.on('data', (message) => listener.onMessage(this, message));
    call.on('error', () => {}); // The status reports it.
    // Messages that came before the end may still be on their way to 'data'.
    call.on('status', (status) => setImmediate(() => this.#end(status)));
  }

  // REQUIRES: onWritten was called for the write before it.
  write(message) {
    this.#call.write(message, () => this.#listener.onWritten(this));
  }

  cancel() {
    this.#call.cancel();
  }

  #end(status) {
    this.#connection.close();
    this.#listener.onEnd(this, status);
  }
}

// A stream that could not even be begun.
class BrokenStream {
  constructor(error, listener) {
    const status = { code: grpc.status.UNAVAILABLE, details: error.message };
    setImmediate(() => listener.onEnd(this, status));
  }

  write() {}
  cancel() {}
}

class Transport {
  #options;
  #tokenFile;
  #unary = new Map(); // Connections by endpoint.

  // `options` were checked.
  constructor(options) {
    this.#options = options;
    if (options.tokenFile) this.#tokenFile = new WatchedText(options.tokenFile);
  }

  // Reads the API's definition, which takes its time, before a connection waits for it.
  static load() {
    serviceClass();
  }

  // Throws InvalidArgumentError if a file that the options name cannot be used.
  check() {
    try {
      this.#credentials();
      this.#metadata();
    } catch (error) {
      throw makeError('INVALID_ARGUMENT', error.message, { reason: 'INVALID_FIELD', cause: error });
    }
  }

  // Re-reads the certificates for each connection.
  #credentials() {
    const { tls, caFile, certFile, keyFile } = this.#options;
    if (!tls) return grpc.credentials.createInsecure();
    const read = (file) => (file ? fs.readFileSync(file) : null);
    return grpc.credentials.createSsl(read(caFile), read(keyFile), read(certFile));
  }

  #metadata(extra = {}) {
    const metadata = new grpc.Metadata();
    const token = this.#tokenFile ? this.#tokenFile.read() : this.#options.token;
    if (token) metadata.set('authorization', `Bearer ${token}`);
    for (const [key, value] of Object.entries(extra)) metadata.set(key, value);
    return metadata;
  }

  #connect(endpoint, channelOptions) {
    const { serverName } = this.#options;
    const name = serverName
      ? { 'grpc.ssl_target_name_override': serverName, 'grpc.default_authority': serverName }
      : {};
    return new (serviceClass())(endpoint, this.#credentials(), {
      'grpc.use_local_subchannel_pool': 1,
      ...name,
      ...channelOptions,
    });
  }

  // Opens one of the bidirectional streams, 'Session' or 'Work', to the endpoint of this index. The listener's
  // onMessage(stream, message), onWritten(stream) and onEnd(stream, status) are never called before this returns.
  openStream(method, index, listener) {
    try {
      const connection = this.#connect(this.#options.endpoints[index], {});
      return new SessionStream(connection, connection[method](this.#metadata()), listener);
    } catch (error) {
      return new BrokenStream(error, listener);
    }
  }

  openSession(index, listener) {
    return this.openStream('Session', index, listener);
  }

  // One attempt of a unary call. Rejects with a SemaphoreError, or with the reason of an aborted signal. REQUIRES:
  // `timeoutMs` is at most TIMER_MOST_MS.
  callOnce(method, request, index, { timeoutMs, signal, metadata }) {
    return new Promise((resolve, reject) => {
      let timer;
      let timedOut = false;
      let call;
      const onAbort = () => call.cancel();
      const done = (error, response) => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
        if (!error) resolve(response);
        else if (signal?.aborted) reject(signal.reason);
        else if (timedOut) reject(makeError('DEADLINE_EXCEEDED', `no answer within ${timeoutMs} ms`));
        else reject(fromStatus(error));
      };
      try {
        call = this.#unaryConnection(index)[method](request, this.#metadata(metadata), done);
      } catch (error) {
        reject(makeError('INVALID_ARGUMENT', error.message, { reason: 'INVALID_FIELD', cause: error }));
        return;
      }
      signal?.addEventListener('abort', onAbort, { once: true });
      timer = setTimeout(() => {
        timedOut = true;
        call.cancel();
      }, timeoutMs);
    });
  }

  #unaryConnection(index) {
    const endpoint = this.#options.endpoints[index];
    if (!this.#unary.has(endpoint)) {
      const pauses = {
        'grpc.initial_reconnect_backoff_ms': 50,
        'grpc.min_reconnect_backoff_ms': 50,
        'grpc.max_reconnect_backoff_ms': 1_000,
      };
      this.#unary.set(endpoint, this.#connect(endpoint, pauses));
    }
    return this.#unary.get(endpoint);
  }

  close() {
    for (const connection of this.#unary.values()) connection.close();
    this.#unary.clear();
  }
}

module.exports = { Transport };
