import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { inTurns, LATE_MS, Poller, type PollerEnvironment } from "./Poller";

class Page implements PollerEnvironment {
  isHidden = false;
  listeners = new Set<() => void>();
  hidden = (): boolean => this.isHidden;
  onVisibilityChange = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  set(hidden: boolean): void {
    this.isHidden = hidden;
    for (const listener of this.listeners) {
      listener();
    }
  }
}

const quiet = { loaded: (): void => {}, late: (): void => {}, failed: (): void => {} };

describe("Poller", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it("asks once per interval", async () => {
    const load = vi.fn(async () => 1);
    const poller = new Poller(load, quiet, 3000, new Page());
    await vi.advanceTimersByTimeAsync(9000);
    expect(load).toHaveBeenCalledTimes(4);
    poller.close();
  });

  it("asks again only after the answer, however late that is", async () => {
    let answer: (value: number) => void = () => {};
    const load = vi.fn(() => new Promise<number>((resolve) => (answer = resolve)));
    const poller = new Poller(load, quiet, 3000, new Page());
    await vi.advanceTimersByTimeAsync(60_000);
    poller.now();
    expect(load).toHaveBeenCalledTimes(1);
    answer(1);
    await vi.advanceTimersByTimeAsync(3000);
    expect(load).toHaveBeenCalledTimes(2);
    poller.close();
  });

  it("tells of an answer that is late, once, and only while it is awaited", async () => {
    let answer: (value: number) => void = () => {};
    const load = (): Promise<number> => new Promise<number>((resolve) => (answer = resolve));
    const late = vi.fn();
    const poller = new Poller(load, { ...quiet, late }, 3000, new Page());
    await vi.advanceTimersByTimeAsync(LATE_MS - 1);
    expect(late).toHaveBeenCalledTimes(0);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(late).toHaveBeenCalledTimes(1);
    answer(1);
    await vi.advanceTimersByTimeAsync(3000);
    answer(2);
    await vi.advanceTimersByTimeAsync(0);
    poller.close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(late).toHaveBeenCalledTimes(1);
  });

  it("does not tell of late answers of what is loaded once: it may take long", async () => {
    const late = vi.fn();
    new Poller(() => new Promise(() => {}), { ...quiet, late }, null, new Page());
    await vi.advanceTimersByTimeAsync(60_000);
    expect(late).toHaveBeenCalledTimes(0);
  });

  it("asks nothing while the page is hidden, and at once when it is shown", async () => {
    const page = new Page();
    const load = vi.fn(async () => 1);
    const poller = new Poller(load, quiet, 3000, page);
    await vi.advanceTimersByTimeAsync(0);
    page.set(true);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(load).toHaveBeenCalledTimes(1);
    page.set(false);
    expect(load).toHaveBeenCalledTimes(2);
    poller.close();
  });

  it("waits longer after each failure, and at most half a minute", async () => {
    const load = vi.fn(async () => Promise.reject(new Error("down")));
    const failed = vi.fn();
    const poller = new Poller(load, { ...quiet, failed }, 3000, new Page());
    await vi.advanceTimersByTimeAsync(5999);
    expect(failed).toHaveBeenCalledTimes(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(failed).toHaveBeenCalledTimes(2);
    await vi.advanceTimersByTimeAsync(12_000 + 24_000 + 30_000);
    expect(failed).toHaveBeenCalledTimes(5);
    poller.close();
  });

  it("gives up the request under way when it is closed", async () => {
    const signals: AbortSignal[] = [];
    const load = (signal: AbortSignal): Promise<number> => {
      signals.push(signal);
      return new Promise(() => {});
    };
    new Poller(load, quiet, 3000, new Page()).close();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(signals.map((signal) => signal.aborted)).toEqual([true]);
  });

  it("loads once where it has no interval", async () => {
    const load = vi.fn(async () => 1);
    const poller = new Poller(load, quiet, null, new Page());
    await vi.advanceTimersByTimeAsync(60_000);
    expect(load).toHaveBeenCalledTimes(1);
    poller.close();
  });
});

describe("inTurns", () => {
  it("keeps the order and never has more under way than allowed", async () => {
    let now = 0;
    let most = 0;
    const results = await inTurns([5, 1, 4, 2, 3], 2, async (item) => {
      most = Math.max(most, ++now);
      await Promise.resolve();
      now -= 1;
      return item * 10;
    });
    expect(results).toEqual([50, 10, 40, 20, 30]);
    expect(most).toBe(2);
  });
});
