// The types of `src/index.js`, written by hand.

/** How long and how often a request is sent again. */
export interface Retry {
  /** The longest first pause, 100 unless said; it doubles with every try. The pause itself is random below that (full jitter). */
  pauseMs?: number;
  /** The bound of the doubling: 5,000. */
  pauseMsMax?: number;
  /** Patience with one try: 15,000. */
  attemptTimeoutMs?: number;
  /** Patience with all tries of one request together: 60,000. Longer than a lease, so that a claim whose answer was lost can be had again within one call. */
  deadlineMs?: number;
}

/** A refusal as the server wrote it (RFC 9457). */
export interface Problem {
  status: number;
  /** The stable code, such as `conflict`; empty where the answer is not one of Fencepost's. */
  code: string;
  detail: string;
  traceId?: string;
  /** On a conflict of two JSON bodies: the RFC 6902 patch from the first to this one. */
  diff?: Array<{ op: string; path: string; value?: unknown; from?: string }>;
  retryAfterMs?: number;
  /** The whole document. */
  members: Record<string, unknown>;
}

/** A completed effect: its id, and the receipt that every duplicate gets. */
export interface Done {
  /** Sealed as text. A number must be a safe integer; beyond, a BigInt. */
  effectId: string | number | bigint;
  receipt?: unknown;
  /** A receipt that is JSON text already, in place of `receipt`; it is kept byte for byte. */
  receiptJson?: string;
}

/** The result for every caller, first or not. */
export interface Outcome {
  effectId: string;
  receipt: any;
  /** The first one's receipt, as the exact text it was sealed with. */
  receiptJson: string;
  /** Whether somebody, perhaps this caller before a crash, had the effect earlier. */
  replayed: boolean;
}

/** The answer to a claim that was not refused: either the right to act, or what somebody did. */
export type Claimed = { claim: Claim; outcome?: undefined } | { claim?: undefined; outcome: Outcome };

export interface EffectOptions {
  body?: unknown;
  /** A number must be a safe integer; beyond, a BigInt. */
  version?: number | bigint | string;
  source?: { type: string; id: string };
  seq?: number | bigint;
  /** For admins. */
  tenant?: string;
  /** How long a holder may be silent: 30,000 unless said, a day at most. */
  leaseMs?: number;
  /** How long to wait for somebody else's outcome. Unless said, `run` waits for as long as the lease, and `claim` does not wait. */
  waitMs?: number;
}

export interface RequestOptions {
  json?: unknown;
  body?: string | Uint8Array;
  headers?: Record<string, string>;
  /** A fresh UUID v7 unless given; who wants retries to be safe over a restart keeps it with the work. */
  idempotencyKey?: string;
}

/** The API's own answer, whatever its status. */
export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  bytes: Uint8Array;
  /** The body, read as JSON. */
  json(): any;
  /** Whether it is the stored answer to an earlier request with this key. */
  replayed: boolean;
  idempotencyKey: string;
}

export interface Batched {
  status: number;
  body: any;
}

export class Fencepost {
  constructor(url: string, token: string, retry?: Retry);
  readonly retry: Required<Retry>;
  scope(name: string): Effect;
  batch(commands: Iterable<object>): Promise<Batched[]>;
  request(method: string, path: string, options?: RequestOptions): Promise<Answer>;
}

/** Every step gives a new one, so one may be the start of many. */
export class Effect {
  private constructor();
  key(fields: Record<string, string | number | bigint | boolean>): Effect;
  options(options: EffectOptions): Effect;
  body(body: unknown): Effect;
  again(seq: number | bigint): Effect;
  claim(): Promise<Claimed>;
  run(effect: (claim: Claim) => Done | Promise<Done>): Promise<Outcome>;
  lookup(): Promise<Record<string, any> | undefined>;
  command(): object;
}

/** The right to act under a fence, until its lease runs out. */
export class Claim {
  private constructor();
  readonly idempotencyKey: string;
  readonly token: number;
  readonly attempt: number;
  readonly recovering: boolean;
  readonly earlier?: { token: number; attempt: number; lease_expired_at: string };
  readonly lost: boolean;
  renew(): Promise<void>;
  seal(done: Done): Promise<void>;
  release(): Promise<void>;
  keep<T>(work: () => T | Promise<T>): Promise<T>;
}

export class FencepostError extends Error {
  readonly problem?: Problem;
}
export class Conflict extends FencepostError {}
export class Stale extends FencepostError {}
export class InDoubt extends FencepostError {}
export class SequenceGap extends FencepostError {}
export class FencedOff extends FencepostError {}
export class Refused extends FencepostError {}
export class InFlight extends FencepostError {
  /** Whether it may be this very call: an earlier try of it had no answer and may have been let in. */
  readonly perhapsOwn: boolean;
}
export class Unavailable extends FencepostError {
  readonly attempts: number;
  readonly unanswered: boolean;
}
export class Unsealed extends FencepostError {
  /** The effect's return value: a `Done`, unless that was the mistake. */
  readonly done: any;
}
/** Thrown by an effect that knows that nothing happened: the key is free again at once. */
export class NotApplied extends Error {
  constructor(message?: string, options?: { cause?: unknown });
}

/** A UUID v7 (RFC 9562). */
export function uuid7(): string;
