/** The typed client: one function per route. No other file of the dashboard sends a request. */

import type {
  AggregatedMetric,
  Attempt,
  BackPressure,
  CheckpointConfiguration,
  Checkpoint,
  CheckpointingStatistics,
  CheckpointOperation,
  ClusterOverview,
  DashboardConfiguration,
  Environment,
  FlameGraphAnswer,
  FlameGraphType,
  Job,
  JobAccumulators,
  JobConfiguration,
  JobDetails,
  JobExceptions,
  JobWatermarks,
  KeyValue,
  LogFile,
  MetricsHistory,
  MetricValue,
  OperatorState,
  Profiling,
  ProfilingMode,
  SavepointFormat,
  SavepointOperation,
  StateEdit,
  StateEditOperation,
  StateInfo,
  StateRows,
  SubtaskTimes,
  TaskManager,
  TaskManagerDetails,
  ThreadInfo,
  TriggerAnswer,
  VertexCheckpointDetails,
  VertexDetails,
} from "./types";

/** Routes that the dashboard uses, as they stand in the table of the server; `routes.json` holds the same list. */
export const ROUTES = {
  config: "GET /config",
  createSession: "POST /session",
  deleteSession: "DELETE /session",
  overview: "GET /overview",
  jobs: "GET /jobs/overview",
  job: "GET /jobs/{jobid}",
  cancelJob: "PATCH /jobs/{jobid}",
  stopJob: "POST /jobs/{jobid}/stop",
  triggerSavepoint: "POST /jobs/{jobid}/savepoints",
  savepointStatus: "GET /jobs/{jobid}/savepoints/{triggerid}",
  triggerCheckpoint: "POST /jobs/{jobid}/checkpoints",
  checkpointStatus: "GET /jobs/{jobid}/checkpoints/{triggerid}",
  jobConfig: "GET /jobs/{jobid}/config",
  jobExceptions: "GET /jobs/{jobid}/exceptions",
  jobAccumulators: "GET /jobs/{jobid}/accumulators",
  jobMetrics: "GET /jobs/{jobid}/metrics",
  metricsHistory: "GET /jobs/{jobid}/metrics-history",
  jobWatermarks: "GET /jobs/{jobid}/watermarks",
  checkpoints: "GET /jobs/{jobid}/checkpoints",
  checkpointConfig: "GET /jobs/{jobid}/checkpoints/config",
  checkpointDetails: "GET /jobs/{jobid}/checkpoints/details/{checkpointid}",
  checkpointSubtasks: "GET /jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}",
  jobState: "GET /jobs/{jobid}/state",
  operatorState: "GET /jobs/{jobid}/state/operators/{operatorid}",
  stateRows: "GET /jobs/{jobid}/state/operators/{operatorid}/rows",
  editState: "POST /jobs/{jobid}/state/edits",
  stateEditStatus: "GET /jobs/{jobid}/state/edits/{triggerid}",
  vertex: "GET /jobs/{jobid}/vertices/{vertexid}",
  attempt: "GET /jobs/{jobid}/vertices/{vertexid}/subtasks/{subtaskindex}/attempts/{attempt}",
  vertexSubtaskTimes: "GET /jobs/{jobid}/vertices/{vertexid}/subtasktimes",
  vertexBackPressure: "GET /jobs/{jobid}/vertices/{vertexid}/backpressure",
  vertexWatermarks: "GET /jobs/{jobid}/vertices/{vertexid}/watermarks",
  vertexMetrics: "GET /jobs/{jobid}/vertices/{vertexid}/metrics",
  vertexSubtaskMetrics: "GET /jobs/{jobid}/vertices/{vertexid}/subtasks/metrics",
  vertexFlameGraph: "GET /jobs/{jobid}/vertices/{vertexid}/flamegraph",
  taskManagers: "GET /taskmanagers",
  taskManager: "GET /taskmanagers/{taskmanagerid}",
  taskManagerMetrics: "GET /taskmanagers/{taskmanagerid}/metrics",
  taskManagerLogs: "GET /taskmanagers/{taskmanagerid}/logs",
  taskManagerLog: "GET /taskmanagers/{taskmanagerid}/logs/{filename}",
  taskManagerStdout: "GET /taskmanagers/{taskmanagerid}/stdout",
  taskManagerProfiles: "GET /taskmanagers/{taskmanagerid}/profiler",
  taskManagerProfile: "GET /taskmanagers/{taskmanagerid}/profiler/{filename}",
  profileTaskManager: "POST /taskmanagers/{taskmanagerid}/profiler",
  taskManagerThreadDump: "GET /taskmanagers/{taskmanagerid}/thread-dump",
  jobManagerConfig: "GET /jobmanager/config",
  jobManagerEnvironment: "GET /jobmanager/environment",
  jobManagerMetrics: "GET /jobmanager/metrics",
  jobManagerLogs: "GET /jobmanager/logs",
  jobManagerLog: "GET /jobmanager/logs/{filename}",
  jobManagerStdout: "GET /jobmanager/stdout",
  jobManagerProfiles: "GET /jobmanager/profiler",
  jobManagerProfile: "GET /jobmanager/profiler/{filename}",
  profileJobManager: "POST /jobmanager/profiler",
  jobManagerThreadDump: "GET /jobmanager/thread-dump",
} as const;

/** A route answered with an error, or there was no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly path: string,
    readonly messages: readonly string[],
  ) {
    super(messages[0] ?? `status ${status}`);
    this.name = "ApiError";
  }

  /** The first line of the first message: the rest is a stack trace. */
  get headline(): string {
    const meaningful = this.messages.find((message) => !message.startsWith("Internal server error"));
    const line = (meaningful ?? this.message).split("\n").find((each) => each.trim() !== "") ?? "";
    return line.length > 300 ? `${line.slice(0, 300)}…` : line;
  }
}

type Values = Record<string, string | number>;
type Query = Record<string, string | number | undefined>;

interface Call {
  values?: Values;
  query?: Query;
  body?: unknown;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** The longest part of a log that is kept in the page, in bytes. */
export const LOG_TAIL_BYTES = 512 * 1024;

/** Where the REST routes begin: beside the page, whatever prefix the server has. */
function base(): string {
  return document.baseURI.replace(/[#?].*$/, "").replace(/[^/]*$/, "");
}

export function fillPath(route: string, values: Values = {}, query: Query = {}): string {
  const template = route.slice(route.indexOf("/") + 1);
  const path = template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) {
      throw new Error(`${route} needs ${name}`);
    }
    return encodeURIComponent(String(value));
  });
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined);
  const search = pairs.map(([key, value]) => `${key}=${encodeURIComponent(String(value))}`).join("&");
  return search === "" ? path : `${path}?${search}`;
}

/** The address of a file that a route serves, for a link. */
export function addressOf(route: string, values: Values = {}): string {
  return base() + fillPath(route, values);
}

let onUnauthorized: (() => void) | null = null;

/** Names the function that is called when the server wants a token. */
export function setUnauthorizedHandler(handler: () => void): void {
  onUnauthorized = handler;
}

async function errorOf(response: Response, path: string): Promise<ApiError> {
  let messages: string[] = [];
  try {
    const body = JSON.parse(await response.text()) as { errors?: unknown; detail?: unknown };
    if (Array.isArray(body.errors)) {
      messages = body.errors.map(String);
    } else if (typeof body.detail === "string") {
      messages = [body.detail];
    }
  } catch {
    // An error of a proxy in between need not be JSON: its status says enough.
  }
  return new ApiError(response.status, path, messages.length > 0 ? messages : [`status ${response.status}`]);
}

async function send(route: string, call: Call): Promise<Response> {
  const path = fillPath(route, call.values, call.query);
  const headers: Record<string, string> = { Accept: "application/json", ...call.headers };
  const init: RequestInit = {
    method: route.slice(0, route.indexOf(" ")),
    credentials: "same-origin",
    cache: "no-store",
    headers,
    signal: call.signal ?? null,
  };
  if (call.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(call.body);
  }
  let response: Response;
  try {
    response = await fetch(base() + path, init);
  } catch (error) {
    if (call.signal?.aborted) {
      throw error;
    }
    throw new ApiError(0, path, ["the cluster does not answer"]);
  }
  if (response.status === 401 && route !== ROUTES.createSession) {
    onUnauthorized?.();
  }
  if (!response.ok) {
    throw await errorOf(response, path);
  }
  return response;
}

async function json<T>(route: string, call: Call = {}): Promise<T> {
  const response = await send(route, call);
  return (await response.json()) as T;
}

/** Reads the end of a text: `Range` asks for it, and what a server without ranges sends beyond is dropped on the way. */
async function tail(route: string, call: Call): Promise<string> {
  const headers = { Accept: "text/plain, application/json", Range: `bytes=-${LOG_TAIL_BYTES}` };
  let response: Response;
  try {
    response = await send(route, { ...call, headers });
  } catch (error) {
    if (error instanceof ApiError && error.status === 416) {
      return ""; // An empty file has no last bytes.
    }
    throw error;
  }
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const chunk = await reader?.read();
    if (chunk === undefined || chunk.done) {
      return text;
    }
    text += chunk.value;
    if (text.length > 2 * LOG_TAIL_BYTES) {
      text = text.slice(-LOG_TAIL_BYTES);
    }
  }
}

export const config = (signal?: AbortSignal): Promise<DashboardConfiguration> => json(ROUTES.config, { signal });

export async function createSession(token: string): Promise<void> {
  await send(ROUTES.createSession, { body: { token } });
}

export async function deleteSession(): Promise<void> {
  await send(ROUTES.deleteSession, {});
}

export const overview = (signal?: AbortSignal): Promise<ClusterOverview> => json(ROUTES.overview, { signal });

export async function jobs(signal?: AbortSignal): Promise<JobDetails[]> {
  return (await json<{ jobs: JobDetails[] }>(ROUTES.jobs, { signal })).jobs;
}

export const job = (jobid: string, signal?: AbortSignal): Promise<Job> =>
  json(ROUTES.job, { values: { jobid }, signal });

export async function cancelJob(jobid: string): Promise<void> {
  await send(ROUTES.cancelJob, { values: { jobid }, query: { mode: "cancel" } });
}

/** Where a savepoint is to be, undefined for the folder of the configuration, and in which format. */
export interface SavepointRequest {
  directory: string | undefined;
  format: SavepointFormat;
}

export const stopJob = (jobid: string, { directory, format }: SavepointRequest, drain: boolean): Promise<TriggerAnswer> =>
  json(ROUTES.stopJob, { values: { jobid }, body: { targetDirectory: directory, formatType: format, drain } });

export const triggerSavepoint = (jobid: string, { directory, format }: SavepointRequest): Promise<TriggerAnswer> =>
  json(ROUTES.triggerSavepoint, { values: { jobid }, body: { "target-directory": directory, formatType: format, "cancel-job": false } });

export const savepointStatus = (jobid: string, triggerid: string): Promise<SavepointOperation> =>
  json(ROUTES.savepointStatus, { values: { jobid, triggerid } });

export const triggerCheckpoint = (jobid: string): Promise<TriggerAnswer> =>
  json(ROUTES.triggerCheckpoint, { values: { jobid }, body: { checkpointType: "CONFIGURED" } });

export const checkpointStatus = (jobid: string, triggerid: string): Promise<CheckpointOperation> =>
  json(ROUTES.checkpointStatus, { values: { jobid, triggerid } });

export const jobConfig = (jobid: string, signal?: AbortSignal): Promise<JobConfiguration> =>
  json(ROUTES.jobConfig, { values: { jobid }, signal });

export const jobExceptions = (jobid: string, signal?: AbortSignal): Promise<JobExceptions> =>
  json(ROUTES.jobExceptions, { values: { jobid }, query: { maxExceptions: 50 }, signal });

export const jobAccumulators = (jobid: string, signal?: AbortSignal): Promise<JobAccumulators> =>
  json(ROUTES.jobAccumulators, { values: { jobid }, signal });

export const jobMetrics = (jobid: string, names?: readonly string[], signal?: AbortSignal): Promise<MetricValue[]> =>
  json(ROUTES.jobMetrics, { values: { jobid }, query: { get: names?.join(",") }, signal });

export const jobWatermarks = (jobid: string, signal?: AbortSignal): Promise<JobWatermarks> =>
  json(ROUTES.jobWatermarks, { values: { jobid }, signal });

export const metricsHistory = (jobid: string, signal?: AbortSignal): Promise<MetricsHistory> =>
  json(ROUTES.metricsHistory, { values: { jobid }, signal });

/** Jobs that make no checkpoints. They never will: each is asked once. */
const withoutCheckpoints = new Set<string>();

async function ofCheckpoints<T>(route: string, jobid: string, signal?: AbortSignal): Promise<T | null> {
  if (withoutCheckpoints.has(jobid)) {
    return null;
  }
  const answer = await orNull(json<T>(route, { values: { jobid }, signal }));
  if (answer === null) {
    withoutCheckpoints.add(jobid);
  }
  return answer;
}

/** Null where checkpointing is off. */
export const checkpoints = (jobid: string, signal?: AbortSignal): Promise<CheckpointingStatistics | null> =>
  ofCheckpoints(ROUTES.checkpoints, jobid, signal);

/** Null where checkpointing is off. */
export const checkpointConfig = (jobid: string, signal?: AbortSignal): Promise<CheckpointConfiguration | null> =>
  ofCheckpoints(ROUTES.checkpointConfig, jobid, signal);

export const checkpointDetails = (jobid: string, checkpointid: number, signal?: AbortSignal): Promise<Checkpoint> =>
  json(ROUTES.checkpointDetails, { values: { jobid, checkpointid }, signal });

export const checkpointSubtasks = (
  jobid: string,
  checkpointid: number,
  vertexid: string,
  signal?: AbortSignal,
): Promise<VertexCheckpointDetails> =>
  json(ROUTES.checkpointSubtasks, { values: { jobid, checkpointid, vertexid }, signal });

/** `snapshot`: the id of one of the job's snapshots; undefined: the running job. */
export const jobState = (jobid: string, snapshot: number | undefined, signal?: AbortSignal): Promise<StateInfo> =>
  json(ROUTES.jobState, { values: { jobid }, query: { snapshot }, signal });

export const operatorState = (
  jobid: string,
  operatorid: string,
  snapshot: number | undefined,
  signal?: AbortSignal,
): Promise<OperatorState> => json(ROUTES.operatorState, { values: { jobid, operatorid }, query: { snapshot }, signal });

export interface RowsQuery {
  table: string;
  state: string;
  /** A JSON list. */
  keys: string | undefined;
  subtask: number | undefined;
  limit: number;
}

export const stateRows = (
  jobid: string,
  operatorid: string,
  snapshot: number | undefined,
  query: RowsQuery,
  signal?: AbortSignal,
): Promise<StateRows> =>
  json(ROUTES.stateRows, { values: { jobid, operatorid }, query: { ...query, snapshot }, signal });

export const editState = (jobid: string, snapshot: number, reason: string, edits: readonly StateEdit[]): Promise<TriggerAnswer> =>
  json(ROUTES.editState, { values: { jobid }, body: { snapshot, reason, edits } });

export const stateEditStatus = (jobid: string, triggerid: string): Promise<StateEditOperation> =>
  json(ROUTES.stateEditStatus, { values: { jobid, triggerid } });

export const vertex = (jobid: string, vertexid: string, signal?: AbortSignal): Promise<VertexDetails> =>
  json(ROUTES.vertex, { values: { jobid, vertexid }, signal });

/** One attempt of a subtask; null where it is not kept any more. */
export async function attempt(
  jobid: string,
  vertexid: string,
  subtaskindex: number,
  number: number,
  signal?: AbortSignal,
): Promise<Attempt | null> {
  const values = { jobid, vertexid, subtaskindex, attempt: number };
  return orNull(json<Attempt>(ROUTES.attempt, { values, signal }));
}

export const vertexSubtaskTimes = (jobid: string, vertexid: string, signal?: AbortSignal): Promise<SubtaskTimes> =>
  json(ROUTES.vertexSubtaskTimes, { values: { jobid, vertexid }, signal });

export const vertexBackPressure = (jobid: string, vertexid: string, signal?: AbortSignal): Promise<BackPressure> =>
  json(ROUTES.vertexBackPressure, { values: { jobid, vertexid }, signal });

export const vertexWatermarks = (jobid: string, vertexid: string, signal?: AbortSignal): Promise<MetricValue[]> =>
  json(ROUTES.vertexWatermarks, { values: { jobid, vertexid }, signal });

export const vertexMetrics = (
  jobid: string,
  vertexid: string,
  names?: readonly string[],
  signal?: AbortSignal,
): Promise<MetricValue[]> =>
  json(ROUTES.vertexMetrics, { values: { jobid, vertexid }, query: { get: names?.join(",") }, signal });

/** Figures over the subtasks of a vertex; without `names`, the names that there are. */
export const vertexSubtaskMetrics = (
  jobid: string,
  vertexid: string,
  names?: readonly string[],
  signal?: AbortSignal,
): Promise<AggregatedMetric[]> =>
  json(ROUTES.vertexSubtaskMetrics, { values: { jobid, vertexid }, query: { get: names?.join(",") }, signal });

export const vertexFlameGraph = (
  jobid: string,
  vertexid: string,
  type: FlameGraphType,
  subtask: number | undefined,
  signal?: AbortSignal,
): Promise<FlameGraphAnswer> =>
  json(ROUTES.vertexFlameGraph, { values: { jobid, vertexid }, query: { type, subtaskindex: subtask }, signal });

export async function taskManagers(signal?: AbortSignal): Promise<TaskManager[]> {
  return (await json<{ taskmanagers: TaskManager[] }>(ROUTES.taskManagers, { signal })).taskmanagers;
}

export const taskManager = (taskmanagerid: string, signal?: AbortSignal): Promise<TaskManagerDetails> =>
  json(ROUTES.taskManager, { values: { taskmanagerid }, signal });

export const taskManagerMetrics = (
  taskmanagerid: string,
  names?: readonly string[],
  signal?: AbortSignal,
): Promise<MetricValue[]> =>
  json(ROUTES.taskManagerMetrics, { values: { taskmanagerid }, query: { get: names?.join(",") }, signal });

export async function taskManagerLogs(taskmanagerid: string, signal?: AbortSignal): Promise<LogFile[]> {
  return (await json<{ logs: LogFile[] }>(ROUTES.taskManagerLogs, { values: { taskmanagerid }, signal })).logs;
}

export const taskManagerLog = (taskmanagerid: string, filename: string, signal?: AbortSignal): Promise<string> =>
  tail(ROUTES.taskManagerLog, { values: { taskmanagerid, filename }, signal });

export const taskManagerStdout = (taskmanagerid: string, signal?: AbortSignal): Promise<string> =>
  tail(ROUTES.taskManagerStdout, { values: { taskmanagerid }, signal });

export async function taskManagerThreadDump(taskmanagerid: string, signal?: AbortSignal): Promise<ThreadInfo[]> {
  const call = { values: { taskmanagerid }, signal };
  return (await json<{ threadInfos: ThreadInfo[] }>(ROUTES.taskManagerThreadDump, call)).threadInfos;
}

export async function taskManagerProfiles(taskmanagerid: string, signal?: AbortSignal): Promise<Profiling[]> {
  return (await json<{ profilingList: Profiling[] }>(ROUTES.taskManagerProfiles, { values: { taskmanagerid }, signal })).profilingList;
}

export const profileTaskManager = (taskmanagerid: string, mode: ProfilingMode, seconds: number): Promise<Profiling> =>
  json(ROUTES.profileTaskManager, { values: { taskmanagerid }, body: { mode, duration: seconds } });

export const jobManagerConfig = (signal?: AbortSignal): Promise<KeyValue[]> =>
  json(ROUTES.jobManagerConfig, { signal });

export const jobManagerEnvironment = (signal?: AbortSignal): Promise<Environment> =>
  json(ROUTES.jobManagerEnvironment, { signal });

export const jobManagerMetrics = (names?: readonly string[], signal?: AbortSignal): Promise<MetricValue[]> =>
  json(ROUTES.jobManagerMetrics, { query: { get: names?.join(",") }, signal });

export async function jobManagerLogs(signal?: AbortSignal): Promise<LogFile[]> {
  return (await json<{ logs: LogFile[] }>(ROUTES.jobManagerLogs, { signal })).logs;
}

export const jobManagerLog = (filename: string, signal?: AbortSignal): Promise<string> =>
  tail(ROUTES.jobManagerLog, { values: { filename }, signal });

export const jobManagerStdout = (signal?: AbortSignal): Promise<string> => tail(ROUTES.jobManagerStdout, { signal });

export async function jobManagerThreadDump(signal?: AbortSignal): Promise<ThreadInfo[]> {
  return (await json<{ threadInfos: ThreadInfo[] }>(ROUTES.jobManagerThreadDump, { signal })).threadInfos;
}

export async function jobManagerProfiles(signal?: AbortSignal): Promise<Profiling[]> {
  return (await json<{ profilingList: Profiling[] }>(ROUTES.jobManagerProfiles, { signal })).profilingList;
}

export const profileJobManager = (mode: ProfilingMode, seconds: number): Promise<Profiling> =>
  json(ROUTES.profileJobManager, { body: { mode, duration: seconds } });

/** Awaits an answer; null where the server says that there is none. */
export async function orNull<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) {
      return null;
    }
    throw error;
  }
}
