// Waiting by default, and what becomes of mistakes: the behaviours that every client has, against the real binary.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';

import { Fencepost, InFlight, NotApplied, Refused, Unavailable, Unsealed } from '../src/index.js';
import { HASTY, booking, count, direct, need, never, refused, road, stage } from './stage.js';

async function waiters() {
  const text = await (await fetch(`${need('FENCEPOST_URL')}/metrics`)).text();
  return Number(/^fencepost_waiters (\d+)$/m.exec(text)?.[1] ?? 0);
}

async function untilWaiting(number) {
  const begun = performance.now();
  while ((await waiters()) < number) assert.ok(performance.now() - begun < HASTY.deadlineMs, `fewer than ${number} wait`);
}

test('of many at once without a word about waiting one runs and all get its receipt', async () => {
  const effect = booking(direct());
  let runs = 0;
  const one = () =>
    effect.run(async () => {
      runs += 1;
      await untilWaiting(4);
      return { effectId: 'RSV-20', receipt: [1] };
    });
  const outcomes = await Promise.all([one(), one(), one(), one(), one()]);
  assert.equal(runs, 1);
  assert.deepEqual(new Set(outcomes.map((outcome) => outcome.receiptJson)), new Set(['[1]']));
  assert.equal(outcomes.filter((outcome) => outcome.replayed).length, 4);
});

test('a run that the server cuts short asks again until there is a receipt', async () => {
  const group = randomUUID();
  const { claim: holder } = await booking(direct(), group).claim();
  await stage('faults', 'brief:0');
  const before = await count('requests');
  const outcome = booking(road(), group).run(never);
  while ((await count('requests')) < before + 2);
  await holder.seal({ effectId: 'RSV-21' });
  assert.equal((await outcome).replayed, true);
});

test('a run waits for its lease unless told otherwise and says how to wait longer', async () => {
  const group = randomUUID();
  await booking(direct(), group).claim();
  const waiting = booking(direct(), group).options({ leaseMs: 1_000 });
  for (const [effect, leastMs] of [[waiting, 990], [waiting.options({ waitMs: 0 }), 0], [waiting.options({ waitMs: 500 }), 490]]) {
    const begun = performance.now();
    const held = await refused(effect.run(never), InFlight);
    const tookMs = performance.now() - begun;
    assert.ok(tookMs >= leastMs && tookMs < leastMs + 3_000, `${tookMs}`);
    assert.match(held.message, /waitMs/);
    assert.doesNotMatch(held.message, /wait_ms/);
  }
  assert.match((await refused(waiting.claim(), InFlight)).message, /does not wait/);
});

test('a wait does not lengthen the deadline of a server that does not answer', async () => {
  const nobody = new Fencepost('http://127.0.0.1:1', 'dev-partner', { ...HASTY, deadlineMs: 300 });
  const begun = performance.now();
  await refused(booking(nobody).run(never), Unavailable);
  assert.ok(performance.now() - begun < 5_000);
});

test('ids and keys that are numbers or uuids count as their text', async () => {
  for (const value of [5, 2n ** 70n, randomUUID()]) {
    const group = randomUUID();
    const key = { caseUrn: value, waveUrn: 7, groupId: group };
    const first = await direct().scope('BOOKING').key(key).run(() => ({ effectId: value }));
    const asText = direct().scope('BOOKING').key({ caseUrn: String(value), waveUrn: '7', groupId: group });
    const second = await asText.run(never);
    assert.deepEqual([first.effectId, second.effectId, second.replayed], [String(value), String(value), true]);
    assert.ok(await direct().scope('BOOKING').key(key).lookup());
  }
});

test('a receipt keeps dates and uuids as text', async () => {
  const [at, id] = [new Date(Date.UTC(2026, 10, 18, 5, 6, 7)), randomUUID()];
  const effect = booking(direct()).body({ at });
  await effect.run(() => ({ effectId: 'RSV-25', receipt: { at, id } }));
  assert.deepEqual((await effect.run(never)).receipt, { at: '2026-11-18T05:06:07.000Z', id });
});

test('an outcome that cannot be sealed is shown and kept for the caller', async () => {
  const returned = [
    [undefined, /the effect returned undefined: an effect returns \{ effectId, receipt \}/],
    [null, /the effect returned null: an/],
    ['RSV-1', /the effect returned "RSV-1": an/],
    [{ id: 'RSV-1' }, /the effect returned \{"id":"RSV-1"\}: an/],
    [5, /the effect returned 5: an/],
    [{ effectId: undefined }, /the effect id must be text.* is undefined/],
    [{ effectId: 1.5 }, /the effect id must be text.* is 1\.5/],
    [{ effectId: { a: 1 } }, /the effect id must be text.* is \{"a":1\}/],
    [{ effectId: 'RSV-1', receipt: { big: 1n } }, /RSV-1 was done and is not recorded: the receipt \{"big":"1n"\} is not JSON/],
    [{ effectId: 'RSV-1', receipt: never }, /RSV-1 was done and is not recorded: the receipt .* is not JSON/s],
    [{ effectId: 'RSV-1', receiptJson: '{},"token":1' }, /RSV-1 was done and is not recorded: the receipt .* is not JSON/s],
    [{ effectId: 'RSV-1', receiptJson: {} }, /RSV-1 was done and is not recorded: the receipt \{\} is not JSON/],
  ];
  for (const [value, said] of returned) {
    const effect = booking(direct());
    const unsealed = await refused(effect.run(async () => value), Unsealed);
    assert.equal(unsealed.done, value);
    assert.match(unsealed.message, said);
    // It was done: nobody else is let in before the lease is over.
    await refused(effect.claim(), InFlight);
  }
  const { claim } = await booking(direct()).claim();
  await refused(claim.seal('RSV-1'), TypeError);
});

test('an effect id that is empty or too long is refused in the clients own words', async () => {
  for (const effectId of ['', 'x'.repeat(1025), '\u20ac'.repeat(342), 10n ** 1024n]) {
    const done = { effectId };
    const unsealed = await refused(booking(direct()).run(() => done), Unsealed);
    const bytes = new TextEncoder().encode(String(effectId)).length;
    const why = `the effect id must have 1 to 1024 bytes, and has ${bytes}`;
    assert.match(unsealed.message, new RegExp(`not recorded: ${why}$`));
    assert.ok(unsealed.message.length < 600, unsealed.message);
    assert.equal(unsealed.done, done);
  }
  // The longest that there may be.
  await booking(direct()).run(() => ({ effectId: 'x'.repeat(1024) }));
});

test('a lease over the maximum of its scope is refused in the clients own words', async () => {
  const brief = direct().scope('BRIEF').key({ id: randomUUID() });
  const long = await refused(brief.options({ leaseMs: 3_000 }).claim(), Refused);
  assert.match(long.message, /the scope takes leases of at most 2000 ms; set `leaseMs`/);
  assert.doesNotMatch(long.message, /lease_ms/);
  assert.ok((await brief.options({ leaseMs: 2_000 }).claim()).claim);
});

test('an effect that seals its claim itself has that outcome', async () => {
  for (const returns of [(done) => done, () => undefined]) {
    const book = async (claim) => {
      const done = { effectId: 'RSV-29', receipt: [1] };
      await claim.seal(done);
      return returns(done);
    };
    const effect = booking(direct());
    assert.deepEqual(await effect.run(book), { effectId: 'RSV-29', receipt: [1], receiptJson: '[1]', replayed: false });
    assert.equal((await effect.run(never)).effectId, 'RSV-29');
  }
});

test('a mistake that can be known before the effect is refused without a claim', async () => {
  const effect = booking(direct());
  const wrong = [undefined, 'book', {}, function* () {}, async function* () {}];
  for (const mistake of wrong) await refused(effect.run(mistake), TypeError);
  assert.equal(await effect.lookup(), undefined);
  for (const value of [undefined, null, new Date(), {}, ['a'], 1.5]) {
    assert.throws(() => effect.key({ groupId: value }), /groupId/);
  }
  for (const fields of [undefined, null, 'G-1', [['groupId', 1]]]) assert.throws(() => effect.key(fields), /a key is an object/);
  assert.throws(() => effect.options({ wait_s: 5 }), /no option `wait_s`.*waitMs/);
  for (const option of [{ waitMs: '5' }, { waitMs: NaN }, { leaseMs: null }, { leaseMs: -1 }]) {
    assert.throws(() => effect.options(option), /a number of milliseconds/);
  }
  assert.throws(() => effect.options({ leaseMs: 100_000_000 }), /`leaseMs` is at most 86400000/);
});

test('a not applied effect frees the key for those who wait', async () => {
  const effect = booking(direct());
  let other;
  const full = async () => {
    other = effect.run(() => ({ effectId: 'RSV-26' }));
    await untilWaiting(1);
    throw new NotApplied('full');
  };
  await refused(effect.run(full), NotApplied);
  assert.deepEqual(await other, { effectId: 'RSV-26', receipt: null, receiptJson: 'null', replayed: false });
});
