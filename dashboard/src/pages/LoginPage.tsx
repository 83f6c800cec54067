/** Takes the token once; from then on a cookie that scripts cannot read stands for it. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import * as api from "../api";
import { messageOf } from "../model/errors";

export function LoginPage({ onDone }: { onDone(): void }): JSX.Element {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = "Sign in – Headrace";
    field.current?.focus();
  }, []);
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      await api.createSession(token.trim());
      setToken("");
      onDone();
    } catch (error) {
      setProblem(signInProblem(error));
      field.current?.focus();
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form
        class="panel"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <h1>Headrace</h1>
        <label class="field">
          Token of the cluster
          <input
            ref={field}
            type="password"
            autocomplete="off"
            required
            value={token}
            aria-invalid={problem === "" ? undefined : "true"}
            aria-describedby="login-help login-problem"
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <p id="login-problem" class="problem" role="alert">
          {problem}
        </p>
        <p id="login-help" class="quiet-text">
          It stands in the connection file of the cluster (<code>~/.headrace/clusters/…json</code>). The command <code>headrace open</code>{" "}
          opens this page with it.
        </p>
        <button type="submit" class="button primary" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}

export function signInProblem(error: unknown): string {
  if (error instanceof api.ApiError) {
    return error.status === 401 || error.status === 403 ? "This is not the token of this cluster." : `It did not work: ${error.headline}`;
  }
  return messageOf(error);
}
