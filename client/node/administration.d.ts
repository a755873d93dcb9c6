// What `Client.administer` takes and answers: the acts of AdministerRequest, and the messages *Result of
// proto/semaphore/v1/semaphore.proto, where each field is described. In what is answered, 64-bit numbers are decimal
// strings, times of day are Dates, slots are ranges, and enums are names. A value that a newer daemon has added to an enum
// comes as its number, hence `Open`.

type Open<Name extends string> = Name | number | (string & {});

export type EndCauseName = Open<
  | 'END_CAUSE_UNSPECIFIED' | 'END_CAUSE_RELEASED' | 'END_CAUSE_EXPIRED' | 'END_CAUSE_REVOKED' | 'END_CAUSE_RECALLED'
  | 'END_CAUSE_DESTROYED' | 'END_CAUSE_DISCONNECTED' | 'END_CAUSE_UNKNOWN' | 'END_CAUSE_WAIT_EXPIRED'
  | 'END_CAUSE_CANCELLED' | 'END_CAUSE_EXCEEDS_LIMIT' | 'END_CAUSE_ENGINE_LOST' | 'END_CAUSE_MOVED'
>;
export type TicketStateName = Open<
  'TICKET_STATE_UNSPECIFIED' | 'TICKET_STATE_QUEUED' | 'TICKET_STATE_DELAYED' | 'TICKET_STATE_ASSIGNED' | 'TICKET_STATE_DEAD'
>;
export type WaitReasonName = Open<
  | 'WAIT_REASON_UNSPECIFIED' | 'WAIT_REASON_FULL' | 'WAIT_REASON_BEHIND_LARGER' | 'WAIT_REASON_HOLDER_CAP'
  | 'WAIT_REASON_PAUSED' | 'WAIT_REASON_DESTROYING' | 'WAIT_REASON_WITHHELD' | 'WAIT_REASON_FOREIGN'
>;

/** From `first` to `last`, both included. */
export interface SlotRange {
  first: number;
  last: number;
}

export interface SemaphoreSettings {
  backfill?: boolean;
  /** Default: no bound. */
  longestHoldMs?: number | string;
  /** Absent: 30000. 0: none. */
  recallGraceMs?: number;
  /** Default: no bound. */
  permitsPerHolder?: number;
  waitersMax?: number;
}

export interface TicketCounts {
  queued: string;
  delayed: string;
  assigned: string;
  dead: string;
}

export interface SemaphoreInfo {
  semaphore: string;
  limit: number;
  held: number;
  waiting: string;
  paused: boolean;
  destroying: boolean;
  settings?: SemaphoreSettings;
  revision: string;
  createdAt?: Date;
  tickets?: TicketCounts;
  offers: string;
}

export interface LeaseMessage {
  leaseId: string;
  semaphore: string;
  slots: SlotRange[];
  token: string;
  holder: string;
  ttlMs: number;
  sessionId: string;
}

export interface LeaseInfo {
  lease?: LeaseMessage;
  foreign: boolean;
  recalled: boolean;
  grantedAt?: Date;
  node: string;
}

export interface WaiterInfo {
  position: string;
  holder: string;
  permits: number;
  priority: number;
  queuedAt?: Date;
  node: string;
  reason: WaitReasonName;
}

export interface HistoryRow {
  number: string;
  semaphore: string;
  holder: string;
  slots: SlotRange[];
  token: string;
  grantedAt?: Date;
  endedAt?: Date;
  cause: EndCauseName;
}

export interface TicketInfo {
  ticketId: string;
  number: string;
  state: TicketStateName;
  priority: number;
  attempt: number;
  maxAttempts: number;
  contentType: string;
  payloadBytes: number;
  enqueuedAt?: Date;
  reasons: { attempt: number; text: string; at?: Date }[];
  position: string;
  holder: string;
  delayMs: number;
  traceparent: string;
  attemptsUnbounded: boolean;
}

/** What most acts answer: the semaphore after the act. */
export interface SemaphoreResult {
  semaphore?: SemaphoreInfo;
}

export interface Page {
  /** Default 100, at most 10000. */
  pageSize?: number;
  /** nextPageToken of the answer before. Default: the first page. */
  pageToken?: string;
}

export interface Paged {
  /** Empty on the last page. */
  nextPageToken: string;
}

type OneOrAll = { ticketId: string } | { all: true };

/** How leases are to end: recalled, with a grace, or now. */
export type Ending =
  | {
      /** Default: the semaphore's recallGraceMs. At most 24 hours. */
      graceMs?: number;
      now?: false;
    }
  | {
      graceMs?: undefined;
      /**
       * The leases end with this act. DANGER: a holder that has not heard of it, because its connection or its daemon's is
       * cut, goes on until the validity that it has received is over, up to the TTL, while others are let in. Safe if the
       * resource checks tokens, or if the holders are known to be gone.
       */
      now: true;
    };

/** Each act by its name: what it takes, and what it answers. */
export interface Administration {
  create: { act: { limit: number; settings?: SemaphoreSettings }; result: SemaphoreResult & { created: boolean } };
  resize: {
    act: ({ limit: number } | { add: number } | { remove: number }) & {
      /** With RECALL, `graceMs: 0` is none. */
      policy?: 'SHRINK_POLICY_WAIT' | 'SHRINK_POLICY_RECALL' | 'SHRINK_POLICY_REFUSE';
    } & Ending;
    result: SemaphoreResult & { recalled: number; othersAsked: boolean };
  };
  configure: { act: { settings: SemaphoreSettings }; result: SemaphoreResult };
  destroy: {
    act: {
      /** With FORCE the leases are recalled. */
      policy?: 'DESTROY_POLICY_REFUSE' | 'DESTROY_POLICY_WAIT' | 'DESTROY_POLICY_FORCE';
      /** With WAIT and FORCE: how long to wait for the end before answering. */
      waitMs?: number;
    } & Ending;
    result: SemaphoreResult & { gone: boolean; changed: boolean };
  };
  drain: {
    act: { heldMax?: number; waitMs?: number };
    /** The token is for `describe`. */
    result: SemaphoreResult & { drained: boolean; leases: LeaseInfo[] } & Paged;
  };
  pause: { act: {}; result: SemaphoreResult };
  resume: { act: {}; result: SemaphoreResult };
  revoke: {
    /** A `graceMs` of 0 is the default, too. */
    act: ({ leaseId: string } | { holder: string } | { all: true }) & Ending;
    result: SemaphoreResult & { revoked: number; othersAsked: boolean };
  };
  prune: { act: {}; result: SemaphoreResult & { pruned: number } };
  /** Without a limit: only says what would be adopted. */
  adopt: { act: { limit?: number }; result: SemaphoreResult & { limit: number; changes: string; adopted: boolean } };
  describe: { act: Page; result: SemaphoreResult & { leases: LeaseInfo[]; waiters: WaiterInfo[] } & Paged };
  list: { act: { prefix?: string } & Page; result: { semaphores: SemaphoreInfo[] } & Paged };
  history: { act: Page; result: { rows: HistoryRow[] } & Paged };
  listTickets: { act: { states?: TicketStateName[] } & Page; result: { tickets: TicketInfo[] } & Paged };
  showTicket: { act: { ticketId: string }; result: { ticket?: TicketInfo; payload: Uint8Array } };
  /** `force`: also while a worker has it; the lease ends with this act, with the danger of `now`. */
  cancelTicket: { act: { ticketId: string; force?: boolean }; result: SemaphoreResult };
  prioritiseTicket: { act: { ticketId: string; priority: number }; result: SemaphoreResult };
  requeueTickets: { act: OneOrAll; result: SemaphoreResult & { requeued: number } };
  purgeTickets: { act: OneOrAll; result: SemaphoreResult & { purged: number } };
}
