// Classes of characters, and lower case, as a page holds them.

// A regular expression for one character of a class that is given as ends of runs.
export function classOf(ranges) {
  const hex = (code) => `\\u{${code.toString(16)}}`;
  let inside = "";
  for (let i = 0; i < ranges.length; i += 2) inside += ranges[i] === ranges[i + 1] ? hex(ranges[i]) : `${hex(ranges[i])}-${hex(ranges[i + 1])}`;
  return inside;
}

// From the characters that have a lower case, and these, with U+0000 between them.
export function lowerCases([from, to]) {
  const made = to.split("\0");
  return new Map([...from].map((one, i) => [one, made[i]]));
}

export function lowered(text, cases) {
  let found = "";
  for (const one of text) found += cases.get(one) ?? one;
  return found;
}
