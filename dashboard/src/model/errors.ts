/** What an error says, for the reader of a page. */

import { ApiError } from "../api";

/** One line of an answer with an error, the message of any other error, without the name of its class. */
export function messageOf(error: unknown): string {
  if (error instanceof ApiError) {
    return error.headline;
  }
  return error instanceof Error ? error.message || error.name : String(error);
}
