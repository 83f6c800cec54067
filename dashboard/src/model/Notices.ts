/** What went wrong, once per cause: the page shows this list at one place. */

import { ApiError } from "../api";
import { messageOf } from "./errors";
import { unknownBecause } from "./operations";

export interface Notice {
  key: string;
  title: string;
  detail: string;
  /** "pending": it goes on or may go on. */
  kind: "error" | "pending" | "done";
  retry: (() => void) | null;
}

/** How long it stands there that something was done. */
const DONE_MS = 15_000;
/** All that fails because the cluster does not answer is one notice. */
const UNREACHABLE = "unreachable";

export class Notices {
  private readonly entries = new Map<string, Notice>();
  private readonly waiting = new Map<string, (() => void) | null>();
  private readonly listeners = new Set<() => void>();
  private snapshot: readonly Notice[] = [];

  list(): readonly Notice[] {
    return this.snapshot;
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  report(key: string, what: string, error: unknown, retry: (() => void) | null): void {
    if (error instanceof ApiError && error.status === 401) {
      return; // The login page takes over.
    }
    if (error instanceof ApiError && error.status === 0) {
      this.reportSilence(key, retry);
      return;
    }
    this.waiting.delete(key);
    const place = error instanceof ApiError ? ` (${error.status}, /${error.path})` : "";
    const detail = messageOf(error) + place;
    this.put({ key, title: `${what} could not be loaded`, detail, kind: "error", retry });
  }

  /** Tells that the cluster does not answer, or not yet. */
  reportSilence(key: string, retry: (() => void) | null): void {
    this.entries.delete(key);
    this.waiting.set(key, retry);
    this.put({
      key: UNREACHABLE,
      title: "The cluster does not answer",
      detail: "What is shown is what it answered last. It is asked again by itself.",
      kind: "error",
      retry: () => {
        for (const again of [...this.waiting.values()]) {
          again?.();
        }
      },
    });
  }

  /** Tells the outcome of what the reader asked for. */
  tell(kind: Notice["kind"], title: string, detail: string): void {
    const notice: Notice = { key: keyOf(title), title, detail, kind, retry: null };
    this.put(notice);
    if (kind === "done") {
      setTimeout(() => {
        if (this.entries.get(notice.key) === notice) {
          this.clear(notice.key);
        }
      }, DONE_MS);
    }
  }

  /**
   * Does what the reader asked for and tells how it ended. `work` gives a sentence, or null while it goes on; it tells
   * meanwhile why the state is not known, or null when it is known again.
   */
  async follow(title: string, work: (onUnknown: (why: string | null) => void) => Promise<string | null>): Promise<void> {
    const unknown = `${title}: its state is not known`;
    const onUnknown = (why: string | null): void => {
      if (why === null) {
        this.clear(keyOf(unknown));
      } else {
        this.tell("pending", unknown, `It may go on: the cluster is asked again by itself. Reason: ${why}`);
      }
    };
    try {
      const outcome = await work(onUnknown);
      if (outcome === null) {
        this.tell("pending", `${title}: it goes on`, "It takes longer than this page waits; Checkpoints shows how it ends.");
      } else {
        this.tell("done", `${title}: done`, outcome);
      }
    } catch (error) {
      const why = unknownBecause(error);
      if (why === null) {
        this.tell("error", `${title} failed`, messageOf(error));
      } else {
        this.tell("pending", unknown, `It may be done all the same: look at Checkpoints and the state of the job. Reason: ${why}`);
      }
    }
  }

  clear(key: string): void {
    const had = this.entries.delete(key);
    const waited = this.waiting.delete(key);
    if (waited && this.waiting.size === 0) {
      this.entries.delete(UNREACHABLE);
    }
    if (had || waited) {
      this.publish();
    }
  }

  clearAll(): void {
    this.entries.clear();
    this.waiting.clear();
    this.publish();
  }

  private put(notice: Notice): void {
    this.entries.set(notice.key, notice);
    this.publish();
  }

  private publish(): void {
    this.snapshot = [...this.entries.values()];
    for (const listener of this.listeners) {
      listener();
    }
  }
}

function keyOf(title: string): string {
  return `told ${title}`;
}

export const notices = new Notices();
