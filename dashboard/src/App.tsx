/** The dashboard: asks `/config`, shows the login page where a token is wanted, and the page of the address otherwise. */

import type { JSX } from "preact";
import { useCallback, useEffect, useState } from "preact/hooks";

import * as api from "./api";
import { Loading } from "./components/Basics";
import { Shell } from "./components/Shell";
import { Cluster } from "./model/cluster";
import { messageOf } from "./model/errors";
import { notices } from "./model/Notices";
import { RefreshInterval } from "./model/poll";
import { read, write } from "./model/storage";
import { useRoute, type Route } from "./model/router";
import { EndedJobsPage } from "./pages/EndedJobsPage";
import { JobPage } from "./pages/job/JobPage";
import { LoginPage, signInProblem } from "./pages/LoginPage";
import { OverviewPage } from "./pages/OverviewPage";
import { JobManagerPage } from "./pages/process/JobManagerPage";
import { TaskManagerPage } from "./pages/process/TaskManagerPage";
import { TaskManagersPage } from "./pages/process/TaskManagersPage";
import type { DashboardConfiguration } from "./types";

/** The shortest wait between two polls, whatever the server says. */
const INTERVAL_MIN_MS = 500;
const RETRY_MS = 3_000;
/** Remembers that this browser has a session: its cookie cannot be seen by scripts. */
const SESSION = "headrace.session";

type Phase =
  | { kind: "asking" }
  | { kind: "login" }
  | { kind: "unreachable"; detail: string }
  | { kind: "ready"; configuration: DashboardConfiguration };

export function App({ token }: { token: string | null }): JSX.Element {
  const [phase, setPhase] = useState<Phase>({ kind: "asking" });
  const [signedIn, setSignedIn] = useState(() => read(SESSION) === "yes");
  const route = useRoute();
  const signIn = useCallback(() => {
    write(SESSION, "yes");
    setSignedIn(true);
    if (new URLSearchParams(location.search).has("back")) {
      location.replace("./"); // Another dashboard has the first page, and sent the browser here for the token.
    }
  }, []);
  const begin = useCallback(async () => {
    try {
      setPhase({ kind: "ready", configuration: await api.config() });
    } catch (error) {
      if (error instanceof api.ApiError && error.status === 401) {
        setPhase({ kind: "login" });
      } else {
        setPhase({ kind: "unreachable", detail: messageOf(error) });
      }
    }
  }, []);
  useEffect(() => {
    api.setUnauthorizedHandler(() => {
      notices.clearAll();
      setPhase({ kind: "login" });
    });
    void (async () => {
      if (token !== null) {
        try {
          await api.createSession(token);
          signIn();
        } catch (error) {
          notices.tell("error", "The token of the address was refused", signInProblem(error));
        }
      }
      await begin();
    })();
  }, [begin, signIn, token]);
  useEffect(() => {
    if (phase.kind !== "unreachable") {
      return;
    }
    const timer = setTimeout(() => void begin(), RETRY_MS);
    return () => clearTimeout(timer);
  }, [phase, begin]);
  switch (phase.kind) {
    case "asking":
      return <Loading what="Asking the cluster" />;
    case "login":
      return (
        <LoginPage
          onDone={() => {
            signIn();
            void begin();
          }}
        />
      );
    case "unreachable":
      return (
        <main class="login" role="alert">
          <h1>The cluster does not answer</h1>
          <p>{phase.detail}. It is asked again every few seconds.</p>
          <button type="button" class="button primary" onClick={() => void begin()}>
            Try again
          </button>
        </main>
      );
    case "ready": {
      const { configuration } = phase;
      const signOut = async (): Promise<void> => {
        try {
          await api.deleteSession();
        } finally {
          write(SESSION, "");
          setSignedIn(false);
          setPhase({ kind: "login" });
        }
      };
      return (
        <Cluster.Provider value={configuration}>
          <RefreshInterval.Provider value={Math.max(INTERVAL_MIN_MS, configuration["refresh-interval"])}>
            <Shell configuration={configuration} current={route.parts[0] ?? "overview"} onSignOut={signedIn ? () => void signOut() : null}>
              <Page route={route} isHistory={configuration.features["web-history"]} />
            </Shell>
          </RefreshInterval.Provider>
        </Cluster.Provider>
      );
    }
  }
}

const TITLES: Record<string, string> = {
  overview: "Overview",
  "ended-jobs": "Ended jobs",
  "task-manager": "TaskManagers",
  "job-manager": "JobManager",
};

function Page({ route, isHistory }: { route: Route; isHistory: boolean }): JSX.Element {
  const page = route.parts[0] ?? "overview";
  useEffect(() => {
    const title = TITLES[page];
    if (title !== undefined) {
      document.title = `${title} – Headrace`;
    }
  }, [page]);
  if (page === "job" && route.parts[1] !== undefined) {
    return <JobPage key={route.parts[1]} route={route} />;
  }
  if (page === "ended-jobs") {
    return <EndedJobsPage />;
  }
  if (page === "task-manager" && !isHistory) {
    return route.parts[1] === undefined ? <TaskManagersPage /> : <TaskManagerPage key={route.parts[1]} route={route} />;
  }
  if (page === "job-manager" && !isHistory) {
    return <JobManagerPage route={route} />;
  }
  return isHistory ? <EndedJobsPage /> : <OverviewPage />;
}
