/** Values of state as text, and texts of a reader as keys and values. */

import type { JsonValue } from "../../../types";

/** The text of a value in a table: a text stands without quotation marks. */
export function shownValue(value: JsonValue): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Keys as the server wants them, a JSON list: one key may stand alone, and a word that is no JSON is a text. */
export function keysInText(text: string): string | undefined {
  const trimmed = text.trim();
  if (trimmed === "") {
    return undefined;
  }
  // The text goes as it is, since a number beyond 2^53 would be rounded here.
  if (isJson(trimmed)) {
    return trimmed.startsWith("[") ? trimmed : `[${trimmed}]`;
  }
  return isJson(`[${trimmed}]`) ? `[${trimmed}]` : JSON.stringify([trimmed]);
}

/** A value that was typed: JSON, whose large whole numbers become texts so that they stay exact. */
export function valueInText(text: string): JsonValue {
  const value = JSON.parse(text) as JsonValue;
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)) {
    return text.trim();
  }
  return value;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
