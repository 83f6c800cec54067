/** Formats of savepoints, and what kind of snapshot a checkpoint is. */

import type { Checkpoint, SavepointFormat, StateSnapshot } from "../types";

/** The default first. */
export const FORMATS: readonly (readonly [SavepointFormat, string])[] = [
  ["CANONICAL", "can be restored by any state backend, read and edited"],
  ["NATIVE", "quicker for large state in RocksDB, and restored by RocksDB alone"],
];

/** As in "unaligned checkpoint" and "savepoint, native". */
export function kindOf(checkpoint: Pick<Checkpoint, "checkpoint_type" | "savepointFormat">): string {
  return inFormat(checkpoint.checkpoint_type.toLowerCase().replaceAll("_", " "), checkpoint.savepointFormat);
}

/** The same of a snapshot whose state can be looked at: "checkpoint", "restored from savepoint, canonical". */
export function snapshotKind({ kind, "savepoint-format": format }: Pick<StateSnapshot, "kind" | "savepoint-format">): string {
  return inFormat(kind === "restored" ? `restored from ${format === null ? "checkpoint" : "savepoint"}` : kind, format);
}

function inFormat(kind: string, format: SavepointFormat | null): string {
  return format === null ? kind : `${kind}, ${format.toLowerCase()}`;
}
