/** Lines of JSON, and their content. */

// Commands stay as they are: their fields are looked at one by one.
// biome-ignore lint/suspicious/noExplicitAny: JSON
export type Json = any;

/** An error that is none of the client's. */
export class Fault extends Error {
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

// --- JSON with 64 bits ---------------------------------------------------------------

const MARK = "\u0001";

/** Reads whole numbers of more than 15 digits as bigint. */
export function parse(line: string): Json {
  const marked = line.replace(/"(?:\\.|[^"\\])*"|-?\d{16,}/g, (found) =>
    found.startsWith('"') ? found : `"\\u0001${found}"`,
  );
  return JSON.parse(marked, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(1)) : value,
  );
}

export function stringify(value: Json): string {
  const text = JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `${MARK}${one}` : one));
  return text.replace(/"\\u0001(-?\d+)"/g, "$1");
}

export function given(value: Json): boolean {
  return value !== undefined && value !== null;
}

export function big(value: Json): bigint {
  return BigInt(value);
}

export const camel = (name: string) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());
export const snake = (name: string) =>
  name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** With the names of DRIVER.md, all the way down. */
export function table(found: Json): Json {
  if (Array.isArray(found)) return found.map(table);
  if (typeof found !== "object" || found === null) return found;
  return Object.fromEntries(Object.entries(found).map(([k, v]) => [snake(k), table(v)]));
}
