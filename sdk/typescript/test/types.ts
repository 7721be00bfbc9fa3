// Never run: what a user of the types writes, for `tsc -p sdk/typescript` to look at.

import { Conflict, Fencepost, NotApplied, type Outcome } from '../index.js';

const fencepost = new Fencepost('http://127.0.0.1:7411', 'dev-partner', { deadlineMs: 5_000 });
const effect = fencepost.scope('BOOKING').key({ caseUrn: 'c', waveUrn: 'w', groupId: 1 }).options({ waitMs: 5_000, version: 2n ** 64n });

export async function book(): Promise<Outcome> {
  const { claim, outcome } = await effect.claim();
  if (!claim) return outcome;
  await claim.keep(async () => claim.token + 1);
  try {
    return await effect.again(1).run(async ({ idempotencyKey }) => ({ effectId: idempotencyKey, receipt: { hotel: 'Astoria' } }));
  } catch (error) {
    if (error instanceof Conflict) console.log(error.problem?.diff?.[0]?.path);
    throw new NotApplied('full', { cause: error });
  }
}

// Ids and keys may be numbers; an answer is read as JSON.
void effect.run(() => ({ effectId: 5 }));
void effect.run(() => ({ effectId: 2n ** 70n }));
export const charge: Promise<number> = fencepost.request('POST', '/charges').then((answer) => answer.json().charge);

// @ts-expect-error: an effect returns its id and receipt.
void effect.run(() => 'RSV-1');
// @ts-expect-error: an effect needs its id.
void effect.run(() => ({ receipt: 1 }));
// @ts-expect-error: a claim is made by an effect only.
void new (await import('../index.js')).Claim();
