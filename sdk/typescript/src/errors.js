// Why there is no outcome: the server's problem document, or what became of the requests.

/** @typedef {import('../index.js').Problem} Problem */

/** An id of an effect that is longer is not shown. */
const SHOWN_LETTERS_MAX = 200;
const PAGES = 'https://fencepost.dev/errors/';

/** Anything that this package says no with. */
export class FencepostError extends Error {
  /** @param {string} message @param {Problem} [problem] @param {unknown} [cause] */
  constructor(message, problem, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.problem = problem;
  }
}

/** The key was first used with another body; `problem.diff` leads from the first to this one. */
export class Conflict extends FencepostError {}
/** A newer version of the source is already sealed. */
export class Stale extends FencepostError {}
/** The outcome of an earlier attempt is unknown and a person must decide. */
export class InDoubt extends FencepostError {}
/** Not the next repetition. */
export class SequenceGap extends FencepostError {}
/** The token no longer holds the claim. */
export class FencedOff extends FencepostError {}
/** Any other refusal: a wrong key, an unknown scope, a credential that does not fit. */
export class Refused extends FencepostError {}

/** Somebody else is acting, and still was when the wait was over. */
export class InFlight extends FencepostError {
  /** @param {Problem} problem @param {boolean} perhapsOwn @param {string} detail */
  constructor(problem, perhapsOwn, detail) {
    const own = perhapsOwn ? "; it may be this call's own claim: an earlier try had no answer" : '';
    // The server's detail names the members of its own requests, not the options of this package.
    super(said(problem, detail + own), problem);
    /** Whether it may be this very call: an earlier try of it had no answer and may have been let in. */
    this.perhapsOwn = perhapsOwn;
  }
}

/** No answer that stands before the deadline. */
export class Unavailable extends FencepostError {
  /** @param {string} why @param {number} attempts @param {boolean} unanswered @param {Problem} [problem] */
  constructor(why, attempts, unanswered, problem) {
    super(`no answer after ${attempts} tries: ${why}`, problem);
    this.attempts = attempts;
    /** Whether a try may have been carried out without its answer coming through. */
    this.unanswered = unanswered;
  }
}

/** The effect ran and could not be recorded; `cause` says why. The next holder is told that this attempt is unknown. */
export class Unsealed extends FencepostError {
  /** @param {any} done @param {any} cause */
  constructor(done, cause) {
    const known = ['string', 'number', 'bigint'].includes(typeof done?.effectId);
    const length = known ? String(done.effectId).length : 0;
    const what = length > 0 && length <= SHOWN_LETTERS_MAX ? `${done.effectId} was done and is` : 'the effect ran, and what it did is';
    super(`${what} not recorded: ${cause?.message ?? cause}`, cause?.problem, cause);
    /** The effect's return value: a `Done`, unless that was the mistake. */
    this.done = done;
  }
}

/** Thrown by an effect that knows that nothing happened: the key is free again at once. */
export class NotApplied extends Error {
  /** @param {string} [message] @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(message, options);
    this.name = 'NotApplied';
  }
}

/** @type {Record<string, typeof FencepostError>} */
const BY_CODE = { conflict: Conflict, stale: Stale, 'in-doubt': InDoubt, 'sequence-gap': SequenceGap, 'fenced-off': FencedOff };

/** @param {Problem} problem @param {string} [detail] */
function said(problem, detail = problem.detail) {
  const trace = problem.traceId ? ` (trace ${problem.traceId})` : '';
  return `${problem.status} ${problem.code || 'no problem document'}: ${detail}${trace}`;
}

/** @param {import('./retry.js').Reply} reply @returns {Problem} */
export function problemOf(reply) {
  /** @type {any} */
  let members;
  try {
    members = JSON.parse(reply.text);
  } catch {
    members = undefined;
  }
  if (typeof members !== 'object' || members === null) members = {};
  // An upstream or a proxy may have problem documents with codes of its own.
  const own = reply.status >= 400 && String(members.type ?? '').startsWith(PAGES);
  return {
    status: reply.status,
    code: own ? String(members.code ?? '') : '',
    detail: String(members.detail ?? `an answer of status ${reply.status}`),
    traceId: members.trace_id,
    diff: members.diff,
    retryAfterMs: reply.retryAfterMs,
    members,
  };
}

/** @param {Problem} problem @param {boolean} [perhapsOwn] */
export function errorOf(problem, perhapsOwn = false) {
  if (problem.code === 'in-flight') {
    const detail = 'an earlier request with this key is under way; ask again with the same key, or set a longer `deadlineMs`';
    return new InFlight(problem, perhapsOwn, detail);
  }
  const most = problem.members.lease_ms_max;
  if (typeof most === 'number') {
    return new Refused(said(problem, `the scope takes leases of at most ${most} ms; set \`leaseMs\``), problem);
  }
  return new (BY_CODE[problem.code] ?? Refused)(said(problem), problem);
}
