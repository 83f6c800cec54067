/** Errors and outcomes, each once, at one place that screen readers announce. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { notices, type Notice } from "../model/Notices";

export function NoticeList(): JSX.Element {
  const [list, setList] = useState<readonly Notice[]>(notices.list());
  useEffect(() => {
    setList(notices.list());
    return notices.subscribe(() => setList(notices.list()));
  }, []);
  return (
    <div class="notices" role="alert" aria-live="assertive">
      {list.map((notice) => (
        <div key={notice.key} class={`notice ${notice.kind}`}>
          <div>
            <strong>{notice.title}</strong>
            <p>{notice.detail}</p>
          </div>
          {notice.retry === null ? null : (
            <button type="button" class="button" onClick={notice.retry}>
              Try again
            </button>
          )}
          <button type="button" class="button" aria-label={`Dismiss: ${notice.title}`} onClick={() => notices.clear(notice.key)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
