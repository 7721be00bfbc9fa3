// The server under test, and the road to it on which answers get lost. Both are started by the test of the command line:
// `cargo nextest run -p fencepost-cli sdk`.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { Fencepost } from '../src/index.js';

export const HASTY = { pauseMs: 20, deadlineMs: 20_000 };

export function need(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these with cargo nextest run -p fencepost-cli sdk`);
  return value;
}

export async function stage(path, body = '') {
  const method = ['faults', 'crash', 'let-go'].includes(path) ? 'POST' : 'GET';
  const answer = await fetch(`${need('FENCEPOST_ROAD')}/_stage/${path}`, { method, body: body || undefined });
  return answer.text();
}

export async function count(path) {
  return Number(await stage(path));
}

export function client(where, { token = 'dev-partner', ...retry } = {}) {
  return new Fencepost(need(where), token, { ...HASTY, ...retry });
}

export const direct = () => client('FENCEPOST_URL');
export const road = () => client('FENCEPOST_ROAD');

export function booking(fencepost, groupId = randomUUID()) {
  return fencepost.scope('BOOKING').key({ caseUrn: 'urn:case:7', waveUrn: 'urn:wave:1', groupId });
}

export function never() {
  throw new Error('it ran twice');
}

/** The error of a promise, which must be of this kind. */
export async function refused(promise, kind) {
  const error = await promise.then(
    () => assert.fail(`no ${kind.name}`),
    (error) => error,
  );
  assert.ok(error instanceof kind, String(error?.stack ?? error));
  return error;
}
