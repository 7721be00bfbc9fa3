// Checks an effect's return value before it is sealed. The effect has happened by then: `Unsealed` keeps a refused value.

const SHOWN_LETTERS_MAX = 200;
// The server's own bound.
const EFFECT_ID_BYTES_MAX = 1024;

/**
 * An effect's return value, as it is sealed: the id as text, the receipt as JSON text.
 * @param {any} returned @returns {{ effectId: string, receiptJson: string }}
 */
export function sealable(returned) {
  const asked = 'an effect returns { effectId, receipt }';
  if (typeof returned !== 'object' || returned === null || !('effectId' in returned)) {
    throw new TypeError(`the effect returned ${shown(returned)}: ${asked}`);
  }
  const { effectId } = returned;
  if (typeof effectId !== 'string' && typeof effectId !== 'bigint' && !Number.isSafeInteger(effectId)) {
    throw new TypeError(`the effect id must be text, a safe integer or a BigInt, and is ${shown(effectId)}: ${asked}`);
  }
  const text = String(effectId);
  const bytes = new TextEncoder().encode(text).length;
  if (bytes < 1 || bytes > EFFECT_ID_BYTES_MAX) {
    throw new TypeError(`the effect id must have 1 to ${EFFECT_ID_BYTES_MAX} bytes, and has ${bytes}`);
  }
  return { effectId: text, receiptJson: receiptText(returned) };
}

/** @param {{ receipt?: unknown, receiptJson?: unknown }} done @returns {string} */
function receiptText({ receipt, receiptJson }) {
  const given = receiptJson === undefined ? receipt : receiptJson;
  try {
    const text = receiptJson === undefined ? JSON.stringify(receipt ?? null) : receiptJson;
    if (typeof text !== 'string') throw new TypeError(`it is a ${typeof given}`);
    // Text that is spliced into a document must not be able to end it.
    JSON.parse(text);
    return text;
  } catch (error) {
    throw new TypeError(`the receipt ${shown(given)} is not JSON: ${/** @type {Error} */ (error).message}`, { cause: error });
  }
}

/** A value for a message, cut to a length that can be read. @param {unknown} value @returns {string} */
export function shown(value) {
  let text;
  try {
    const digits = (/** @type {string} */ _, /** @type {unknown} */ inner) => (typeof inner === 'bigint' ? `${inner}n` : inner);
    text = typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value, digits) ?? String(value));
    // JSON would say null of NaN.
    if (typeof value === 'number') text = String(value);
  } catch {
    text = Object.prototype.toString.call(value);
  }
  return text.length <= SHOWN_LETTERS_MAX ? text : `${text.slice(0, SHOWN_LETTERS_MAX)}…`;
}
