/** Hooks that bring polled answers into components. */

import { createContext } from "preact";
import { useCallback, useContext, useEffect, useRef, useState } from "preact/hooks";

import { notices } from "./Notices";
import { Poller } from "./Poller";

/** Milliseconds between two polls: `refresh-interval` of `/config`. */
export const RefreshInterval = createContext(3000);

export interface Polled<T> {
  data: T | undefined;
  failed: boolean;
  reload(): void;
}

/**
 * Polls `load` while the component is shown, and anew when `keys` change. `what` names it in the notice of an error,
 * as in "Checkpoints could not be loaded". `every` "once" loads once.
 */
export function usePoll<T>(
  what: string,
  load: (signal: AbortSignal) => Promise<T>,
  keys: readonly unknown[],
  every: "interval" | "once" = "interval",
): Polled<T> {
  const interval = useContext(RefreshInterval);
  const [state, setState] = useState<{ key: string; data: T | undefined; failed: boolean }>();
  const poller = useRef<Poller<T> | null>(null);
  const key = JSON.stringify([what, ...keys]);
  useEffect(() => {
    const listener = {
      loaded: (data: T): void => {
        notices.clear(key);
        setState({ key, data, failed: false });
      },
      late: (): void => notices.reportSilence(key, () => poller.current?.now()),
      failed: (error: unknown): void => {
        notices.report(key, what, error, () => poller.current?.now());
        setState((before) => ({ key, data: before?.key === key ? before.data : undefined, failed: true }));
      },
    };
    const current = new Poller(load, listener, every === "once" ? null : interval);
    poller.current = current;
    return () => {
      current.close();
      notices.clear(key);
    };
    // `load` is a new function at each call; `key` says when it asks for something else.
  }, [key, interval, every]);
  const reload = useCallback(() => poller.current?.now(), []);
  const fresh = state?.key === key;
  return { data: fresh ? state.data : undefined, failed: fresh && state.failed, reload };
}
