/** What went wrong, once per cause: the page shows this list at one place. */

import { ApiError } from "../api";

export interface Notice {
  key: string;
  title: string;
  detail: string;
  kind: "error" | "done";
  retry: (() => void) | null;
}

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
      return;
    }
    this.waiting.delete(key);
    const detail =
      error instanceof ApiError ? `${error.headline} (${error.status}, /${error.path})` : String(error);
    this.put({ key, title: `${what} could not be loaded`, detail, kind: "error", retry });
  }

  /** Tells the outcome of what the reader asked for. */
  tell(kind: "error" | "done", title: string, detail: string): void {
    this.put({ key: `told ${title}`, title, detail, kind, retry: null });
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

export const notices = new Notices();
