// One effect to be had once: a scope, a key, and the claim that lets one caller act.

import { sealable, shown } from './done.js';
import { FencedOff, InFlight, NotApplied, Unsealed } from './errors.js';
import { rawMember, written } from './json.js';
import { Tries } from './retry.js';

/**
 * @typedef {import('../index.js').EffectOptions} EffectOptions
 * @typedef {import('../index.js').Done} Done
 * @typedef {import('../index.js').Outcome} Outcome
 * @typedef {{ claim: Claim, outcome?: undefined } | { claim?: undefined, outcome: Outcome }} Claimed
 */

// Unless said otherwise. Short, since it is renewed: it is also how long a lost answer to a claim costs.
const LEASE_MS = 30_000;
const LEASE_MS_MAX = 86_400_000;

const OPTIONS = ['body', 'version', 'source', 'seq', 'tenant', 'leaseMs', 'waitMs'];

/** Made by `Fencepost.scope`. Every step gives a new one, so one may be the start of many. */
export class Effect {
  #client;
  #scope;
  #key;
  #options;

  /** @param {import('./client.js').Fencepost} client @param {string} scope @param {Record<string, string | number | boolean>} key @param {EffectOptions} options */
  constructor(client, scope, key, options) {
    this.#client = client;
    this.#scope = scope;
    this.#key = key;
    this.#options = options;
  }

  /**
   * The key fields; exactly those of the scope. All values count as text.
   * @param {Record<string, string | number | bigint | boolean>} fields
   */
  key(fields) {
    if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) {
      throw new TypeError(`a key is an object of its fields, and not ${shown(fields)}`);
    }
    const told = Object.entries(fields).map(([name, value]) => {
      // A date can be written in several ways, and two ways would be two keys.
      if (!['string', 'number', 'bigint', 'boolean'].includes(typeof value)) {
        const kinds = 'text, an integer, a BigInt or a boolean';
        throw new TypeError(`key field \`${name}\` must be ${kinds}, and is ${shown(value)}; write it as text`);
      }
      exact(name, value);
      return [name, typeof value === 'bigint' ? value.toString() : value];
    });
    return new Effect(this.#client, this.#scope, Object.fromEntries(told), this.#options);
  }

  /** @param {EffectOptions} options */
  options(options) {
    for (const [name, value] of Object.entries(options)) checkOption(name, value);
    return new Effect(this.#client, this.#scope, this.#key, { ...this.#options, ...options });
  }

  /** The JSON the effect is asked with; another one under the same key is a conflict. @param {unknown} body */
  body(body) {
    return this.options({ body });
  }

  /** The `seq`th deliberate repetition of the effect, from 1. @param {number | bigint} seq */
  again(seq) {
    return this.options({ seq });
  }

  /**
   * Asks for the right to act. Safe to repeat, with one cost: where the answer is lost on the way, the next try meets this
   * call's own claim. It then waits, within the deadline, until that lease runs out, and is let in as `recovering`; in a scope
   * that holds lapsed claims, the key is in doubt.
   * @returns {Promise<Claimed>}
   */
  async claim() {
    return this.#claim(this.#options.waitMs ?? 0);
  }

  /** @param {number} patienceMs @returns {Promise<Claimed>} */
  async #claim(patienceMs) {
    const path = this.#options.seq === undefined ? '/v1/fences/claim' : '/v1/fences/again';
    const request = this.#request();
    const tries = new Tries(this.#client.retry);
    const waitUntil = performance.now() + patienceMs;
    for (;;) {
      const begun = performance.now();
      const leftMs = tries.unanswered ? tries.leftMs - 1_000 : waitUntil - begun;
      // Longer waits are several requests.
      const waitMs = Math.floor(Math.max(0, Math.min(leftMs, tries.waitMsMax)));
      try {
        const reply = await this.#client.post(path, written({ ...request, wait_ms: waitMs }), tries);
        return this.#read(reply.text);
      } catch (held) {
        if (!(held instanceof InFlight) || !held.problem) throw held;
        const { problem } = held;
        // The server answers: the deadline is for one that does not, and counts from the end of the wait.
        tries.until = Math.max(tries.until, waitUntil + this.#client.retry.deadlineMs);
        const now = performance.now();
        const over = !tries.unanswered && now >= waitUntil;
        const waited = waitMs > 0 && now - begun >= waitMs;
        // A server that lets nobody wait so long answers sooner, one with too many waiters at once; asking at once again would
        // be a storm. The time at the server counts as a pause, and the last question is when the wait is over.
        const askedMs = Math.max(0, (problem.retryAfterMs ?? 0) - (now - begun));
        const pauseMs = tries.unanswered ? askedMs : Math.min(askedMs, waitUntil - now);
        if (over || (!waited && !(await tries.pause(pauseMs)))) {
          const heldFor = patienceMs > 0 ? `after a wait of ${patienceMs} ms` : 'and this call does not wait';
          const said = `somebody else holds the claim, ${heldFor}; ask again, or set \`waitMs\``;
          throw new InFlight(problem, tries.unanswered, said);
        }
      }
    }
  }

  /**
   * Has the effect once: the first caller runs it, everyone else gets the receipt. Callers wait for the one who runs it for as
   * long as the lease, unless `waitMs` says otherwise. The lease is renewed while it runs. A thrown `NotApplied` frees the key;
   * anything else that is thrown leaves it to its lease. An effect that returns what cannot be sealed is `Unsealed`.
   * @param {(claim: Claim) => Done | Promise<Done>} effect @returns {Promise<Outcome>}
   */
  async run(effect) {
    checkEffect(effect);
    const { claim, outcome } = await this.#claim(this.#options.waitMs ?? this.#leaseMs());
    if (!claim) return outcome;
    let returned;
    try {
      returned = await claim.keep(() => effect(claim));
    } catch (error) {
      // If even the release fails, the lease ends the claim; the caller hears of its own failure.
      if (error instanceof NotApplied) await claim.release().catch(() => {});
      throw error;
    }
    try {
      // An effect that sealed its claim itself may return nothing.
      const done = (returned === undefined && claim.sealed) || sealable(returned);
      await claim.seal(done);
      return outcomeOf(done.effectId, done.receiptJson, false);
    } catch (cause) {
      throw new Unsealed(returned, cause);
    }
  }

  /** The history of the key; undefined where it is unknown. @returns {Promise<Record<string, any> | undefined>} */
  async lookup() {
    const { seq, tenant } = this.#options;
    const query = new URLSearchParams({ scope: this.#scope });
    for (const [name, value] of Object.entries(this.#key)) query.append(name, String(value));
    if (seq !== undefined) query.append('seq', String(seq));
    if (tenant !== undefined) query.append('tenant', tenant);
    const known = JSON.parse((await this.#client.get(`/admin/idempotency/lookup?${query}`)).text);
    return known.exists ? known : undefined;
  }

  /** The claim as a command of a batch. It cannot wait. */
  command() {
    return { op: this.#options.seq === undefined ? 'claim' : 'again', ...this.#request() };
  }

  #target() {
    const { seq, tenant } = this.#options;
    return { scope: this.#scope, key: this.#key, seq, tenant };
  }

  #leaseMs() {
    return Math.max(1, Math.round(this.#options.leaseMs ?? LEASE_MS));
  }

  #request() {
    const { body, version, source } = this.#options;
    return { ...this.#target(), lease_ms: this.#leaseMs(), body, version, source };
  }

  /** @param {string} text @returns {Claimed} */
  #read(text) {
    const answer = JSON.parse(text);
    if (answer.decision === 'new') return { claim: new Claim(this.#client, this.#target(), this.#leaseMs(), answer) };
    return { outcome: outcomeOf(answer.effect_id, rawMember(text, 'receipt') ?? 'null', true) };
  }
}

/** The right to act under a fence, until its lease runs out. */
export class Claim {
  #client;
  #target;
  #leaseMs;

  /** @param {import('./client.js').Fencepost} client @param {object} target @param {number} leaseMs @param {any} answer */
  constructor(client, target, leaseMs, answer) {
    this.#client = client;
    this.#target = target;
    this.#leaseMs = leaseMs;
    /** A stable key for a target that is idempotent itself: the same for every attempt. @type {string} */
    this.idempotencyKey = answer.idempotency_key;
    /** Hand it to targets that can compare, so that an old holder's write is refused there too. @type {number} */
    this.token = answer.token;
    /** @type {number} */
    this.attempt = answer.attempt;
    /**
     * An earlier attempt ran out of its lease, and nobody knows what became of it: ask the target before acting. It may have
     * been this call's own claim, if its answer was lost. @type {boolean}
     */
    this.recovering = answer.recovering;
    /** @type {{ token: number, attempt: number, lease_expired_at: string } | undefined} */
    this.earlier = answer.earlier;
    /** Whether a renewal was refused: somebody else was let in. A long effect asks between its steps. */
    this.lost = false;
    /** The sealed outcome. @type {{ effectId: string, receiptJson: string } | undefined} @internal */
    this.sealed = undefined;
  }

  /** Asks for more time, counted from now. */
  async renew() {
    await this.#renew(this.#client.retry);
  }

  /** @param {import('./retry.js').Retry} retry */
  async #renew(retry) {
    const tries = new Tries(retry);
    try {
      await this.#client.post('/v1/fences/renew', this.#told({ lease_ms: this.#leaseMs }), tries);
    } catch (error) {
      if (error instanceof FencedOff) this.lost = true;
      throw error;
    }
  }

  /** Records the outcome. Safe to repeat: the same seal again is answered as done. @param {Done} done */
  async seal(done) {
    const sealed = sealable(done);
    const { effectId, receiptJson } = sealed;
    // The receipt is put in as it is: written again, it would be other bytes.
    const body = `${this.#told({ effect_id: effectId }).slice(0, -1)},"receipt":${receiptJson}}`;
    await this.#client.post('/v1/fences/seal', body, new Tries(this.#client.retry));
    this.sealed = sealed;
  }

  /** Gives the key back: nothing happened. */
  async release() {
    const tries = new Tries(this.#client.retry);
    try {
      await this.#client.post('/v1/fences/release', this.#told({}), tries);
    } catch (error) {
      // A try without an answer released it, and somebody was let in before the next. It is given up either way.
      if (!(error instanceof FencedOff && tries.unanswered)) throw error;
    }
  }

  /**
   * Runs work while renewing the lease at a third of its length.
   * @template T @param {() => T | Promise<T>} work @returns {Promise<T>}
   */
  async keep(work) {
    const usual = this.#client.retry;
    const thirdMs = Math.max(1, this.#leaseMs / 3);
    // One try that hangs must leave time for another before the lease is over.
    const retry = { ...usual, deadlineMs: this.#leaseMs, attemptTimeoutMs: Math.min(thirdMs, usual.attemptTimeoutMs) };
    let renewing = false;
    const beat = setInterval(async () => {
      if (renewing) return;
      renewing = true;
      // A refused renewal is not an error yet: the seal will say what became of the claim.
      await this.#renew(retry).catch(() => {});
      renewing = false;
    }, thirdMs);
    try {
      return await work();
    } finally {
      clearInterval(beat);
    }
  }

  /** @param {object} more */
  #told(more) {
    return written({ ...this.#target, token: this.token, ...more });
  }
}

/** @param {string} name @param {unknown} value */
function exact(name, value) {
  // A number past these has been rounded already: two effects would share a key, or two versions a place in their order.
  if (typeof value === 'number' && !Number.isSafeInteger(value)) {
    throw new TypeError(`${name} is not a safe integer; give it as a BigInt`);
  }
}

/** @param {string} name @param {any} value */
function checkOption(name, value) {
  if (!OPTIONS.includes(name)) {
    throw new TypeError(`there is no option \`${name}\`; the options are ${OPTIONS.join(', ')}`);
  }
  if (name === 'version' || name === 'seq') exact(name, value);
  if ((name !== 'leaseMs' && name !== 'waitMs') || value === undefined) return;
  if (typeof value !== 'number' || !(value >= 0)) {
    throw new TypeError(`\`${name}\` is a number of milliseconds, and not ${shown(value)}`);
  }
  if (name === 'leaseMs' && value > LEASE_MS_MAX) {
    throw new RangeError(`\`leaseMs\` is at most ${LEASE_MS_MAX}, a day, and not ${value}`);
  }
}

/** Refuses, before anything runs, what cannot be an effect. @param {unknown} effect */
function checkEffect(effect) {
  if (typeof effect !== 'function') {
    throw new TypeError(`${shown(effect)} is not a function; an effect is a function that takes the claim`);
  }
  if (/Generator/.test(Object.prototype.toString.call(effect))) {
    throw new TypeError('a generator cannot be an effect; an effect returns { effectId, receipt }');
  }
}

/** @param {string} effectId @param {string} receiptJson @param {boolean} replayed @returns {Outcome} */
function outcomeOf(effectId, receiptJson, replayed) {
  return { effectId, receiptJson, receipt: JSON.parse(receiptJson), replayed };
}
