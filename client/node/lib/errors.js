// Errors: one class for each canonical gRPC code that semaphored answers with, and the reason beside it.
'use strict';

const { inOptions, withOptions } = require('./wording.js');

// By number, as gRPC counts them.
const CODES = [
  'OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS',
  'PERMISSION_DENIED', 'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED',
  'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED',
];

class SemaphoreError extends Error {
  // `details`: reason, metadata (of the ErrorInfo), cause.
  constructor(code, message, details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.reason = details.reason ?? '';
    this.metadata = details.metadata ?? {};
  }
}

class CancelledError extends SemaphoreError {}
class InvalidArgumentError extends SemaphoreError {}
class DeadlineExceededError extends SemaphoreError {}
class NotFoundError extends SemaphoreError {}
class AlreadyExistsError extends SemaphoreError {}
class PermissionDeniedError extends SemaphoreError {}
class ResourceExhaustedError extends SemaphoreError {}
class FailedPreconditionError extends SemaphoreError {}
class AbortedError extends SemaphoreError {}
class UnimplementedError extends SemaphoreError {}
class InternalError extends SemaphoreError {}
class UnavailableError extends SemaphoreError {}
class UnauthenticatedError extends SemaphoreError {}

// The permits were lost while, or before, they were used. `loss` says why.
class PermitLostError extends NotFoundError {
  constructor(loss) {
    super('NOT_FOUND', `the permits were lost before they were given back: ${loss.message}`, { reason: 'NOT_HELD' });
    this.loss = loss;
  }
}

const CLASSES = {
  CANCELLED: CancelledError,
  INVALID_ARGUMENT: InvalidArgumentError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
  NOT_FOUND: NotFoundError,
  ALREADY_EXISTS: AlreadyExistsError,
  PERMISSION_DENIED: PermissionDeniedError,
  RESOURCE_EXHAUSTED: ResourceExhaustedError,
  FAILED_PRECONDITION: FailedPreconditionError,
  ABORTED: AbortedError,
  UNIMPLEMENTED: UnimplementedError,
  INTERNAL: InternalError,
  UNAVAILABLE: UnavailableError,
  UNAUTHENTICATED: UnauthenticatedError,
};

// An error of the class that belongs to `code`, a canonical name.
function makeError(code, message, details) {
  return new (CLASSES[code] ?? SemaphoreError)(code, message, details);
}

// For another thread, which clones nothing of an error's class; and back. What is no error of the client's is given by its
// text.
function toMessage(error) {
  const { code = 'INTERNAL', message, reason, metadata, loss } = error;
  const cause = error.cause instanceof Error ? toMessage(error.cause) : undefined;
  return { code, message, details: { reason, metadata, cause }, loss };
}

function fromMessage({ code, message, details, loss }) {
  if (loss !== undefined) return new PermitLostError(loss);
  const cause = details.cause === undefined ? undefined : fromMessage(details.cause);
  return makeError(code, message, { ...details, cause });
}

function invalid(message) {
  return makeError('INVALID_ARGUMENT', message, { reason: 'INVALID_FIELD' });
}

// Of one command of a stream: the message google.rpc.Status, as the stub reads it.
function fromStatusMessage(error) {
  const code = CODES[error.code];
  if (code === undefined || code === 'OK') return makeError('INTERNAL', 'the daemon sent an error without a code');
  return explained(code, error.message, infoAmong(error.details.map((any) => [any.type_url, any.value])));
}

// How a call ended: the status object of @grpc/grpc-js, of a code other than OK.
function fromStatus(status) {
  const code = CODES[status.code] ?? 'UNKNOWN';
  const [details] = status.metadata?.get('grpc-status-details-bin') ?? [];
  return explained(code, status.details || code, details === undefined ? {} : readErrorInfo(details));
}

// In the words of the library. At LIMIT_REACHED the name is that of a setting of the daemon.
function explained(code, message, { reason, metadata }) {
  if (reason === 'LIMIT_REACHED') return makeError(code, message, { reason, metadata });
  const advice = metadata?.advice === undefined ? {} : { advice: withOptions(metadata.advice) };
  return makeError(code, inOptions(message, metadata?.semaphore), { reason, metadata: { ...metadata, ...advice } });
}

// ---- google.rpc.Status in a trailer, and ErrorInfo: the stub brings neither along, since no service names them ----

// The fields of one serialized message: [number, Buffer] for each field of length-delimited type; others are passed over.
function* fieldsOf(buffer) {
  let at = 0;
  const varint = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      if (at >= buffer.length || factor > 2 ** 63) throw new RangeError('not a message');
      const byte = buffer[at++];
      value += (byte & 0x7f) * factor;
      if (byte < 0x80) return value;
    }
  };
  while (at < buffer.length) {
    const tag = varint();
    const type = tag % 8;
    if (type === 0) {
      varint();
    } else if (type === 1) {
      at += 8;
    } else if (type === 5) {
      at += 4;
    } else if (type === 2) {
      const length = varint();
      if (length > buffer.length - at) throw new RangeError('not a message');
      yield [Math.floor(tag / 8), buffer.subarray(at, at + length)];
      at += length;
    } else {
      throw new RangeError('not a message');
    }
  }
}

const STATUS_DETAILS = 3;
const ANY_TYPE_URL = 1;
const ANY_VALUE = 2;
const INFO_REASON = 1;
const INFO_METADATA = 3;

// {reason, metadata} of the first google.rpc.ErrorInfo among [type URL, Buffer]; {} if there is none, or it cannot be read.
function infoAmong(details) {
  try {
    for (const [url, value] of details) {
      if (!String(url ?? '').endsWith('/google.rpc.ErrorInfo')) continue;
      const info = { reason: '', metadata: {} };
      for (const [field, text] of fieldsOf(value ?? Buffer.alloc(0))) {
        if (field === INFO_REASON) info.reason = text.toString('utf8');
        if (field !== INFO_METADATA) continue;
        const entry = new Map(fieldsOf(text));
        info.metadata[String(entry.get(1) ?? '')] = String(entry.get(2) ?? '');
      }
      return info;
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return {};
}

// The same of a serialized google.rpc.Status.
function readErrorInfo(buffer) {
  function* details() {
    for (const [number, value] of fieldsOf(buffer)) {
      if (number !== STATUS_DETAILS) continue;
      const any = new Map(fieldsOf(value));
      yield [any.get(ANY_TYPE_URL), any.get(ANY_VALUE)];
    }
  }
  return infoAmong(details());
}

module.exports = {
  CODES,
  SemaphoreError,
  PermitLostError,
  ...Object.fromEntries(Object.values(CLASSES).map((each) => [each.name, each])),
  makeError,
  toMessage,
  fromMessage,
  invalid,
  fromStatus,
  fromStatusMessage,
  readErrorInfo,
};
