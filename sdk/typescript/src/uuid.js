// UUID v7 (RFC 9562): keys that sort by time.

/** @type {{ getRandomValues(bytes: Uint8Array): Uint8Array }} */
// @ts-ignore: one name of Node is not worth its types; it is asked for on Node 18 only.
const chance = globalThis.crypto ?? (await import('node:crypto')).webcrypto;

/** @returns {string} */
export function uuid7() {
  const bytes = chance.getRandomValues(new Uint8Array(16));
  const view = new DataView(bytes.buffer);
  const now = Date.now();
  view.setUint32(0, Math.floor(now / 2 ** 16));
  view.setUint16(4, now % 2 ** 16);
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
