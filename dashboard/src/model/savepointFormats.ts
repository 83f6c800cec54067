/** Formats of savepoints, and what kind of snapshot a checkpoint is. */

import type { Checkpoint, SavepointFormat } from "../types";

/** The default first. */
export const FORMATS: readonly (readonly [SavepointFormat, string])[] = [
  ["CANONICAL", "can be restored by any state backend, read and edited"],
  ["NATIVE", "quicker for large state in RocksDB, and restored by RocksDB alone"],
];

/** As in "unaligned checkpoint" and "savepoint, native". */
export function kindOf(checkpoint: Pick<Checkpoint, "checkpoint_type" | "savepointFormat">): string {
  const type = checkpoint.checkpoint_type.toLowerCase().replaceAll("_", " ");
  return checkpoint.savepointFormat === null ? type : `${type}, ${checkpoint.savepointFormat.toLowerCase()}`;
}
