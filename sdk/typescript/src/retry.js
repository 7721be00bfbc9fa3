// When a request is sent again: which answers, after how long, until when. Every try is the same request.

/**
 * An answer, whole.
 * @typedef {{ status: number, headers: Headers, text: string, bytes: Uint8Array, retryAfterMs: number | undefined }} Reply
 * @typedef {{ why: string, last: Reply | undefined }} GaveUp
 * @typedef {{ method: string, url: string, headers: Headers, body: string | Uint8Array | undefined }} Packet
 * @typedef {Required<import('../index.js').Retry>} Retry
 */

/** @type {Retry} */
export const USUAL = { pauseMs: 100, pauseMsMax: 5_000, attemptTimeoutMs: 15_000, deadlineMs: 60_000 };

// Whether another try of the same request may fare better. Nothing else of 4xx is here: asking again would not change it.
const PASSING = new Set([408, 429, 502, 503, 504]);
// Faults after which the request is known never to have left.
const NOT_SENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT']);

/** The tries of one request. */
export class Tries {
  /** @param {Retry} retry */
  constructor(retry) {
    this.retry = retry;
    this.until = performance.now() + retry.deadlineMs;
    this.made = 0;
    /** Whether one may have been carried out without its answer coming through. */
    this.unanswered = false;
  }

  /** The longest that one try should wait at the server: well within the patience with it. */
  get waitMsMax() {
    return Math.min(this.retry.attemptTimeoutMs, this.leftMs) * 0.6;
  }

  get leftMs() {
    return Math.max(0, this.until - performance.now());
  }

  /**
   * Waits before another try, at least as long as the server asked; false where the deadline is before that.
   * @param {number} atLeastMs
   */
  async pause(atLeastMs) {
    const ms = atLeastMs + pauseBefore(this.retry, this.made);
    if (ms >= this.leftMs) return false;
    await new Promise((resolve) => setTimeout(resolve, ms));
    return true;
  }

  /**
   * Sends until there is an answer that stands.
   * @param {Packet} packet @returns {Promise<{ reply: Reply, gaveUp?: undefined } | { reply?: undefined, gaveUp: GaveUp }>}
   */
  async send(packet) {
    for (;;) {
      this.made += 1;
      let why;
      /** @type {Reply | undefined} */
      let last;
      try {
        last = await once(packet, Math.max(1, Math.ceil(Math.min(this.retry.attemptTimeoutMs, this.leftMs))));
        if (!PASSING.has(last.status)) return { reply: last };
        // A store that did not confirm in time may have committed all the same.
        this.unanswered ||= last.status >= 500;
        why = `status ${last.status}`;
      } catch (error) {
        const cause = /** @type {any} */ (error)?.cause ?? error;
        this.unanswered ||= !NOT_SENT.has(cause?.code);
        why = String(cause?.message || cause?.code || cause);
      }
      if (!(await this.pause(last?.retryAfterMs ?? 0))) return { gaveUp: { why, last } };
    }
  }
}

/** Full jitter: callers that failed together do not come back together. @param {Retry} retry @param {number} tryNumber */
export function pauseBefore(retry, tryNumber) {
  return Math.random() * Math.min(retry.pauseMs * 2 ** (tryNumber - 1), retry.pauseMsMax);
}

/** @param {Packet} packet @param {number} timeoutMs @returns {Promise<Reply>} */
async function once({ method, url, headers, body }, timeoutMs) {
  // No redirect is followed: a token and a key are for the address they were meant for.
  const options = { method, headers, body, redirect: /** @type {const} */ ('manual'), signal: AbortSignal.timeout(timeoutMs) };
  const answer = await fetch(url, /** @type {RequestInit} */ (options));
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const retryAfterMs = retryAfter(answer.headers.get('retry-after'));
  return { status: answer.status, headers: answer.headers, bytes, text: new TextDecoder().decode(bytes), retryAfterMs };
}

/** `Retry-After`, as seconds or as a date. @param {string | null} text */
export function retryAfter(text) {
  if (text === null) return undefined;
  if (/^\s*\d+\s*$/.test(text)) return Number(text) * 1_000;
  const at = /[a-z]/i.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
