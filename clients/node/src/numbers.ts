/** Numbers that the application gives, checked in the call that takes them. */

import { invalid } from "./errors.js";

export const MAX_INT64 = 2n ** 63n - 1n;
export const MIN_INT64 = -(2n ** 63n);
const MAX_INT32 = 2 ** 31 - 1;

function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** A bigint, or a number that is exact; returned as a bigint. */
export function int64(field: string, value: unknown, low = 0n): bigint {
  const whole = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!whole) {
    const beyond = typeof value === "number" && Number.isInteger(value);
    const why = beyond ? "a number beyond 2^53, which is not exact" : "not a whole number";
    throw invalid(field, `${field}: ${shown(value)} is ${why}; give a bigint`);
  }
  const exact = BigInt(value as bigint | number);
  if (exact < low || exact > MAX_INT64) {
    throw invalid(field, `${field}: ${exact} is outside ${low} to ${MAX_INT64}`);
  }
  return exact;
}

/** A whole number of 32 bits. */
export function int32(field: string, value: unknown, low = 0): number {
  if (!Number.isInteger(value) || (value as number) < low || (value as number) > MAX_INT32) {
    throw invalid(field, `${field}: ${shown(value)} is not a whole number, ${low} to ${MAX_INT32}`);
  }
  return value as number;
}

/** A time in ms, perhaps without end. */
export function span(field: string, value: unknown): number {
  if (typeof value !== "number" || Number.isNaN(value) || value < 0) {
    throw invalid(field, `${field}: ${shown(value)} is not a time in ms, 0 or more`);
  }
  return value;
}

/** Microseconds since the Unix epoch. */
export function timeOf(field: string, at: unknown): bigint {
  const ms = at instanceof Date ? at.getTime() : Number.NaN;
  if (Number.isNaN(ms)) throw invalid(field, `${field}: ${shown(at)} is not a valid Date`);
  return BigInt(ms) * 1000n;
}
