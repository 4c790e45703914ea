// Names in camel case on this side, in snake case on the other. Only names that the API defines are
// translated: a request is built field by field, and maps of the caller (environment, headers) are
// passed as they are.

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** An answer with the names of this side. */
export function toCamel(value: Json): unknown {
  if (Array.isArray(value)) return value.map(toCamel);
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value).map(([name, one]) => [camel(name), toCamel(one)]);
  return Object.fromEntries(entries);
}

/** The fields of one object with the names of the other side, without those that are not given. */
export function toSnake(fields: object): { [name: string]: unknown } {
  const given = Object.entries(fields).filter(([, one]) => one !== undefined);
  return Object.fromEntries(given.map(([name, one]) => [snake(name), one]));
}

function camel(name: string): string {
  return name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

export function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
