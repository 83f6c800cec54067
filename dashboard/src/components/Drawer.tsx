/** A panel at the side of the page: takes the focus when it opens, gives it back when it closes; Escape closes it. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

export function Drawer(props: { title: string; onClose(): void; children: ComponentChildren }): JSX.Element {
  const id = useId();
  const close = useRef<HTMLButtonElement>(null);
  const onClose = useRef(props.onClose);
  onClose.current = props.onClose;
  useEffect(() => {
    const before = document.activeElement;
    close.current?.focus({ preventScroll: true });
    const listener = (event: KeyboardEvent): void => {
      if (event.key === "Escape") {
        onClose.current();
      }
    };
    addEventListener("keydown", listener);
    return () => {
      removeEventListener("keydown", listener);
      if (before instanceof HTMLElement && before.isConnected) {
        before.focus({ preventScroll: true });
      }
    };
  }, []);
  return (
    <aside class="drawer" role="dialog" aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id}>{props.title}</h2>
        <button ref={close} type="button" class="button" onClick={props.onClose} aria-label="Close">
          ✕
        </button>
      </div>
      {props.children}
    </aside>
  );
}
