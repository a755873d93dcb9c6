// semaphored's client for Node: permits of named semaphores, held for as long as the work takes.
//
//   const client = new Client({ endpoints: ['127.0.0.1:7420'] });
//   await client.withPermit('team/db', { limit: 5 }, async (permit) => {
//     await work(permit.slots, permit.token, permit.signal); // stops when the signal is aborted
//   });
//   await client.close();
//
// A client keeps all of its permits alive over one stream, and resumes it by itself after a broken connection, a
// restarted daemon or through the next endpoint, with the same leases, slots and tokens. When no daemon has vouched for
// the permits up to their deadline, on a steady clock of this machine and less a margin, they are lost: the signal is
// aborted *before* the daemon could give them to another client, and the work must stop.
//
// The stream runs in a thread of its own (node:worker_threads), which starts with the first acquire: work that blocks the
// event loop, for however long, loses nothing. It does hear of a loss only when the loop runs again: after such work, and
// before each act that must not overlap, read `permit.held`, which knows at once.
//
// 64-bit numbers are bigints (tokens, which only rise and are to be compared) or, where they count things or
// milliseconds, numbers. What `administer` answers is the daemon's message, with 64-bit numbers as decimal strings: see
// administration.d.ts.

import type { Administration } from './administration';

export * from './administration';

/** Why a permit that was not given back is held no more. */
export type LossCause =
  /** No daemon vouched for it up to its deadline: it may go to another client soon. */
  | 'NO_CONTACT'
  /** Its session expired at the daemon. */
  | 'EXPIRED'
  /** By an administrator. */
  | 'REVOKED'
  /** It was recalled, and not given back within the grace. */
  | 'RECALLED'
  /** The semaphore was destroyed by force. */
  | 'DESTROYED'
  /** The connection broke, and releaseOnDisconnect was chosen. */
  | 'DISCONNECTED'
  /** The engine took it back, since the daemon's connection to it was lost. */
  | 'ENGINE_LOST'
  /** Another client with this client's id has repeated its request, and has it now. */
  | 'MOVED'
  /** Client.close() was called before it was given back. */
  | 'CLOSED'
  /** The daemon does not know it any more. */
  | 'UNKNOWN';

export interface Loss {
  readonly cause: LossCause;
  readonly message: string;
}

/** The daemon recalls the permits: the limit was lowered, they were held for too long, an administrator wants them. */
export interface RecallNotice {
  /**
   * The time that the daemon left for it when it sent this; Permit.goodForMs has what is left. The permits are lost a
   * margin before its end.
   */
  readonly graceMs: number;
  readonly reason: string;
}

export interface QueuePlace {
  /** From 1. */
  readonly position: number;
  /** undefined: not known yet. */
  readonly expectedWaitMs: number | undefined;
  /** Why it waits: a name of the enum WaitReason without WAIT_REASON_ (FULL, PAUSED …); empty if nothing is in its way. */
  readonly reason: string;
}

export interface ClientOptions {
  /** HOST:PORT, [HOST]:PORT or unix:PATH each, tried in this order, beginning again after the last. 1 to 64. Default: 127.0.0.1:7420. */
  endpoints?: readonly string[];
  /** For how long permits outlive the last sign of life of this client. Default 0: the daemon's default (30 s). */
  ttlMs?: number;
  /**
   * Permits count as lost this long before the daemon's promise about them ends, or 1 % of that promise before if that
   * is more: it covers clocks that run at different speeds. Less than half of a TTL that is given. Default 50.
   */
  marginMs?: number;
  /** For people: who holds. Default: "host:pid". At most 256 bytes. */
  holder?: string;
  /** A call fails with UNAVAILABLE (UNREACHABLE) when no endpoint could be reached for this long: at first. 5000. */
  connectTimeoutMs?: number;
  /** … and for this long once one had been reached; so a daemon may be restarted while requests wait. 60000. */
  reconnectTimeoutMs?: number;
  /** How long release() and close() wait for the daemon's answer. 5000. */
  releaseTimeoutMs?: number;
  /** Requests that this client may have under way at once, those that wait included. 200000. */
  operationsMax?: number;
  /**
   * DANGER: when no endpoint can be reached, acquire gives a permit that *nothing stands behind*: failOpen is true, it
   * has no slots, token 0, it is never lost, and the limit is not kept. Only for limits that are a courtesy. Default:
   * fail closed, with UNAVAILABLE.
   */
  failOpen?: boolean;
  /**
   * Permits go back as soon as the connection is lost, instead of after the TTL. Safe only if the resource checks the
   * token: a holder that is cut off may still be at work.
   */
  releaseOnDisconnect?: boolean;
  /** Default: whether one of the next four is given. */
  tls?: boolean;
  /** PEM: who may have signed the daemon's certificate. Default: Node's own list. */
  caFile?: string;
  /** PEM, together with keyFile: this client's certificate. Both are read again for each connection. */
  certFile?: string;
  keyFile?: string;
  /** The name that the daemon's certificate is checked against, instead of the endpoint's. */
  serverName?: string;
  /** A bearer token. Sent only over TLS, to a loopback address or a unix socket; otherwise INVALID_ARGUMENT. */
  token?: string;
  /** A file with the token, read again when it has changed. While it is empty, what was read last is sent, or nothing. */
  tokenFile?: string;
}

export interface AcquireOptions {
  /** Creates the semaphore with this limit if it does not exist. Default 0: it must exist (NOT_FOUND otherwise). */
  limit?: number;
  /** If the semaphore has another limit: take it as it is, instead of FAILED_PRECONDITION (LIMIT_MISMATCH). */
  adoptLimit?: boolean;
  /** Default 1. */
  permits?: number;
  /**
   * How long to stand in the queue. Negative or Infinity, the default: for ever. 0: at once or RESOURCE_EXHAUSTED. The
   * daemon allows at most wait_max (24 hours) where there is a bound.
   */
  waitMs?: number;
  /** Higher is served first. -1000 to 1000. */
  priority?: number;
  /** For people. Default: the client's. */
  holder?: string;
  /** When it is aborted the wait is given up, and rejects with `signal.reason`. A permit granted meanwhile is given back. */
  signal?: AbortSignal;
  /** Called when the request stands in the queue, and each further time that the daemon reports its position. */
  onQueued?: (place: QueuePlace) => void;
  /** As Permit.onLost, from the very beginning. */
  onLost?: (loss: Loss) => void;
  /** As Permit.onRecall, from the very beginning. */
  onRecall?: (notice: RecallNotice) => void;
}

/**
 * Permits of one semaphore, held until release(). Release also what was lost, once the work has stopped (withPermit and
 * `await using` do): where the daemon could be reached again in time, the client still keeps it from others.
 */
export class Permit {
  private constructor();
  readonly semaphore: string;
  /** The places taken, from 1: as many as permits. */
  readonly slots: readonly number[];
  /** The fencing token, to hand to the resource: per slot it rises with every grant. */
  readonly token: bigint;
  /** A secret of the holder: any client that knows it can give the permits back. */
  readonly leaseId: string;
  readonly ttlMs: number;
  /** See ClientOptions.failOpen. */
  readonly failOpen: boolean;
  /**
   * Whether the permits can be relied on now: not lost, not given back, the deadline not reached. Reads the clock, and what
   * the session's thread knows, also when the event loop was blocked until now.
   */
  readonly held: boolean;
  /** For how long, if nothing more is heard; it moves on while a daemon answers. Less the margin already. */
  readonly goodForMs: number;
  /** Whether release() was called. */
  readonly released: boolean;
  /** Aborted, with a PermitLostError, when the permits are lost. Final. Not aborted by a release. */
  readonly signal: AbortSignal;
  /** Resolves when the permits are lost; never, if they are given back. Never rejects. */
  readonly lost: Promise<Loss>;
  readonly loss: Loss | undefined;
  /** The last notice, if there was one. */
  readonly recall: RecallNotice | undefined;
  /** Calls back once if the permits are lost; soon, if they are already. */
  onLost(callback: (loss: Loss) => void): void;
  /**
   * Calls back when the daemon recalls the permits, and again with a later recall, such as after a broken connection; soon,
   * if there has been one. When a callback returns, the daemon learns that the work knows of the recall. A daemon that does
   * not learn that lets others in later; the permits end here all the same.
   */
  onRecall(callback: (notice: RecallNotice) => void): void;
  /** Throws PermitLostError unless the permits are held now; FAILED_PRECONDITION if they were given back. */
  throwIfLost(): void;
  /**
   * Gives the permits back. Called again, it answers the same.
   *   NOT_FOUND    (PermitLostError) they had been lost before. Nothing was changed
   *   UNAVAILABLE  no answer within releaseTimeoutMs. It is still tried, and at the latest the TTL gives them back
   * After another error, too, it is still tried, unless this client may not give them back (PERMISSION_DENIED).
   */
  release(): Promise<void>;
  /** release(), for `await using`. Only where Node knows the symbol. */
  [Symbol.asyncDispose](): Promise<void>;
}

/** What the daemon says about a lease or a token, at the engine's current revision. */
export interface Verdict {
  readonly held: boolean;
  /** When not held: why, in a word (EXPIRED, RELEASED, UNKNOWN …). */
  readonly ended: string;
  /** When held. */
  readonly holder: string;
  readonly slots: readonly number[];
  readonly token: bigint;
  /** For how long the verdict can be relied on, less the margin. */
  readonly goodForMs: number;
  readonly recalled: boolean;
  /** When asked by slot: the token of the lease that holds the slot now. 0: the slot is free. */
  readonly slotToken: bigint;
}

export interface SlotQuestion {
  semaphore: string;
  slot: number;
  token: bigint | number | string;
}

export interface CallOptions {
  /** Default: connectTimeoutMs, and the `waitMs` of the act. */
  timeoutMs?: number;
  /** When it is aborted, the call rejects with `signal.reason`; the daemon may still carry it out. */
  signal?: AbortSignal;
}

export interface AdministerOptions extends CallOptions {
  /** The act is done only at this revision; otherwise ABORTED (REVISION_MISMATCH). */
  expectedRevision?: bigint | number | string;
}

export interface EnqueueOptions {
  limit?: number;
  adoptLimit?: boolean;
  contentType?: string;
  priority?: number;
  delayMs?: number;
  /** Default 0: the daemon's default (5). */
  maxAttempts?: number;
  /** Never a dead letter by the number of its attempts; not together with maxAttempts. */
  attemptsUnbounded?: boolean;
  backOff?: { initialMs?: number; multiplierPercent?: number; maxMs?: number };
  /** W3C traceparent, handed to the worker. */
  traceparent?: string;
}

export class Client {
  /** Throws InvalidArgumentError, naming the option that is wrong, or what could not be read of a file. Does not connect. */
  constructor(options?: ClientOptions);
  /**
   * Takes permits, and waits for them. Rejects with a SemaphoreError:
   *   RESOURCE_EXHAUSTED  FULL or HOLDER_CAP (and waitMs is 0), LIMIT_REACHED
   *   DEADLINE_EXCEEDED   WAIT_EXPIRED: waitMs passed
   *   FAILED_PRECONDITION LIMIT_MISMATCH, EXCEEDS_LIMIT, PAUSED, DESTROYED
   *   NOT_FOUND           NO_SUCH_SEMAPHORE
   *   INVALID_ARGUMENT    INVALID_FIELD
   *   UNAVAILABLE         UNREACHABLE: no endpoint answered; ENGINE_UNAVAILABLE
   *   CANCELLED           the client was closed
   * Rejects with `signal.reason` when the signal was aborted.
   */
  acquire(semaphore: string, options?: AcquireOptions): Promise<Permit>;
  /** acquire with waitMs 0. */
  tryAcquire(semaphore: string, options?: Omit<AcquireOptions, 'waitMs'>): Promise<Permit>;
  /**
   * Runs `work` while the permits are held, gives them back, and resolves with what `work` resolved with. Rejects with
   * what `work` threw; with PermitLostError if the permits were lost before `work` had ended well: it may have
   * overlapped with others. It always waits for `work`, which should heed `permit.signal`.
   */
  withPermit<Result>(
    semaphore: string,
    options: AcquireOptions,
    work: (permit: Permit) => Result | Promise<Result>,
  ): Promise<Result>;
  withPermit<Result>(semaphore: string, work: (permit: Permit) => Result | Promise<Result>): Promise<Result>;
  /** Asked by the holder, or by the protected resource, which was shown a slot and a token. */
  verify(asked: Permit | { leaseId: string } | SlotQuestion): Promise<Verdict>;
  /**
   * One administrative act, as the message AdministerRequest names it: `administer('db', { resize: { limit: 3 } })`,
   * `administer('db', { describe: {} })`. Resolves with the result of the act, such as ResizeSemaphoreResult. A listing
   * comes in pages: pass its `nextPageToken` as `pageToken` until it is empty.
   */
  administer<Name extends keyof Administration>(
    semaphore: string,
    act: { [Each in Name]: Administration[Each]['act'] },
    options?: AdministerOptions,
  ): Promise<Administration[Name]['result']>;
  /** Puts a ticket into the semaphore's queue. A string is sent as UTF-8. */
  enqueue(
    semaphore: string,
    payload: Uint8Array | string,
    options?: EnqueueOptions,
  ): Promise<{ ticketId: string; position: number }>;
  /**
   * Ends the session cleanly: who waits is rejected with CANCELLED, permits that were not given back are lost first
   * (CLOSED) and given back then. An open client keeps the process alive once it has asked for a permit.
   */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * `code` is gRPC's canonical name; `reason` a name of the enum Reason without REASON_, or UNREACHABLE, or empty; a
 * newer daemon may say one that is not in this version's list.
 */
export class SemaphoreError extends Error {
  readonly code: string;
  readonly reason: string;
  /** Of the ErrorInfo: semaphore, adapter, advice, where they apply. */
  readonly metadata: Readonly<Record<string, string>>;
}
export class CancelledError extends SemaphoreError {}
export class InvalidArgumentError extends SemaphoreError {}
export class DeadlineExceededError extends SemaphoreError {}
export class NotFoundError extends SemaphoreError {}
export class AlreadyExistsError extends SemaphoreError {}
export class PermissionDeniedError extends SemaphoreError {}
export class ResourceExhaustedError extends SemaphoreError {}
export class FailedPreconditionError extends SemaphoreError {}
export class AbortedError extends SemaphoreError {}
export class UnimplementedError extends SemaphoreError {}
export class InternalError extends SemaphoreError {}
export class UnavailableError extends SemaphoreError {}
export class UnauthenticatedError extends SemaphoreError {}
export class PermitLostError extends NotFoundError {
  readonly loss: Loss;
}
