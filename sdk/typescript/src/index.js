// Fencepost over HTTP, from JavaScript and TypeScript: effects that happen once, and retries that are safe.
// Never runs an effect without a claim, and never sends a retry under another key or token than the first try.

export { Fencepost } from './client.js';
export { Claim, Effect } from './effect.js';
export { Conflict, FencedOff, FencepostError, InDoubt, InFlight, NotApplied, Refused, SequenceGap, Stale, Unavailable, Unsealed } from './errors.js';
export { uuid7 } from './uuid.js';
