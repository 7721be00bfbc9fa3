// The behaviours that every client has, against the real binary.

import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import { test } from 'node:test';

import { Conflict, FencedOff, Fencepost, InFlight, NotApplied, Refused, SequenceGap, Stale, Unavailable, Unsealed } from '../src/index.js';
import { HASTY, booking, client, count, direct, never, refused, road, stage } from './stage.js';

/** A port where nobody listens. */
async function closedPort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

test('the first runs and the second gets its receipt byte for byte', async () => {
  const effect = booking(direct(), 'JS "é"\n&=').body({ nights: 2 });
  const receiptJson = '{"b" : 1.0, "a":"\\u00e9}", "big":123456789012345678901}';
  const first = await effect.run((claim) => {
    assert.deepEqual([claim.attempt, claim.recovering, claim.idempotencyKey.length], [1, false, 64]);
    return { effectId: 'RSV-1', receiptJson };
  });
  assert.deepEqual([first.replayed, first.receiptJson], [false, receiptJson]);
  const second = await effect.run(never);
  assert.deepEqual([second.effectId, second.replayed, second.receiptJson], ['RSV-1', true, receiptJson]);
  assert.equal(second.receipt.a, 'é}');
  const known = await effect.lookup();
  assert.deepEqual([known.state, known.resultUrn], ['sealed', 'RSV-1']);
  assert.equal(await booking(direct()).lookup(), undefined);
});

test('of two at once one runs and the other waits for its receipt', async () => {
  const effect = booking(direct()).options({ waitMs: 15_000 });
  let runs = 0;
  const one = () =>
    effect.run(async () => {
      runs += 1;
      // Long enough for the other one to be there, and to be told that somebody is acting.
      await refused(effect.options({ waitMs: 200 }).claim(), InFlight);
      return { effectId: 'RSV-2', receipt: [1] };
    });
  const outcomes = await Promise.all([one(), one()]);
  assert.equal(runs, 1);
  assert.deepEqual(outcomes.map((outcome) => outcome.receiptJson), ['[1]', '[1]']);
  assert.equal(outcomes.filter((outcome) => outcome.replayed).length, 1);
});

test('another body is a conflict with its diff', async () => {
  const effect = booking(direct());
  await effect.body({ nights: 2 }).run(() => ({ effectId: 'RSV-3' }));
  const { problem } = await refused(effect.body({ nights: 3 }).claim(), Conflict);
  assert.deepEqual(problem.diff, [{ op: 'replace', path: '/nights', value: 3 }]);
  assert.deepEqual([problem.status, problem.code, problem.traceId.length], [409, 'conflict', 32]);
});

test('a failure that changed nothing frees the key and any other keeps it', async () => {
  const effect = booking(direct());
  const full = () => {
    throw new NotApplied('full');
  };
  assert.equal((await refused(effect.run(full), NotApplied)).message, 'full');
  const reset = async (claim) => {
    assert.deepEqual([claim.attempt, claim.recovering], [2, false]);
    throw new RangeError('reset');
  };
  await refused(effect.run(reset), RangeError);
  assert.equal((await refused(effect.claim(), InFlight)).perhapsOwn, false);
  // Waits at the server, as long as was said and no longer.
  const begun = performance.now();
  await refused(effect.options({ waitMs: 1_000 }).claim(), InFlight);
  assert.ok(performance.now() - begun >= 990 && performance.now() - begun < 4_000);
});

test('a wait that the server cuts short goes on and ends in time', async () => {
  const { claim: holder } = await booking(direct(), 'js-brief').options({ leaseMs: 4_000 }).claim();
  const waiting = (waitMs) => booking(road(), 'js-brief').options({ waitMs }).claim();
  // Not held at all, and told to come back in 4 s: there is one more question, when the wait is over.
  await stage('faults', 'brief:0,brief:0,brief:0,brief:0,brief:0');
  let [before, begun] = [await count('requests'), performance.now()];
  await refused(waiting(1_000), InFlight);
  assert.ok(performance.now() - begun >= 990 && performance.now() - begun < 3_000);
  assert.ok((await count('requests')) - before <= 3);
  // Held for as long as the time in which it is told to come back: it comes back at once.
  await holder.renew();
  await stage('faults', 'brief:2000');
  [before, begun] = [await count('requests'), performance.now()];
  const claimed = waiting(15_000);
  while ((await count('requests')) < before + 2);
  await holder.seal({ effectId: 'RSV-4b' });
  assert.ok((await claimed).outcome);
  assert.ok(performance.now() - begun < 4_000);
});

test('an effect that is slower than its lease keeps its claim', async () => {
  const effect = booking(direct()).options({ leaseMs: 600 });
  const outcome = await effect.run(async (claim) => {
    const begun = performance.now();
    while (performance.now() - begun < 1_800) await refused(effect.claim(), InFlight);
    assert.equal(claim.lost, false);
    return { effectId: 'RSV-5' };
  });
  assert.equal(outcome.replayed, false);
});

test('a holder silent for too long is fenced off', async () => {
  const effect = booking(direct()).options({ leaseMs: 1 });
  const { claim: zombie } = await effect.claim();
  const { claim: next } = await effect.options({ leaseMs: 30_000, waitMs: 10_000 }).claim();
  assert.deepEqual([next.attempt, next.recovering, next.earlier.token], [2, true, zombie.token]);
  await refused(zombie.renew(), FencedOff);
  assert.equal(zombie.lost, true);
  await refused(zombie.release(), FencedOff);
  await refused(zombie.seal({ effectId: 'late' }), FencedOff);
  await next.renew();
  await next.seal({ effectId: 'RSV-6' });
  const late = booking(direct()).run(async (claim) => {
    await claim.release();
    return { effectId: 'RSV-6b' };
  });
  const unsealed = await refused(late, Unsealed);
  assert.equal(unsealed.done.effectId, 'RSV-6b');
  assert.ok(unsealed.cause instanceof FencedOff);
});

test('deliberate repetitions have their own sequence', async () => {
  const effect = booking(direct());
  await effect.run(() => ({ effectId: 'RSV-7' }));
  const gap = await refused(effect.again(2).claim(), SequenceGap);
  assert.equal(gap.problem.members.last, 0);
  assert.equal((await effect.again(1).run(() => ({ effectId: 'RSV-7b' }))).replayed, false);
  assert.equal((await effect.again(1).run(never)).effectId, 'RSV-7b');
  assert.equal((await effect.run(never)).effectId, 'RSV-7');
  assert.ok(await effect.again(1).lookup());
});

test('a version beyond what a number holds keeps every digit', async () => {
  const source = { type: 'doc', id: 'js-versions' };
  const build = (version) => direct().scope('INDEX_BUILD').key({ index_hash: `js-${version}` }).options({ version, source });
  await build(2n ** 53n + 1n).run(() => ({ effectId: 'IDX-1' }));
  await refused(build(2n ** 53n).claim(), Stale);
  const commands = [build(2n ** 53n), build(2n ** 53n + 2n)].map((effect) => effect.command());
  assert.deepEqual((await direct().batch(commands)).map((result) => result.status), [409, 201]);
  assert.throws(() => build(2 ** 53), TypeError);
  assert.throws(() => build(1).again(2 ** 53), TypeError);
});

test('a run outlives the server it began on', async () => {
  const effect = booking(road());
  const outcome = await effect.run(async () => {
    await stage('crash');
    return { effectId: 'RSV-8', receipt: { hotel: 'Astoria' } };
  });
  assert.equal(outcome.replayed, false);
  await stage('crash');
  assert.deepEqual((await effect.run(never)).receipt, { hotel: 'Astoria' });
});

test('a server that is busy is asked again when it said', async () => {
  const before = await count('requests');
  await stage('faults', '503:1,429:0,408:0,504:0');
  const begun = performance.now();
  const { claim } = await booking(road()).claim();
  assert.ok(performance.now() - begun >= 1_000);
  assert.deepEqual([(await count('requests')) - before, claim.attempt], [5, 1]);
  await stage('faults', '503:3600');
  const busy = await refused(claim.seal({ effectId: 'RSV-9' }), Unavailable);
  assert.deepEqual([busy.attempts, busy.unanswered], [1, true]);
  assert.deepEqual([busy.problem.status, busy.problem.retryAfterMs], [503, 3_600_000]);
});

test('a refused request is not repeated', async () => {
  const stranger = client('FENCEPOST_ROAD', { token: 'nobody' });
  for (const effect of [booking(stranger), road().scope('BOOKING').key({ groupId: 'G' })]) {
    const before = await count('requests');
    await refused(effect.claim(), Refused);
    assert.equal(await count('requests'), before + 1);
  }
  const nobody = new Fencepost(`http://127.0.0.1:${await closedPort()}`, 'dev-partner', { ...HASTY, deadlineMs: 300 });
  const gone = await refused(booking(nobody).claim(), Unavailable);
  assert.ok(gone.attempts > 1 && !gone.unanswered, gone.message);
});

test('answers that are lost cost time and nothing else', async () => {
  const effect = booking(road(), 'js-lost-answers').options({ leaseMs: 500 });
  await stage('faults', 'lose');
  const { claim } = await effect.claim();
  // The lost answer had let this very caller in. The client cannot know that: it reports an earlier attempt.
  assert.deepEqual([claim.attempt, claim.recovering], [2, true]);
  await stage('faults', 'lose');
  await claim.renew();
  // Lost, and somebody else is let in before it is asked again: it was given up all the same.
  await stage('faults', 'lose,503:1');
  const straight = booking(direct(), 'js-lost-answers').options({ waitMs: 10_000 });
  const [{ claim: last }] = await Promise.all([straight.claim(), claim.release()]);
  await last.seal({ effectId: 'RSV-11' });
  assert.equal((await effect.run(never)).effectId, 'RSV-11');
  const { claim: sealed } = await booking(road()).claim();
  await stage('faults', 'lose');
  await sealed.seal({ effectId: 'RSV-11a' });
  await stage('faults', 'lose');
  const held = await refused(booking(client('FENCEPOST_ROAD', { deadlineMs: 2_000 })).claim(), InFlight);
  assert.equal(held.perhapsOwn, true);
});

test('a batch is asked in its order', async () => {
  const fencepost = direct();
  const results = await fencepost.batch([booking(fencepost).command(), booking(fencepost).command(), { op: 'dance' }]);
  assert.deepEqual(results.map((result) => result.status), [201, 201, 400]);
  assert.ok(results[0].body.token > 0);
});
