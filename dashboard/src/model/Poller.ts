/** Loads something again and again: one request at a time, none while the page is hidden, fewer while they fail. */

export interface PollerEnvironment {
  hidden(): boolean;
  /** Calls `listener` whenever the page is hidden or shown; returns what ends that. */
  onVisibilityChange(listener: () => void): () => void;
}

export interface PollerListener<T> {
  loaded(value: T): void;
  /** There is no answer yet after LATE_MS: it may still come. Not told of what is loaded once. */
  late(): void;
  failed(error: unknown): void;
}

/** The longest wait between two attempts while the cluster does not answer. */
export const BACKOFF_MAX_MS = 30_000;

/** How long an answer may take until the reader is told that what is shown is old. */
export const LATE_MS = 10_000;

export class Poller<T> {
  private timer: ReturnType<typeof setTimeout> | null = null;
  private controller: AbortController | null = null;
  private failures = 0;
  private due = false;
  private closed = false;
  private readonly unsubscribe: () => void;

  constructor(
    private readonly load: (signal: AbortSignal) => Promise<T>,
    private readonly listener: PollerListener<T>,
    /** Null loads once. */
    private readonly intervalMs: number | null,
    private readonly environment: PollerEnvironment = DOCUMENT,
  ) {
    this.unsubscribe = environment.onVisibilityChange(() => {
      if (!environment.hidden() && this.due) {
        this.now();
      }
    });
    this.now();
  }

  /** Loads at once, unless a request is under way. */
  now(): void {
    if (this.closed || this.controller !== null) {
      return;
    }
    this.clearTimer();
    if (this.environment.hidden()) {
      this.due = true;
      return;
    }
    this.due = false;
    void this.run();
  }

  close(): void {
    this.closed = true;
    this.clearTimer();
    this.controller?.abort();
    this.unsubscribe();
  }

  private async run(): Promise<void> {
    const controller = new AbortController();
    this.controller = controller;
    const late = setTimeout(() => this.tellLate(), LATE_MS);
    try {
      const value = await this.load(controller.signal);
      if (!this.closed) {
        this.failures = 0;
        this.listener.loaded(value);
      }
    } catch (error) {
      if (!this.closed) {
        this.failures += 1;
        this.listener.failed(error);
      }
    } finally {
      this.controller = null;
      clearTimeout(late);
    }
    if (!this.closed && (this.intervalMs !== null || this.failures > 0)) {
      this.timer = setTimeout(() => this.now(), this.waitMs());
    }
  }

  private tellLate(): void {
    if (!this.closed && this.intervalMs !== null) {
      this.listener.late();
    }
  }

  private waitMs(): number {
    const interval = this.intervalMs ?? 3_000;
    return this.failures === 0 ? interval : Math.max(interval, Math.min(BACKOFF_MAX_MS, interval * 2 ** this.failures));
  }

  private clearTimer(): void {
    if (this.timer !== null) {
      clearTimeout(this.timer);
      this.timer = null;
    }
  }
}

const DOCUMENT: PollerEnvironment = {
  hidden: () => document.hidden,
  onVisibilityChange: (listener) => {
    document.addEventListener("visibilitychange", listener);
    return () => document.removeEventListener("visibilitychange", listener);
  },
};

/** Applies `work` to every item, at most `limit` at the same time; results stand in the order of the items. */
export async function inTurns<A, B>(items: readonly A[], limit: number, work: (item: A) => Promise<B>): Promise<B[]> {
  const results = new Array<B>(items.length);
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < items.length) {
      const index = next++;
      results[index] = await work(items[index] as A);
    }
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return results;
}
