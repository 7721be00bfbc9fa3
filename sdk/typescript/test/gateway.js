// An API behind the gateway: one request is one call.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import { Conflict, InFlight } from '../src/index.js';
import { client, count, direct, road, stage } from './stage.js';

test('one request is one call however often it is sent', async () => {
  const [requests, calls] = [await count('requests'), await count('calls')];
  // Two tries meet a busy server, the third is carried out and its answer lost, the fourth gets that answer.
  await stage('faults', '503:0,429:0,lose');
  const first = await road().request('POST', '/charges', { json: { amount: 5 } });
  assert.deepEqual([first.status, first.replayed, first.text], [201, true, `{"charge": ${calls + 1}, "asked": 12}`]);
  assert.deepEqual(first.json(), { charge: calls + 1, asked: 12 });
  assert.deepEqual([(await count('requests')) - requests, (await count('calls')) - calls], [4, 1]);
  assert.match(first.idempotencyKey, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const second = await road().request('POST', '/charges', { json: { amount: 5 } });
  assert.notEqual(second.idempotencyKey, first.idempotencyKey);
  assert.deepEqual([second.status, second.replayed, (await count('calls')) - calls], [201, false, 2]);
});

test("a key among the headers is the caller's own, and an empty one is refused", async () => {
  const [key, calls] = [randomUUID(), await count('calls')];
  for (const replayed of [false, true]) {
    const answer = await direct().request('POST', '/charges', { json: { amount: 5 }, headers: { 'Idempotency-Key': key } });
    assert.deepEqual([answer.replayed, answer.idempotencyKey], [replayed, key]);
  }
  assert.equal((await count('calls')) - calls, 1);
  for (const wrong of [{ idempotencyKey: '' }, { idempotencyKey: 'a', headers: { 'idempotency-key': 'b' } }]) {
    await assert.rejects(direct().request('POST', '/charges', wrong), TypeError);
  }
  assert.throws(() => direct().scope('BOOKING').key({ caseUrn: 2 ** 53 }), TypeError);
});

test("another body under the caller's own key is a conflict", async () => {
  const idempotencyKey = randomUUID();
  const charge = (amount) => direct().request('POST', '/charges', { json: { amount }, idempotencyKey });
  const [first, second] = [await charge(5), await charge(5)];
  assert.deepEqual([first.replayed, second.replayed, first.text], [false, true, second.text]);
  await assert.rejects(charge(6), (error) => {
    assert.ok(error instanceof Conflict);
    assert.deepEqual(error.problem.diff, [{ op: 'replace', path: '/amount', value: 6 }]);
    return true;
  });
});

test('of two at once both get the one answer', async () => {
  const [idempotencyKey, calls] = [randomUUID(), await count('calls')];
  const charge = (fencepost) => fencepost.request('POST', '/charges', { json: 'hold', idempotencyKey });
  const first = charge(direct());
  while ((await count('calls')) === calls);
  // A client without time to wait hears that the request is in flight; after a 503, that it may be its own.
  await stage('faults', '503:0');
  await assert.rejects(charge(client('FENCEPOST_ROAD', { deadlineMs: 1_000 })), (error) => {
    assert.ok(error instanceof InFlight && error.perhapsOwn);
    assert.match(error.message, /deadlineMs/);
    assert.doesNotMatch(error.message, /wait_ms/);
    return true;
  });
  const second = charge(direct());
  await stage('let-go');
  const answers = await Promise.all([first, second]);
  assert.equal(answers[0].text, answers[1].text);
  assert.equal(answers.filter((answer) => answer.replayed).length, 1);
  assert.equal((await count('calls')) - calls, 1);
});
