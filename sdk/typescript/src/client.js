// A server and a credential: effects, batches, and requests to APIs behind the gateway.

import { Effect } from './effect.js';
import { Unavailable, errorOf, problemOf } from './errors.js';
import { written } from './json.js';
import { Tries, USUAL } from './retry.js';
import { uuid7 } from './uuid.js';

/** A client. */
export class Fencepost {
  #base;
  #token;

  /** @param {string} url @param {string} token @param {import('../index.js').Retry} [retry] */
  constructor(url, token, retry = {}) {
    const parsed = new URL(url);
    if (!['http:', 'https:'].includes(parsed.protocol) || parsed.search || parsed.username) {
      throw new TypeError(`${url} is not an http or https address`);
    }
    this.#base = parsed.href.replace(/\/+$/, '');
    this.#token = token;
    /** @type {Required<import('../index.js').Retry>} */
    this.retry = { ...USUAL, ...retry };
  }

  /** An effect of this scope. @param {string} name */
  scope(name) {
    return new Effect(this, name, {}, {});
  }

  /**
   * Asks several commands in one commit, in their order; each has its own status and body. A batch whose answer is lost is
   * asked again whole: its claims then meet themselves and are in flight until their lease runs out.
   * @param {Iterable<object>} commands @returns {Promise<import('../index.js').Batched[]>}
   */
  async batch(commands) {
    const body = `{"commands":[${Array.from(commands, written).join(',')}]}`;
    const reply = await this.post('/v1/fences/batch', body, new Tries(this.retry));
    return JSON.parse(reply.text).results;
  }

  /**
   * A request to an API behind the gateway: sent again with the same key while that may help. What Fencepost itself refuses
   * is thrown; every other answer is the API's.
   * @param {string} method @param {string} path @param {import('../index.js').RequestOptions} [options]
   * @returns {Promise<import('../index.js').Answer>}
   */
  async request(method, path, { json, body, headers, idempotencyKey: asked } = {}) {
    // A key among the headers is the caller's own, and no less meant.
    const own = new Headers(headers).get('idempotency-key');
    const idempotencyKey = asked ?? own ?? uuid7();
    if (!idempotencyKey || (own !== null && own !== idempotencyKey)) {
      throw new TypeError('an idempotency key is one value that is not empty');
    }
    const packet = this.#packet(method, path, json === undefined ? body : JSON.stringify(json));
    if (json !== undefined) packet.headers.set('content-type', 'application/json');
    const tries = new Tries(this.retry);
    // A duplicate of a request under way is answered as soon as the first one is.
    packet.headers.set('prefer', `wait=${Math.floor(tries.waitMsMax / 1_000)}`);
    for (const [name, value] of new Headers(headers)) packet.headers.set(name, value);
    packet.headers.set('idempotency-key', idempotencyKey);
    for (;;) {
      const { reply, gaveUp } = await tries.send(packet);
      if (gaveUp) {
        if (gaveUp.last) return answer(gaveUp.last, idempotencyKey, tries);
        throw new Unavailable(gaveUp.why, tries.made, tries.unanswered);
      }
      const waits = problemOf(reply).code === 'in-flight';
      if (!waits || !(await tries.pause(reply.retryAfterMs ?? 0))) return answer(reply, idempotencyKey, tries);
    }
  }

  /**
   * Posts a document until there is an answer that stands. A refusal is thrown. For the rest of this package.
   * @param {string} path @param {string} body @param {Tries} tries @internal
   */
  async post(path, body, tries) {
    const packet = this.#packet('POST', path, body);
    packet.headers.set('content-type', 'application/json');
    return settle(packet, tries);
  }

  /** Reads a document. For the rest of this package. @param {string} path @internal */
  async get(path) {
    return settle(this.#packet('GET', path, undefined), new Tries(this.retry));
  }

  /** @param {string} method @param {string} path @param {string | Uint8Array | undefined} body @returns {import('./retry.js').Packet} */
  #packet(method, path, body) {
    // Without it the path could name another host, and the token would go there.
    if (!path.startsWith('/')) throw new TypeError(`${JSON.stringify(path)} does not begin with /`);
    const url = new URL(this.#base + path).href;
    return { method, url, headers: new Headers({ authorization: `Bearer ${this.#token}` }), body };
  }
}

/** @param {import('./retry.js').Packet} packet @param {Tries} tries */
async function settle(packet, tries) {
  const { reply, gaveUp } = await tries.send(packet);
  if (gaveUp) {
    throw new Unavailable(gaveUp.why, tries.made, tries.unanswered, gaveUp.last && problemOf(gaveUp.last));
  }
  if (reply.status >= 300) throw errorOf(problemOf(reply));
  return reply;
}

/** @param {import('./retry.js').Reply} reply @param {string} idempotencyKey @param {Tries} tries */
function answer(reply, idempotencyKey, tries) {
  const problem = problemOf(reply);
  if (problem.code) throw errorOf(problem, tries.unanswered);
  const { status, headers, text, bytes } = reply;
  const replayed = headers.get('idempotency-replayed') === 'true';
  return { status, headers, text, bytes, replayed, idempotencyKey, json: () => JSON.parse(text) };
}
