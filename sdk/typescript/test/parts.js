// Parts that need no server.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import * as all from '../src/index.js';
import { rawMember, written } from '../src/json.js';
import { USUAL, pauseBefore, retryAfter } from '../src/retry.js';

const { Fencepost, uuid7 } = all;

test('the types name what is exported, and no method that is not there', () => {
  const types = readFileSync(new URL('../index.d.ts', import.meta.url), 'utf8');
  const named = [...types.matchAll(/^export (?:class|function) (\w+)/gm)].map((found) => found[1]);
  assert.deepEqual(named.sort(), Object.keys(all).sort());
  let methods = 0;
  for (const [, name, body] of types.matchAll(/^export class (\w+).*?\{\n(.*?)^\}/gms)) {
    const typed = [...body.matchAll(/^  (\w+)(?:<T>)?\(/gm)].map((found) => found[1]).filter((method) => method !== 'constructor');
    for (const method of typed) assert.equal(typeof all[name].prototype[method], 'function', `${name}.${method}`);
    methods += typed.length;
  }
  assert.ok(methods >= 15, `only ${methods} methods are found`);
});

test('a member keeps its exact text', () => {
  const text = ' { "a" : {"b" : 1.0, "c":"\\u00e9}\\"{", "x":[ ]} , "d":[1, 2],"e":null, "receipt" : -1.50e3 } ';
  assert.equal(rawMember(text, 'a'), '{"b" : 1.0, "c":"\\u00e9}\\"{", "x":[ ]}');
  assert.equal(rawMember(text, 'd'), '[1, 2]');
  assert.equal(rawMember(text, 'e'), 'null');
  assert.equal(rawMember(text, 'receipt'), '-1.50e3');
  assert.equal(rawMember(text, 'b'), undefined);
  assert.equal(rawMember('{}', 'a'), undefined);
});

test('any document gives back the text of each of its members', () => {
  const values = ['0', '-1.5e-7', 'true', 'null', '""', '"\\\\"', '"\\\\\\""', '[]', '{}', '[ [ ] ,{"a":[{}]}]', '{"receipt":1}'];
  for (const one of values) {
    for (const two of values) {
      for (const [before, between] of [['', ''], [' ', '\n'], ['\t', ' \r\n ']]) {
        const text = `${before}{${between}"x"${between}:${between}${one}${between},${between}"receipt"${between}:${before}${two}${between}}`;
        assert.doesNotThrow(() => JSON.parse(text));
        assert.equal(rawMember(text, 'x'), one, text);
        assert.equal(rawMember(text, 'receipt'), two, text);
      }
    }
  }
});

test('an object is written as JSON writes it, and a BigInt digit by digit', () => {
  const members = { 'a"b': 'é\n', none: undefined, call() {}, list: [undefined, { c: null }], at: new Date(0), truth: true };
  assert.equal(written(members), JSON.stringify(members));
  assert.equal(written({}), '{}');
  assert.equal(written({ version: 2n ** 64n, seq: -1n }), '{"version":18446744073709551616,"seq":-1}');
});

test('keys are UUIDs of version 7 that sort by time', () => {
  const before = Date.now();
  const made = Array.from({ length: 1_000 }, uuid7);
  assert.equal(new Set(made).size, 1_000);
  for (const key of made) {
    assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    const at = parseInt(key.replaceAll('-', '').slice(0, 12), 16);
    assert.ok(before <= at && at <= Date.now());
  }
});

test('pauses are random below a ceiling that doubles to its maximum', () => {
  for (const [number, ceilingMs] of [[1, 100], [2, 200], [5, 1_600], [7, 5_000], [4_000_000_000, 5_000]]) {
    const pauses = Array.from({ length: 2_000 }, () => pauseBefore(USUAL, number));
    assert.ok(Math.max(...pauses) <= ceilingMs && Math.max(...pauses) > ceilingMs * 0.9, String(number));
    assert.ok(Math.min(...pauses) < ceilingMs * 0.1);
  }
});

test('Retry-After is seconds or a date', () => {
  assert.equal(retryAfter('3'), 3_000);
  assert.equal(retryAfter('Sun, 06 Nov 1994 08:49:37 GMT'), 0);
  const soon = retryAfter(new Date(Date.now() + 100_000).toUTCString());
  assert.ok(soon > 90_000 && soon <= 100_000);
  for (const text of ['soon', '-1', '', null]) assert.equal(retryAfter(text), undefined, String(text));
});

test('an address that is none is refused at once', () => {
  for (const address of ['127.0.0.1:7411', 'ftp://x', 'http://', 'http://u:p@x']) {
    assert.throws(() => new Fencepost(address, 'token'), TypeError, address);
  }
});
