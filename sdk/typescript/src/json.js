// The little JSON that JSON itself does not give: the exact text of a member, written and read. Duplicates get the first
// one's bytes, and the server every digit.

/**
 * An object as JSON, with the digits of each BigInt among its members as they are.
 * @param {object} members
 */
export function written(members) {
  const texts = [];
  for (const [name, value] of Object.entries(members)) {
    const text = typeof value === 'bigint' ? String(value) : JSON.stringify(value);
    if (text !== undefined) texts.push(`${JSON.stringify(name)}:${text}`);
  }
  return `{${texts.join(',')}}`;
}

/**
 * The text of a top-level member of a JSON object that is known to be well-formed.
 * @param {string} text @param {string} name @returns {string | undefined}
 */
export function rawMember(text, name) {
  let at = skip(text, skip(text, 0) + 1);
  while (text[at] !== '}') {
    if (text[at] === ',') at = skip(text, at + 1);
    const nameEnd = end(text, at);
    const begin = skip(text, skip(text, nameEnd) + 1);
    const valueEnd = end(text, begin);
    if (JSON.parse(text.slice(at, nameEnd)) === name) return text.slice(begin, valueEnd);
    at = skip(text, valueEnd);
  }
  return undefined;
}

/** @param {string} text @param {number} at */
function skip(text, at) {
  while (' \t\r\n'.includes(text[at])) at += 1;
  return at;
}

/** Where the value that begins here ends. @param {string} text @param {number} at */
function end(text, at) {
  let depth = 0;
  for (;;) {
    const letter = text[at];
    if (letter === '"') {
      for (at += 1; text[at] !== '"'; at += 1) if (text[at] === '\\') at += 1;
    } else if (letter === '{' || letter === '[') {
      depth += 1;
    } else if (letter === '}' || letter === ']') {
      depth -= 1;
    } else {
      while (at + 1 < text.length && !'",:{}[] \t\r\n'.includes(text[at + 1])) at += 1;
    }
    at += 1;
    if (depth === 0) return at;
    while (',: \t\r\n'.includes(text[at])) at += 1;
  }
}
